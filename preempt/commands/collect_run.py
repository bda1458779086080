"""`preempt collect run`: many engines from one file, for as long as the host is up."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands.options import PATH, as_json, print_json, quiet, say

if TYPE_CHECKING:
    from collectors.service.meters import State
    from collectors.service.settings import Settings, Target
    from collectors.service.supervise import Worker


@click.command("run")
@click.argument("config", type=PATH)
@click.option("--check", is_flag=True, help="Check CONFIG, say what it would do, and end.")
@click.option("--once", is_flag=True, help="Scrape every engine once, write, and end: for a timer.")
@quiet
@as_json
@click.pass_context
def run_command(
    context: click.Context, /, config: Path, check: bool, once: bool, quiet: bool, as_json: bool
) -> None:
    """Collect from every engine that CONFIG, a TOML file, names; docs/service.md has its keys.

    Each engine has runs of its own, in OUTPUT/TARGET/; a restart goes on with them. SIGTERM writes
    everything and ends, SIGHUP rereads CONFIG. How it goes is at http://127.0.0.1:9108: /metrics,
    /healthz. With --once the exit code is 1 where an engine gave no samples.

    \b
    Smallest CONFIG:
        [collect]
        output = "runs"
        [[targets]]
        name = "chat"
        url = "http://127.0.0.1:8000"
    """
    import os

    from collectors.service.service import run_once, run_service
    from collectors.service.settings import read_settings

    if check and once:
        raise click.UsageError("--check and --once are two different things.", context)
    if check:
        found = checked(read_settings(config), os.environ)
        if as_json:
            print_json(found)
        for line in _lines(found):
            say(line, quiet=quiet or as_json)
    elif once:
        workers, state = run_once(config, os.environ, say)
        found = scraped(workers, state)
        if as_json:
            print_json(found)
        for name, outcome in found["engines"].items():
            say(f"{name}: {outcome}", quiet=quiet or as_json)
        for name, why in found["unknown"].items():
            say(f"{name}: engines unknown: {why}", quiet=as_json)
        bad = any(outcome != "ok" for outcome in found["engines"].values())
        context.exit(1 if bad or found["unknown"] else 0)
    else:
        run_service(config, os.environ, lambda line: say(line, quiet=quiet))


def checked(settings: "Settings", environment: Any) -> dict[str, Any]:
    """What the configuration would do; files that it names and that are not there are an error."""
    from collectors.scrape.urls import urls_of

    targets = {}
    for target in settings.targets:
        credentials = target.credentials(environment)
        credentials.headers()
        if (target.url and urls_of(target.url).base.startswith("https:")) or target.ca_file:
            credentials.tls()
        targets[target.name] = _where(target)
    collect = settings.collect
    return {
        "output": str(collect.output),
        "interval_us": collect.interval_us,
        "timeout_us": collect.timeout_us,
        "keep_age_us": collect.keep_age_us,
        "keep_bytes": collect.keep_bytes,
        "listen": None if collect.listen is None else "{}:{}".format(*collect.listen),
        "targets": targets,
    }


def _where(target: "Target") -> str:
    from collectors.service.discover import file_sd_urls

    if target.url is not None:
        return f"the engine at {target.url}"
    if target.file_sd is not None:
        count = len(file_sd_urls(target.file_sd))
        return f"{count} engine{'s' * (count != 1)} now in {target.file_sd}"
    return f"every address of {target.dns}, port {target.port}, {target.scheme}"


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"{name}: {where}" for name, where in found["targets"].items()]
    keeps = [f"{found[key]} {unit}" for key, unit in _KEEPS if found[key] is not None]
    return [
        *lines,
        f"each scraped every {found['interval_us'] / 1_000_000:g} s into {found['output']}",
        f"kept: {', '.join(keeps) or 'everything'}",
        f"own metrics and health: {found['listen'] or 'off'}",
    ]


_KEEPS = (("keep_age_us", "us"), ("keep_bytes", "bytes"))


def scraped(workers: "list[Worker]", state: "State") -> dict[str, Any]:
    """What became of one scrape of each engine."""
    engines = {}
    for worker in workers:
        outcomes = worker.collector.counters.outcomes if worker.collector else {}
        name = f"{worker.job.instance.target}/{worker.job.instance.name}"
        engines[name] = worker.failed or next(iter(outcomes), "no scrape")
    return {"engines": engines, "unknown": dict(state.unknown), "deleted_runs": state.deleted_runs}
