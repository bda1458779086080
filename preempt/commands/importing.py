"""`preempt import`: a public trace, a result file or a collected run in, a workload file out.

Thin over `collectors.traces.FORMATS` and, by `import_results`, `collectors.results.FORMATS`;
malformed input raises `InputError` and writes nothing.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collectors.results import FORMATS as RESULTS
from collectors.traces import FORMATS
from preempt.commands import options
from preempt.commands.import_results import import_results
from preempt.commands.options import say
from replay.errors import InputError, OutputExists
from replay.output import new_file
from replay.strict import printable
from replay.workload_file import check_suffix

if TYPE_CHECKING:
    from collectors.traces.result import ImportResult

_RUN = "run"
_WITH_HASH_IDS = [name for name, one in FORMATS.items() if one.block_tokens]
_HELP = f"""Turn a public trace, a benchmark's result file or a collected run into a workload.

FORMAT says what FILE is; public traces and runs:

\b
{chr(10).join(f"  {name:<14} {one.line}" for name, one in FORMATS.items())}
  {_RUN:<14} a measured run, its directory (with manifest.json)

Result files, which carry measured latencies too:

\b
{chr(10).join(f"  {name:<14} {one.description}" for name, one in RESULTS.items())}

OUT ends in .parquet, .jsonl or .json. FILE may be - (standard input), except for a run. Requests
that cannot be replayed because they have no prompt or no output tokens are counted, and kept in
OUT's name with the ending .attempts.parquet. Any other row that breaks the format's rules is an
error that names its line, and nothing is written. --start and --count keep a window of the
requests, the first of them arriving at 0; the lab replays at most 64.

A format marked so was made from published rows: no whole file of it was at hand. --block-tokens
says of how many tokens the chunks of the hash ids are (mooncake 512, bailian 16).

Of a result file, --run DIR writes a measured run for load, sql and report, with or without -o; the
ids of its requests are the workload's. Latencies are kept where they mean what this project means
by them (the run's manifest says what the tool means), else null. Of a file that holds several
benchmarks --run makes DIR, DIR-2 and so on, and --index says which becomes the workload.

Of a run, --arrivals time (the default) takes what was offered, or else what was measured, by the
clock; --arrivals steps takes what reached one engine, each request arriving at the step that could
first schedule it: replay it with tick_us = 1.

\b
Examples:
  preempt import azure AzureLLMInferenceTrace_conv.csv -o conv.parquet
  preempt import azure AzureLLMInferenceTrace_conv.csv --count 64 -o lab.jsonl
  preempt import burstgpt BurstGPT_1.csv -o burst.parquet
  preempt import mooncake conversation_trace.jsonl -o mooncake.parquet
  preempt import bailian qwen_traceA_blksz_16.jsonl -o qwen.parquet
  preempt import timed-trace timed.jsonl -o timed.parquet
  preempt import vllm-bench result.json -o bench.parquet --run bench-run
  preempt import guidellm benchmarks.json --run guided
  preempt import run my-run --start 100 --count 500 -o part.jsonl
  preempt import run my-run --arrivals steps -o steps.parquet
"""


@click.command("import", help=_HELP, short_help="Traces, result files and runs to workloads.")
@click.argument("trace_format", metavar="FORMAT", type=click.Choice([*FORMATS, _RUN, *RESULTS]))
@click.argument("file", type=options.PATH)
@click.option("-o", "--output", "out", type=options.PATH, help="Workload file.")
@click.option(
    "--run", "run_out", type=options.PATH, help="Of a result file: run directory to create, too."
)
@click.option(
    "--index", type=click.IntRange(min=1), help="Of a result file: which benchmark, from 1."
)
@options.max_requests
@click.option("--start", type=click.IntRange(min=0), help="First request to keep, counted from 0.")
@click.option("--count", type=click.IntRange(min=1), help="How many requests to keep.")
@click.option(
    "--block-tokens", type=click.IntRange(min=1), help="Tokens of the chunk a hash id stands for."
)
@options.arrivals
@options.engine
@options.force
@options.quiet
@options.as_json
def import_command(
    *,
    trace_format: str,
    file: Path,
    out: Path | None,
    run_out: Path | None,
    index: int | None,
    max_requests: int,
    start: int | None,
    count: int | None,
    block_tokens: int | None,
    arrivals: str | None,
    engine: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Read FILE as FORMAT and write the workload to OUT."""
    of_runs = engine if arrivals is None else arrivals
    of_results = index if run_out is None else run_out
    _check_options(trace_format, file, out, of_results, block_tokens, of_runs)

    def write(result: "ImportResult") -> dict[str, Any]:
        assert out is not None  # noqa: S101 - or nobody calls it
        if trace_format != _RUN and (start is not None or count is not None):
            result = _window(result, file, start or 0, count)
        return _written(result, out, force=force, quiet=quiet)

    if trace_format in RESULTS:
        summary = import_results(
            trace_format,
            file,
            run=run_out,
            index=index,
            max_requests=max_requests,
            write=write if out is not None else None,
            quiet=quiet,
        )
    elif trace_format == _RUN:
        part = (start or 0, count)
        summary = write(_import_run(file, part, arrivals or "time", engine, max_requests))
    else:
        chunk = {} if block_tokens is None else {"block_tokens": block_tokens}
        summary = write(FORMATS[trace_format].read(file, max_requests, **chunk))
    if as_json:
        options.print_json(summary)


def _check_options(
    trace_format: str,
    file: Path,
    out: Path | None,
    of_results: object,
    of_hash_ids: object,
    of_runs: object,
) -> None:
    """Refuse options that go with another format, and an output that is the input."""
    if of_results is not None and trace_format not in RESULTS:
        raise click.UsageError(f"--run and --index go with FORMAT {', '.join(RESULTS)} only.")
    if out is None and not isinstance(of_results, Path):
        raise click.UsageError("Missing option '-o' / '--output'.")
    if out is not None:
        check_suffix(out)
        if same_file(out, file):
            raise OutputExists(f"{out}: is the file to be read; choose another path")
    if of_hash_ids is not None and trace_format not in _WITH_HASH_IDS:
        rule = f"--block-tokens goes with FORMAT {' or '.join(_WITH_HASH_IDS)} only."
        raise click.UsageError(rule)
    if of_runs is not None and trace_format != _RUN:
        raise click.UsageError("--arrivals and --engine go with FORMAT run only.")


def _window(result: "ImportResult", file: Path, start: int, count: int | None) -> "ImportResult":
    from replay.workload_frame import window_batches

    part = window_batches(result.batches, start, count, printable(str(file), 200))
    return replace(result, batches=part)


def _written(result: "ImportResult", out: Path, *, force: bool, quiet: bool) -> dict[str, Any]:
    """Write the workload and say so; what `--json` prints."""
    summary = write_result(result, out, force=force)
    say(summary_line(summary), quiet=quiet)
    return summary


def same_file(out: Path, file: Path) -> bool:
    """Whether the output is the input, by whatever name."""
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
) -> "ImportResult":
    from collectors.run import engine_of, read_run, run_workload
    from collectors.traces.result import ImportResult
    from replay.workload_frame import batches_of

    run = read_run(path)
    if engine is not None:
        engine = engine_of(run, engine)
    workload = run_workload(run, *part, arrivals=arrivals, engine=engine)
    if len(workload) > max_requests:
        rule = f"must hold at most {max_requests} requests"
        raise InputError(printable(str(path), 200), "", rule, f"{len(workload)}")
    return ImportResult(batches_of(workload))


