"""`preempt workload`: look at workloads and shape them; thin over `replay.describe` and `shape`."""

import locale
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collectors.durations import duration_us
from preempt.commands import options
from preempt.commands.described import described
from preempt.commands.options import say
from preempt.commands.progress import progress_shown
from preempt.commands.workload_output import same_file, say_written, write_result
from replay.errors import InputError, OutputExists
from replay.strict import printable
from replay.workload_file import check_suffix

if TYPE_CHECKING:
    from replay.workload_frame import Batches

_out = click.option(
    "-o", "--output", "out", required=True, type=options.PATH, help="Workload file."
)


class _Factor(click.ParamType[Fraction]):
    """A factor such as 0.5 or 3/2, kept exactly."""

    name = "factor"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Fraction:
        if isinstance(value, Fraction):
            return value
        if re.fullmatch(r"[0-9]{1,7}(?:\.[0-9]{1,6})?(?:/[1-9][0-9]{0,6})?", value, re.ASCII):
            whole, _, below = value.partition("/")
            return Fraction(whole) / Fraction(below or 1)
        return self.fail("must be a number above 0, such as 0.5 or 3/2", param, ctx)


@click.group("workload")
def workload_group() -> None:
    """Look at workloads, and make new ones of them.

    Whatever is made says in its provenance what was done, and has another hash.
    """


@workload_group.command("describe", short_help="Requests, rate, lengths, KV demand, what is odd.")
@click.argument("path", metavar="WORKLOAD", type=options.PATH)
@click.option(
    "--tpot",
    default="20ms",
    show_default=True,
    help="Assumed time per output token, for the KV demand over time.",
)
@click.option(
    "--block-size", type=click.IntRange(1, 2**20), default=16, show_default=True, help="In tokens."
)
@options.max_requests
@options.as_json
def describe_command(
    *, path: Path, tpot: str, block_size: int, max_requests: int, as_json: bool
) -> None:
    """Requests, arrival rate, lengths, peak KV demand, ties, and what looks odd.

    The KV demand assumes that a request holds all its blocks from its arrival for --tpot times its
    output tokens: no engine was asked, and no queue is in it. Use preempt replay for more.

    \b
    Example:
      preempt workload describe conv.parquet --tpot 30ms --block-size 16
    """
    from replay.describe import Assumed, describe_workload

    assumed = Assumed(duration_us(tpot, "--tpot"), block_size)
    with progress_shown(quiet=as_json) as progress:
        progress.phase(f"{path}: reading")
        facts = describe_workload(_read(path, max_requests), assumed)
    if as_json:
        options.print_json(facts)
        return
    for line in described(facts, can_say=_can_say):
        click.echo(line)


@workload_group.command("slice", short_help="Keep what arrives in a stretch of time.")
@click.argument("path", metavar="WORKLOAD", type=options.PATH)
@_out
@click.option("--from", "start", metavar="DURATION", help="First arrival to keep, e.g. 10m.")
@click.option("--until", metavar="DURATION", help="Keep what arrives before this, e.g. 20m.")
@options.max_requests
@options.force
@options.quiet
@options.as_json
def slice_command(
    *, path: Path, out: Path, start: str | None, until: str | None, max_requests: int, **how: bool
) -> None:
    """Keep what arrives from --from on and before --until; the first then arrives at 0.

    To cut by number instead of time: --start and --count of preempt import.

    \b
    Example:
      preempt workload slice conv.parquet --from 10m --until 20m -o ten-minutes.parquet
    """
    from replay.shape import sliced

    from_us = duration_us(start, "--from", minimum_us=0) if start else 0
    until_us = duration_us(until, "--until") if until else None
    batches = _read(path, max_requests)
    _write(sliced(batches, _place(path), from_us=from_us, until_us=until_us), out, [path], how)


