"""`preempt collect drive`: a workload is offered to an engine, and becomes a driven run."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands import options
from preempt.commands.options import say

if TYPE_CHECKING:
    from collectors.drive.command import Chosen
    from collectors.drive.finish import Driven, Told
    from collectors.drive.loop import Driver
    from replay.workload import Workload

_REFUSED, _INTERRUPTED = 1, 130
_LEAST_PATIENCE_US = 1_000_000
_LINE_US = 30_000_000
_PLACE = ("side", "pair", "order", "arrival_seed", "own_server")


_SETTINGS = (
    click.option("--model", help="Model to ask for; left out, the first that the server lists."),
    click.option("--speed", default="1", show_default=True, help="Factor on the arrivals' pace."),
    click.option("--max-gap", help="Cut longer pauses between arrivals to this, before --speed."),
    click.option(
        "--concurrency", type=click.IntRange(min=1), help="Most requests in flight: a closed loop."
    ),
    click.option(
        "--token-ids",
        default="100:1000",
        show_default=True,
        help="Token ids that prompts are made of, LOW:HIGH, without HIGH.",
    ),
    click.option(
        "--lateness-limit", default="50ms", show_default=True, help="What counts as late."
    ),
    click.option(
        "--timeout",
        "--abort-after",
        default="10m",
        show_default=True,
        help="Abort a request after this time.",
    ),
    click.option(
        "--drain",
        default="30s",
        show_default=True,
        help="After a signal, wait this long for what is in flight.",
    ),
    click.option(
        "--give-up-after",
        default="5m",
        show_default=True,
        help="Stop when no token came on any request for this time, or: never.",
    ),
    click.option("--interval", default="1s", show_default=True, help="Scrape /metrics, or: off."),
    click.option(
        "--api-key-file", type=options.PATH, help="File with the key; else OPENAI_API_KEY, if set."
    ),
    click.option(
        "--ca-file", type=options.PATH, help="Certificates (PEM) the server is checked by."
    ),
    click.option("--cert-file", type=options.PATH, help="Client certificate (PEM)."),
    click.option("--key-file", type=options.PATH, help="Its key (PEM), if it is in another file."),
)


def settings(command: Callable[..., None]) -> Callable[..., None]:
    """What every drive can be told of how requests are sent."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


