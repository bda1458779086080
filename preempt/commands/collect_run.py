"""`preempt collect run`: many engines from one file, for as long as the host is up."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands.options import PATH, as_json, print_json, quiet, say

if TYPE_CHECKING:
    from collectors.service.meters import State
    from collectors.service.settings import Settings
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
    /healthz; a line is logged when an engine begins, goes down or comes back, not once a scrape.
    With --once the exit code is 1 where an engine gave no samples.

    \b
    Smallest CONFIG:
        [collect]
        output = "runs"
        [[targets]]
        name = "chat"
        url = "http://127.0.0.1:8000"
    """
    import os

    from collectors.scrape.footprint import keep_small

    if check and once:
        raise click.UsageError("--check and --once are two different things.", context)
    keep_small()
    from collectors.service.service import run_once, run_service
    from collectors.service.settings import read_settings

    if check:
        found = checked(read_settings(config), str(config), os.environ)
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


def checked(settings: "Settings", place: str, environment: Any) -> dict[str, Any]:
    """What the configuration would do; whatever would not work is an `InputError`."""
    from collectors.service.check import check

    collect = settings.collect
    return {
        "targets": check(settings, place, environment),
        "output": str(collect.output),
        "interval_us": collect.interval_us,
        "timeout_us": collect.timeout_us,
        "keep_age_us": collect.keep_age_us,
        "keep_bytes": collect.keep_bytes,
        "listen": None if collect.listen is None else "{}:{}".format(*collect.listen),
    }


def _lines(found: dict[str, Any]) -> list[str]:
    from collectors.durations import duration_text, size_text

    age_us, size = found["keep_age_us"], found["keep_bytes"]
    keeps = [] if age_us is None else [duration_text(age_us)]
    keeps += [] if size is None else [size_text(size)]
    every, most = duration_text(found["interval_us"]), duration_text(found["timeout_us"])
    return [
        *(f"{name}: {where}" for name, where in found["targets"].items()),
        f"each scraped every {every}, within {most}, into {found['output']}",
        f"kept: {', at most '.join(keeps) or 'everything'}",
        f"own metrics and health: {found['listen'] or 'off'}",
    ]


def scraped(workers: "list[Worker]", state: "State") -> dict[str, Any]:
    """What became of one scrape of each engine."""
    engines = {}
    for worker in workers:
        outcomes = worker.collector.counters.outcomes if worker.collector else {}
        name = f"{worker.job.instance.target}/{worker.job.instance.name}"
        engines[name] = worker.failed or next(iter(outcomes), "no scrape")
    return {"engines": engines, "unknown": dict(state.unknown), "deleted_runs": state.deleted_runs}
