"""`preempt collect metrics`: one engine's metrics page, on a schedule, into a run."""

from typing import TYPE_CHECKING, Any

import click

from preempt.commands import options
from preempt.commands.options import say

if TYPE_CHECKING:
    from collectors.scrape.command import Chosen
    from collectors.scrape.loop import Collector


@click.command("metrics")
@click.option("--url", required=True, help="The server's address, or that of its /metrics.")
@click.option(
    "--out", type=options.PATH, required=True, help="Run directory to make or go on with."
)
@click.option("--interval", default="1s", show_default=True, help="Time between two scrapes.")
@click.option("--timeout", default=None, help="Most time of one scrape, all of it. [default: 5s]")
@click.option("--duration", help="Stop after this time, e.g. 10m; left out, on SIGTERM or Ctrl-C.")
@click.option("--until", help="Stop at this moment, e.g. 2026-11-30T06:00:00Z.")
@click.option("--spool", type=options.PATH, help="Pack this recorder's spool into the run, too.")
@click.option("--bearer-token-file", type=options.PATH, help="File with a token; read every time.")
@click.option("--ca-file", type=options.PATH, help="Certificates (PEM) the server is checked by.")
@click.option("--cert-file", type=options.PATH, help="Client certificate (PEM).")
@click.option("--key-file", type=options.PATH, help="Its key (PEM), if it is in another file.")
@click.option("--most-page", default="8MiB", show_default=True, help="Largest page, decompressed.")
@click.option(
    "--rotate-rows",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Rows of samples after which a journal becomes a part.",
)
@click.option("--rotate-every", default="15m", show_default=True, help="… or this time.")
@click.option("--keep-pages", help="Delete raw pages older than this, e.g. 30d.")
@click.option("--keep-bytes", help="Delete the oldest raw pages beyond this size, e.g. 2GiB.")
@click.option("--drop-samples", is_flag=True, help="Delete samples together with their pages.")
@options.quiet
@options.as_json
@click.pass_context
def metrics_command(context: click.Context, /, quiet: bool, as_json: bool, **given: Any) -> None:
    """Scrape a vLLM's metrics page every --interval, and keep every page and its samples.

    The run is a directory: samples/ holds what `preempt load` takes, pages/ the raw pages, so that
    `preempt collect reparse` can read them again with a better parser. A restart with the same
    --out goes on with the run. An engine that comes back with other flags begins a run beside it:
    OUT-2, OUT-3, … Whatever the server does, each scrape has one outcome, counted in
    manifest.json, and collection goes on. SIGTERM and the end of --duration write everything and
    exit 0; Ctrl-C writes everything and exits 130.

    A bearer token comes from --bearer-token-file, or else from the environment variable
    PREEMPT_BEARER_TOKEN. It appears in no file, message or process title.

    \b
    Examples:
        preempt collect metrics --url http://127.0.0.1:8000 --out my-run --duration 10m
        preempt collect metrics --url https://vllm.example/metrics --bearer-token-file token \\
            --interval 5s --keep-pages 30d --out my-run
    """
    from collectors.scrape.footprint import keep_small

    keep_small()
    from collectors.scrape.command import choices, collect

    chosen = choices(given)
    status = Status(told=not quiet, at_terminal=not quiet and not as_json)
    collector, interrupted = collect(chosen, status)
    status.clear()
    summary = summary_of(collector, chosen)
    if as_json:
        options.print_json(summary)
    for line in _lines(summary):
        say(line, quiet=quiet or as_json)
    context.exit(130 if interrupted else 0 if collector.counters.outcomes["ok"] else 1)


class Status:
    """A word when the first scrapes fail; at a terminal one line, overwritten now and then."""

    def __init__(self, *, told: bool, at_terminal: bool) -> None:
        import sys

        self.visible = at_terminal and sys.stderr.isatty()
        self._tell = told
        self._next, self._shown = 0.0, False

    def __call__(self, collector: "Collector") -> None:
        """Show what the collector did so far, at most every half second."""
        import time

        if self._tell:
            self._tell = False
            for outcome in collector.counters.outcomes.keys() - {"ok"}:
                say(f"the first scrape gave no samples ({outcome}); trying on")
        now = time.monotonic()
        if not self.visible:
            return
        if now < self._next:
            return
        self._next, self._shown = now + 0.5, True
        counters, seen = collector.counters, collector.now
        preemptions, usage = seen.get("num_preemptions"), seen.get("kv_cache_usage_frac")
        click.echo(
            f"\r\x1b[K{counters.scrapes} scrapes, {counters.failures} failed,"
            f" preemptions {'unknown' if preemptions is None else f'{preemptions:.0f}'},"
            f" KV cache {'unknown' if usage is None else f'{usage:.1%}'}",
            err=True,
            nl=False,
        )

    def clear(self) -> None:
        """Take the line off the terminal."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def summary_of(collector: "Collector", chosen: "Chosen") -> dict[str, Any]:
    """What was collected, for a machine."""
    counters = collector.counters
    last = collector.last_path
    return {
        "run": None if last is None else str(last),
        "runs": counters.runs,
        "scrapes": counters.scrapes,
        "outcomes": dict(sorted(counters.outcomes.items())),
        "skipped": counters.skipped,
        "page_bytes": counters.page_bytes,
        "written_bytes": counters.tally.written_bytes,
        "not_written": counters.tally.not_written,
        "problems": dict(sorted(counters.tally.problems.items())),
        "interval_us": chosen.settings.interval_us,
    }


def _lines(summary: dict[str, Any]) -> list[str]:
    failed = {k: v for k, v in summary["outcomes"].items() if k != "ok"}
    bad = ", ".join(f"{name}: {count}" for name, count in failed.items())
    lines = [
        f"{summary['scrapes']} scrapes, {summary['outcomes'].get('ok', 0)} with samples"
        + (f"; {bad}" if bad else "")
    ]
    if summary["skipped"]:
        lines.append(f"{summary['skipped']} left out: an earlier one took too long")
    for name, count in summary["problems"].items():
        lines.append(f"{name}: {count}; manifest.json and docs/collecting.md say more")
    lines.append("nothing was collected" if summary["run"] is None else f"run in {summary['run']}")
    return lines
