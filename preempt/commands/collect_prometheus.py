"""`preempt collect prometheus`: samples of an engine that Prometheus has scraped all along."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands.options import PATH, as_json, print_json, quiet, say
from preempt.commands.progress import Counter, progress_shown
from replay.errors import InputError

if TYPE_CHECKING:
    from collectors.prometheus.backfill import Wanted
    from collectors.prometheus.source import Range
    from collectors.scrape.fetch import Fetcher


@click.command("prometheus")
@click.option("--url", required=True, help="The Prometheus server, e.g. http://127.0.0.1:9090")
@click.option("--out", required=True, type=PATH, help="Run directory to make.")
@click.option(
    "--query-range",
    "query_range",
    required=True,
    metavar="START/END",
    help="From START up to, not including, END: 2026-11-30T06:00:00Z/2026-11-30T07:00:00Z",
)
@click.option("--selector", default="{}", help='Matchers that leave one engine: {job="vllm"}')
@click.option("--instance", help="Value of the label instance, where several engines are there.")
@click.option(
    "--step",
    metavar="TIME",
    help="Ask query_range at such steps, for servers that do not give samples as they are stored.",
)
@click.option("--bearer-token-file", type=PATH, help="File with the token to send.")
@click.option("--ca-file", type=PATH, help="Certificates that an https server is checked by.")
@click.option("--cert-file", type=PATH, help="Client certificate.")
@click.option("--key-file", type=PATH, help="Its key.")
@click.option("--timeout", default="30s", show_default=True, help="Most time for one query.")
@click.option("--deadline", default="1h", show_default=True, help="Most time for all of it.")
@quiet
@as_json
def prometheus_command(
    url: str,
    out: Path,
    query_range: str,
    selector: str,
    instance: str | None,
    step: str | None,
    bearer_token_file: Path | None,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
    timeout: str,
    deadline: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a run of the samples that a Prometheus server has of one vLLM.

    The samples are those of scraping vLLM directly, at Prometheus's times; what Prometheus adds
    (job, instance, pod and the like) is left out. END may be at most now.
    """
    import asyncio

    from collectors.durations import duration_us
    from collectors.scrape.credentials import TOKEN_VARIABLE, Credentials
    from collectors.scrape.fetch import Fetcher
    from collectors.scrape.urls import urls_of
    from replay.output import check_new_directory

    wanted = _wanted(query_range, selector, instance, step)
    variable = None if bearer_token_file else _if_set(TOKEN_VARIABLE)
    credentials = Credentials(bearer_token_file, variable, ca_file, cert_file, key_file)
    credentials.headers()
    fetcher = Fetcher(urls_of(url), credentials, duration_us(timeout, "--timeout"))
    deadline_us = duration_us(deadline, "--deadline")
    check_new_directory(out, force=False, owned=())
    with progress_shown(quiet=quiet, logged=True) as shown:
        told = shown.seconds("taken from Prometheus") or (lambda _, __: None)
        manifest = asyncio.run(_backfill(fetcher, wanted, out, deadline_us, told))
    if as_json:
        print_json(manifest)
    gaps, resets = len(manifest["gaps"]), len(manifest["counter_resets"])
    say(
        f"{out}: {manifest['scrapes']} scrapes, {gaps} gaps, {resets} counter resets",
        quiet=quiet,
    )


async def _backfill(
    fetcher: "Fetcher", wanted: "Wanted", out: Path, deadline_us: int, told: Counter
) -> dict[str, Any]:
    import asyncio

    from collectors.prometheus.api import PLACE, Api
    from collectors.prometheus.backfill import backfill

    try:
        async with asyncio.timeout(deadline_us / 1_000_000), fetcher:
            return await backfill(Api(fetcher, asyncio.sleep), wanted, out, told)
    except TimeoutError as exc:
        rule = (
            "must give everything within --deadline; nothing was written: ask for less time, for"
            " ranges that meet share no sample, or pass a longer --deadline"
        )
        raise InputError(PLACE, "", rule) from exc


def _wanted(query_range: str, selector: str, instance: str | None, step: str | None) -> "Wanted":
    from collectors.durations import duration_us
    from collectors.prometheus.backfill import Wanted
    from collectors.prometheus.matchers import inner, quoted

    more = inner(selector)
    if instance is not None:
        more = f"{more},instance={quoted(instance)}".removeprefix(",")
    step_ms = None
    if step is not None:
        step_us = duration_us(step, "--step", minimum_us=1000)
        if step_us % 1000:
            raise InputError("options", "--step", "must be whole milliseconds")
        step_ms = step_us // 1000
    return Wanted(_range(query_range), more, step_ms)


def _range(text: str) -> "Range":
    import time

    from collectors.durations import moment_ns
    from collectors.prometheus.source import Range

    start, slash, end = text.partition("/")
    if not slash:
        rule = "must be START/END, e.g. 2026-11-30T06:00:00Z/2026-11-30T07:00:00Z"
        raise InputError("options", "--query-range", rule, f"{len(text)} characters")
    start_ms, end_ms = (moment_ns(one, "--query-range") // 1_000_000 for one in (start, end))
    if not 0 <= start_ms < end_ms:
        raise InputError("options", "--query-range", "must end after it starts")
    if end_ms > time.time() * 1000:
        raise InputError("options", "--query-range", "must end in the past")
    return Range(start_ms, end_ms)


def _if_set(variable: str) -> str | None:
    import os

    return variable if os.environ.get(variable) else None