def write_result(result: "ImportResult", out: Path, *, force: bool) -> dict[str, Any]:
    """Write the workload and its attempts, or neither; what there is to say of them."""
    from collectors.traces.result import ATTEMPTS_ENDING, attempts_beside, write_attempts
    from replay.workload_frame import write_workload_batches

    beside = attempts_beside(out)
    if out.name.endswith(ATTEMPTS_ENDING):
        raise OutputExists(f"{out}: ends as the attempts of a workload do; choose another name")
    if beside.exists():
        # Left by another import, it would pass for this workload's own.
        if not force:
            raise OutputExists(f"{beside}: exists; choose another path or pass --force")
        if not _is_attempts(beside):
            raise OutputExists(f"{beside}: is in the way, and holds no attempts; move it")
    with ExitStack() as stack:
        workload_file = stack.enter_context(new_file(out, force=force))
        if result.attempts.height:
            write_attempts(result, stack.enter_context(new_file(beside, force=force)))
        sums = write_workload_batches(result.batches, workload_file, out.suffix)
    if not result.attempts.height and beside.is_file():
        beside.unlink()
    return {
        "workload": str(out),
        "attempts_file": str(beside) if result.attempts.height else None,
        "requests": sums.requests,
        "attempts": _attempts(result),
        "prompt_tokens": sums.prompt_tokens,
        "output_tokens": sums.output_tokens,
        "workload_sha256": sums.sha256,
    }


def _is_attempts(path: Path) -> bool:
    from collectors.traces.result import ATTEMPTS_SCHEMA
    from replay.parquet import open_batches

    try:
        with open_batches(path) as (_, metadata, _, _):
            return metadata.get("schema") == ATTEMPTS_SCHEMA
    except InputError:
        return False


def summary_line(summary: Mapping[str, Any]) -> str:
    """One line on a workload that was written."""
    by_reason = ", ".join(f"{n} {reason}" for reason, n in summary["attempts"].items())
    return (
        f"{summary['workload']}: {summary['requests']} requests, attempts: {by_reason or 'none'}, "
        f"{summary['prompt_tokens']} prompt tokens, {summary['output_tokens']} output tokens, "
        f"workload_sha256 {summary['workload_sha256']}"
    )


def _attempts(result: "ImportResult") -> dict[str, int]:
    # Of a run its own tables keep the rows, so only its provenance counts them.
    provenance = result.batches.head.provenance or {}
    dropped = {reason: n for reason, n in provenance.get("dropped", {}).items() if n}
    return result.attempts_by_reason or dropped
