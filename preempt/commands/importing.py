"""`preempt import`: a public trace or a collected run in, a workload file out.

Thin over `collectors.traces.FORMATS`; malformed input raises `InputError` and writes nothing.
"""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from collectors.traces import FORMATS, ImportResult, write_attempts
from preempt.commands import options
from preempt.commands.options import say
from replay.errors import InputError, OutputExists
from replay.output import new_file
from replay.strict import printable
from replay.workload import MAX_REQUESTS, window
from replay.workload_file import check_suffix, write_workload

_RUN = "run"
_HELP = f"""Turn a public trace or a collected run into a workload.

FORMAT says what FILE is:

\b
{chr(10).join(f"  {name:<9} {importer.description}" for name, importer in FORMATS.items())}
  {_RUN:<9} a measured run, its directory (with manifest.json)

OUT ends in .parquet, .jsonl or .json. FILE may be - (standard input), except for a run. Requests
that cannot be replayed because they have no prompt or no output tokens are counted, and kept in
OUT's name with the ending .attempts.parquet. Any other row that breaks the format's rules is an
error that names its line, and nothing is written. --start and --count keep a window of the
requests, the first of them arriving at 0; the lab replays at most 64.

Of a run, --arrivals time (the default) takes what was offered, or else what was measured, by the
clock; --arrivals steps takes what reached one engine, each request arriving at the step that could
first schedule it: replay it with tick_us = 1.

\b
Examples:
  preempt import azure AzureLLMInferenceTrace_conv.csv -o conv.parquet
  preempt import azure AzureLLMInferenceTrace_conv.csv --count 64 -o lab.jsonl
  preempt import mooncake conversation_trace.jsonl -o mooncake.parquet
  preempt import run my-run --start 100 --count 500 -o part.jsonl
  preempt import run my-run --arrivals steps -o steps.parquet
"""


@click.command("import", help=_HELP, short_help="Public traces and collected runs to workloads.")
@click.argument("trace_format", metavar="FORMAT", type=click.Choice([*FORMATS, _RUN]))
@click.argument("file", type=options.PATH)
@click.option("-o", "--output", "out", required=True, type=options.PATH, help="Workload file.")
@click.option(
    "--max-requests",
    type=click.IntRange(min=1),
    default=MAX_REQUESTS,
    show_default=True,
    help="Refuse a file with more rows.",
)
@click.option("--start", type=click.IntRange(min=0), help="First request to keep, counted from 0.")
@click.option("--count", type=click.IntRange(min=1), help="How many requests to keep.")
@options.arrivals
@options.engine
@options.force
@options.quiet
@options.as_json
def import_command(
    *,
    trace_format: str,
    file: Path,
    out: Path,
    max_requests: int,
    start: int | None,
    count: int | None,
    arrivals: str | None,
    engine: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Read FILE as FORMAT and write the workload to OUT."""
    check_suffix(out)
    if _same_file(out, file):
        raise OutputExists(f"{out}: is the file to be read; choose another path")
    if trace_format == _RUN:
        result = _import_run(file, (start or 0, count), arrivals or "time", engine, max_requests)
    else:
        if arrivals is not None or engine is not None:
            raise click.UsageError("--arrivals and --engine go with FORMAT run only.")
        result = FORMATS[trace_format].read(file, max_requests)
        if start is not None or count is not None:
            part = window(result.workload, start or 0, count, printable(str(file), 200))
            result = replace(result, workload=part)
    attempts_file = _write(result, out, force=force)
    summary = _summary(result, _attempts(result))
    say(f"{out}: {_summary_line(summary)}", quiet=quiet)
    if as_json:
        files = {"workload": str(out), "attempts_file": attempts_file and str(attempts_file)}
        options.print_json(summary | files)


def _same_file(out: Path, file: Path) -> bool:
    try:
        return out.samefile(file)
    except OSError:  # one of them does not exist, the usual case
        return False


def _import_run(
    path: Path,
    part: tuple[int, int | None],
    arrivals: str,
    engine: int | None,
    max_requests: int,
) -> ImportResult:
    from collectors.run import engine_of, read_run, run_workload

    run = read_run(path)
    if engine is not None:
        engine = engine_of(run, engine)
    workload = run_workload(run, *part, arrivals=arrivals, engine=engine)
    if len(workload) > max_requests:
        rule = f"must hold at most {max_requests} requests"
        raise InputError(printable(str(path), 200), "", rule, f"{len(workload)}")
    return ImportResult(workload)


def _write(result: ImportResult, out: Path, *, force: bool) -> Path | None:
    """Write both files or none; the path of the attempts file if there is one."""
    beside = out.with_name(f"{out.stem}.attempts.parquet")
    if beside.exists() and not force:
        # Left by another import, it would pass for this workload's own.
        raise OutputExists(f"{beside}: exists; choose another path or pass --force")
    with ExitStack() as stack:
        workload_file = stack.enter_context(new_file(out, force=force))
        if result.attempts:
            write_attempts(result, stack.enter_context(new_file(beside, force=force)))
        write_workload(result.workload, workload_file, out.suffix)
    if result.attempts:
        return beside
    if beside.is_file():
        beside.unlink()
    return None


def _attempts(result: ImportResult) -> dict[str, int]:
    # Of a run its own tables keep the rows, so only its provenance counts them.
    provenance = result.workload.provenance or {}
    dropped = {reason: n for reason, n in provenance.get("dropped", {}).items() if n}
    return result.attempts_by_reason or dropped


def _summary(result: ImportResult, attempts: dict[str, int]) -> dict[str, Any]:
    requests = result.workload.requests
    return {
        "requests": len(requests),
        "attempts": attempts,
        "prompt_tokens": sum(r.prompt_tokens for r in requests),
        "output_tokens": sum(r.output_tokens for r in requests),
        "workload_sha256": result.workload.sha256,
    }


def _summary_line(summary: dict[str, Any]) -> str:
    by_reason = ", ".join(f"{n} {reason}" for reason, n in summary["attempts"].items())
    return (
        f"{summary['requests']} requests, attempts: {by_reason or 'none'}, "
        f"{summary['prompt_tokens']} prompt tokens, {summary['output_tokens']} output tokens, "
        f"workload_sha256 {summary['workload_sha256']}"
    )