@click.command("drive")
@click.argument("workload", type=options.PATH, required=False)
@click.option("--url", help="The server's address, e.g. http://127.0.0.1:8000.")
@click.option("--out", type=options.PATH, help="Run directory to create.")
@click.option(
    "--token-seed",
    type=click.IntRange(0, 2**53 - 1),
    default=0,
    show_default=True,
    help="Seed of the prompts' tokens.",
)
@settings
@click.option("--spool", type=options.PATH, help="Add what this recorder's spool has of the run.")
@click.option("--side", type=click.Choice(["baseline", "candidate"]), help="Of a comparison.")
@click.option("--pair", type=click.IntRange(min=0), help="Which pair of it, from 0.")
@click.option("--order", type=click.IntRange(min=0), help="Place in the order of its runs.")
@click.option("--arrival-seed", type=click.IntRange(min=0), help="Seed the arrivals came from.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what would be sent, and send nothing; --url is only asked what it can take.",
)
@click.option("--finish", type=options.PATH, metavar="RUN", help="Complete a killed drive's run.")
@options.quiet
@options.as_json
@click.pass_context
def drive_command(
    context: click.Context,
    /,
    workload: Path | None,
    finish: Path | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Offer WORKLOAD to an OpenAI-compatible completion endpoint, as it would have arrived.

    Every request is sent when it is due, whatever became of earlier ones; --concurrency makes it
    wait while so many are in flight. Prompts are lists of token ids made from the workload and
    --token-seed, with shared prefixes exactly where the workload has them; lengths are exact.
    The run has one row for each request offered, whatever became of it. A client that sent more
    than 1 % of them later than --lateness-limit says so, in the manifest, too.

    SIGTERM and Ctrl-C stop sending, wait --drain for what is in flight, write the run and exit
    130; a second one does not wait. Where the server is gone (--give-up-after), or the first five
    requests fail alike, the drive stops, writes the run and exits 1. What a killed drive left,
    --finish RUN makes a whole run.

    An API key comes from --api-key-file, or else from the environment variable OPENAI_API_KEY. It
    appears in no file, message or process title.

    \b
    Examples:
        preempt collect drive conv.parquet --url http://127.0.0.1:8000 --out base-0 \\
            --side baseline --pair 0 --order 0
        preempt collect drive conv.parquet --speed 2.2 --max-gap 10s --dry-run
        preempt collect drive --finish base-0
    """

    def told(line: str) -> None:
        say(line, quiet=quiet or as_json)

    if finish is not None:
        from collectors.drive.finish import finish as finish_run

        if workload is not None or dry_run:
            raise click.UsageError("--finish takes neither WORKLOAD nor --dry-run.")
        driven = finish_run(finish, given["spool"], told)
        report(driven, quiet=quiet, as_json=as_json)
        return
    if workload is None:
        raise click.UsageError("Missing argument 'WORKLOAD'.")
    if dry_run:
        _dry_run(workload, given, quiet=quiet, as_json=as_json)
        return
    for name in ("url", "out"):
        if given[name] is None:
            raise click.UsageError(f"Missing option '--{name}'.")
    from replay.workload_file import read_workload

    driven = driven_of(chosen_of(read_workload(workload), given), told, quiet=quiet)
    report(driven, quiet=quiet, as_json=as_json)
    refused = driven.stopped is not None and not driven.interrupted
    context.exit(_INTERRUPTED if driven.interrupted else _REFUSED if refused else 0)


def driven_of(chosen: "Chosen", told: "Told", *, quiet: bool) -> "Driven":
    """Drive, and show how it goes; `told` hears of what takes long."""
    from collectors.drive.command import drive

    status = Status(len(chosen.plan.workload), chosen.plan.due_us[-1])
    try:
        return drive(chosen, None if quiet else status, status.before(say), status.before(told))
    finally:
        status.clear()


def _plan(read: "Workload", given: dict[str, Any]) -> Any:
    from collectors.drive.schedule import Plan, scheduled, speed_of
    from collectors.durations import duration_us

    speed = speed_of(given["speed"])
    cut = given["max_gap"]
    max_gap_us = None if cut is None else duration_us(cut, "--max-gap")
    return Plan(scheduled(read, speed, max_gap_us)), speed, max_gap_us


def chosen_of(workload: "Workload", given: dict[str, Any]) -> "Chosen":
    """One drive, as its options say it."""
    from collectors.drive.command import Chosen, credentials_of, endpoint_urls
    from collectors.drive.journal import Settings
    from collectors.drive.prompts import token_ids
    from collectors.durations import duration_us

    interval = given["interval"]
    urls, ids = endpoint_urls(given["url"]), token_ids(given["token_ids"])
    plan, speed, max_gap_us = _plan(workload, given)
    settings = Settings(
        speed=str(speed),
        max_gap_us=max_gap_us,
        concurrency=given["concurrency"],
        token_seed=given["token_seed"],
        lateness_limit_us=duration_us(given["lateness_limit"], "--lateness-limit"),
        timeout_us=duration_us(given["timeout"], "--timeout"),
        interval_us=None if interval == "off" else duration_us(interval, "--interval", "", 10_000),
        spool=given["spool"] is not None,
    )
    patience = given["give_up_after"]
    return Chosen(
        plan=plan,
        urls=urls,
        credentials=credentials_of(given["api_key_file"], given),
        model=given["model"],
        out=given["out"],
        settings=settings,
        ids=ids,
        drain_us=duration_us(given["drain"], "--drain", "", 0),
        give_up_us=None
        if patience == "never"
        else duration_us(patience, "--give-up-after", "", _LEAST_PATIENCE_US),
        comparison={name: given[name] for name in _PLACE if name in given},
        spool=given["spool"],
    )


def _dry_run(workload: Path, given: dict[str, Any], *, quiet: bool, as_json: bool) -> None:
    from collectors.drive.prompts import token_ids
    from replay.workload_file import read_workload

    token_ids(given["token_ids"])
    planned = _plan(read_workload(workload), given)[0]
    plan, warning = planned.summary(), None
    if given["url"] is not None:
        from collectors.drive.command import ask, credentials_of, endpoint_urls, refused_for_length

        urls = endpoint_urls(given["url"])
        engine = ask(urls, credentials_of(given["api_key_file"], given), given["model"])
        over = engine.too_long(planned.workload.requests)
        plan |= {"max_model_len": engine.max_model_len, "longer_than_max_model_len": over}
        warning = refused_for_length(planned.workload, engine)
    if as_json:
        options.print_json(plan)
    overlap = plan["in_flight_if_each_took_us"]
    for line in (
        f"{plan['requests']} requests, {plan['prompt_tokens']} prompt tokens,"
        f" {plan['output_tokens']} output tokens; the longest has"
        f" {plan['longest_request_tokens']} in all",
        f"first at {plan['first_due_us'] / 1e6:.3f} s, last at {plan['duration_us'] / 1e6:.3f} s",
        f"at most {overlap['1000000']} within a second and {overlap['10000000']} within ten: so"
        " many are in flight together if each takes that long",
        *([warning] if warning else []),
        f"workload_sha256 {plan['workload_sha256']}; nothing was sent",
    ):
        say(line, quiet=quiet or as_json)


class Status:
    """How it goes: at a terminal one line, overwritten now and then, elsewhere one every 30 s."""

    def __init__(self, requests: int, duration_us: int) -> None:
        import sys

        self._at_terminal = sys.stderr.isatty()
        self._requests, self._duration_us, self._shown = requests, duration_us, False
        self._next_us = _LINE_US

    def __call__(self, driver: "Driver") -> None:
        """Show what was sent and what came of it."""
        now_us = driver.now_us()
        if self._at_terminal:
            self._shown = True
            line = self._line(driver, now_us)[: shutil.get_terminal_size().columns - 1]
            click.echo(f"\r\x1b[K{line}", err=True, nl=False)
        elif now_us >= self._next_us:
            self._next_us = now_us + _LINE_US
            say(f"{now_us // 1_000_000} s: {self._line(driver, now_us)}")

    def _line(self, driver: "Driver", now_us: int) -> str:
        counters = driver.counters
        failed = counters.done - counters.statuses["ok"]
        left_s = (self._duration_us - now_us) // 1_000_000
        if counters.sent == self._requests:
            to_go = "all sent"
        else:
            to_go = f"last in {left_s} s" if left_s >= 0 else f"last due {-left_s} s ago"
        return (
            f"{counters.sent} of {self._requests} sent, {driver.in_flight} open,"
            f" {counters.done} finished ({failed} failed), {counters.late} late, {to_go}"
        )

    def before(self, told: "Told") -> "Told":
        """The same, after the line is taken off."""

        def telling(line: str) -> None:
            self.clear()
            told(line)

        return telling

    def clear(self) -> None:
        """Take the line off the terminal."""
        if self._shown:
            self._shown = False
            click.echo("\r\x1b[K", err=True, nl=False)


def report(driven: "Driven", *, quiet: bool, as_json: bool) -> None:
    """Say what became of a drive."""
    from dataclasses import asdict

    summary = driven.summary
    if as_json:
        options.print_json(
            asdict(summary)
            | {
                "run": str(driven.run),
                "packed": driven.packed is not None,
                "spool_left": driven.spool_left,
            }
        )
    statuses = ", ".join(f"{count} {name}" for name, count in summary.statuses.items())
    lines = [f"{summary.requests} requests: {statuses}"]
    if summary.problems:
        lines.append(", ".join(f"{name}: {n}" for name, n in summary.problems.items()))
    lines.append(
        f"{summary.prompt_tokens} prompt tokens, {summary.generated_tokens} generated;"
        f" latest send {summary.max_lateness_us} us late"
    )
    lines += summary.notes
    if driven.packed is not None:
        lines.append(f"{driven.packed.preemptions} preemptions recorded in the engine")
    for line in lines:
        say(line, quiet=quiet or as_json)
    if summary.behind:
        say("the client fell behind: latencies include its own backlog", quiet=as_json)
    if driven.spool_left:
        from collectors.drive.finish import adding_spool

        added = adding_spool(driven.run)
        say(f"what the engine recorded is not in it yet: {added}", quiet=as_json)
    say(f"run in {driven.run}", quiet=quiet or as_json)