@workload_group.command("scale", short_help="Multiply arrivals and lengths.")
@click.argument("path", metavar="WORKLOAD", type=options.PATH)
@_out
@click.option("--time", type=_Factor(), default="1", help="Times arrivals: 0.5 is twice the load.")
@click.option("--prompt", type=_Factor(), default="1", help="Times prompt tokens.")
@click.option("--output-tokens", type=_Factor(), default="1", help="Times output tokens.")
@options.max_requests
@options.force
@options.quiet
@options.as_json
def scale_command(
    *,
    path: Path,
    out: Path,
    time: Fraction,
    prompt: Fraction,
    output_tokens: Fraction,
    max_requests: int,
    **how: bool,
) -> None:
    """Multiply arrivals (rounded down) and lengths (to the nearest, at least 1 token).

    A prompt that shrinks loses the prefix blocks beyond its end; one that grows shares no more.

    \b
    Example:
      preempt workload scale conv.parquet --time 1/2 -o twice-the-load.parquet
    """
    from replay.shape import scaled

    batches = _read(path, max_requests)
    found = scaled(batches, _place(path), time=time, prompt=prompt, output=output_tokens)
    _write(found, out, [path], how)


@workload_group.command("merge", short_help="All requests of several workloads by arrival.")
@click.argument("paths", metavar="WORKLOAD...", nargs=-1, required=True, type=options.PATH)
@_out
@click.option("--renumber", is_flag=True, help="Give new ids, in the order of arrival.")
@click.option(
    "--same-prefixes",
    is_flag=True,
    help="Equal prefix block ids in different workloads are equal text.",
)
@options.max_requests
@options.force
@options.quiet
@options.as_json
def merge_command(
    *,
    paths: tuple[Path, ...],
    out: Path,
    renumber: bool,
    same_prefixes: bool,
    max_requests: int,
    **how: bool,
) -> None:
    """All requests of several workloads by arrival, ties in the order of the arguments.

    \b
    Example:
      preempt workload merge conv.parquet code.parquet --renumber -o both.parquet
    """
    from replay.shape import merged

    if len(set(paths)) != len(paths):
        raise click.UsageError("A workload is named twice; preempt workload tile repeats one.")
    parts = {_place(path): _read(path, max_requests) for path in paths}
    found = merged(parts, renumber=renumber, same_prefixes=same_prefixes)
    _write(found, out, list(paths), how)


@workload_group.command("tile", short_help="Repeat a workload end to end.")
@click.argument("path", metavar="WORKLOAD", type=options.PATH)
@_out
@click.option("--times", required=True, type=click.IntRange(1, 10**6), help="Copies in all.")
@click.option(
    "--period",
    metavar="DURATION",
    help="From one copy's start to the next; by default the span and a mean gap.",
)
@click.option("--same-prefixes", is_flag=True, help="Copies bring the same text again.")
@options.max_requests
@options.force
@options.quiet
@options.as_json
def tile_command(
    *,
    path: Path,
    out: Path,
    times: int,
    period: str | None,
    same_prefixes: bool,
    max_requests: int,
    **how: bool,
) -> None:
    """Repeat a workload end to end, with new ids in the order of arrival.

    \b
    Example:
      preempt workload tile conv.parquet --times 10 -o ten-times.parquet
    """
    from replay.shape import tiled

    batches = _read(path, max_requests)
    if batches.requests * times > max_requests:
        rule = f"must make at most {max_requests} requests (--max-requests)"
        raise InputError(_place(path), "--times", rule, str(batches.requests * times))
    period_us = duration_us(period, "--period") if period else None
    found = tiled(batches, _place(path), times, period_us=period_us, same_prefixes=same_prefixes)
    _write(found, out, [path], how)


def _place(path: Path) -> str:
    return printable(str(path), 200)


def _read(path: Path, max_requests: int) -> "Batches":
    from replay.workload_frame import read_workload_batches

    return read_workload_batches(path, max_requests)


def _write(batches: "Batches", out: Path, read: list[Path], how: dict[str, bool]) -> None:
    from collectors.traces.result import ImportResult, attempts_beside

    check_suffix(out)
    if any(same_file(out, path) for path in read):
        raise OutputExists(f"{out}: is a file to be read; choose another path")
    with progress_shown(quiet=how["quiet"]) as progress:
        progress.phase(f"{out}: writing")
        summary = write_result(ImportResult(batches), out, force=how["force"])
    left = [str(path) for path in read if attempts_beside(path).is_file()]
    if left:
        say(f"attempts are not carried over: those of {', '.join(left)}", quiet=how["quiet"])
    say_written(summary, quiet=how["quiet"])
    if how["as_json"]:
        options.print_json(summary)


def _can_say(text: str) -> bool:
    """Whether standard output and the terminal's locale have these characters."""
    try:
        for encoding in (sys.stdout.encoding, locale.getencoding()):
            text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
