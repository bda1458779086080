"""`preempt export`: a workload in, the input of somebody else's replayer out.

Thin over `collectors.exports`; whatever their format has no place for is named on standard error.
"""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collectors.exports import FORMATS
from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.workload_output import same_file
from replay.errors import InputError, OutputExists
from replay.output import new_file
from replay.strict import printable

if TYPE_CHECKING:
    from collectors.exports.hash_ids import Exported

_SUFFIX = ".jsonl"
_HELP = f"""Write a workload for another replayer.

FORMAT says whose:

\b
{chr(10).join(f"  {name:<10} {form.description}" for name, form in FORMATS.items())}

WORKLOAD is a workload file (.parquet, .jsonl or .json); OUT ends in .jsonl and has one line for
each request, in the workload's order. Every arrival and length is kept, and which chunks of prompts
are equal; chunks the workload says nothing about get hash ids that occur once. Request ids,
priorities, tenants, name and provenance have no place there: what is lost is named on standard
error. For vllm-bench the command to run is printed.

\b
Examples:
  preempt export mooncake azure.parquet -o azure-mooncake.jsonl --round-ms
  preempt export vllm-bench mooncake.parquet -o timed.jsonl
"""


@click.command("export", help=_HELP, short_help="Workloads for other people's replayers.")
@click.argument("trace_format", metavar="FORMAT", type=click.Choice([*FORMATS]))
@click.argument("workload", type=options.PATH)
@click.option("-o", "--output", "out", required=True, type=options.PATH, help="A .jsonl file.")
@click.option(
    "--round-ms",
    is_flag=True,
    help="Of mooncake: round arrivals down to whole milliseconds, and say how many changed.",
)
@click.option(
    "--block-tokens",
    type=click.IntRange(min=1),
    help="Tokens of the chunk a hash id stands for, if the workload has no prefix blocks of its"
    " own: 512 for mooncake, 16 for vllm-bench.",
)
@options.max_requests
@options.force
@options.quiet
@options.as_json
def export_command(
    *,
    trace_format: str,
    workload: Path,
    out: Path,
    round_ms: bool,
    block_tokens: int | None,
    max_requests: int,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write WORKLOAD to OUT as FORMAT."""
    from collectors.exports.hash_ids import look, write
    from replay.workload_frame import read_workload_batches

    form = FORMATS[trace_format]
    if round_ms and form.unit_us == 1:
        raise click.UsageError("--round-ms goes with FORMAT mooncake only.")
    if out.suffix != _SUFFIX:
        raise InputError(printable(str(out), 200), "", f"must end in {_SUFFIX}")
    if same_file(out, workload):
        raise OutputExists(f"{out}: is the file to be read; choose another path")
    place = printable(str(workload), 200)
    with new_file(out, force=force) as file:
        batches = read_workload_batches(workload, max_requests)
        found = look(batches, form, place, block_tokens)
        if found.rounded and not round_ms:
            rule = "must be whole milliseconds; --round-ms rounds them down"
            raise InputError(place, "arrival_us", rule, f"{found.rounded} that are not")
        write(batches, form, found, file)
    run = _command(out, found) if trace_format == "vllm-bench" else None
    for line in (_summary_line(out, found), *_losses(found), *([] if run is None else [run])):
        say(line, quiet=quiet)
    if as_json:
        options.print_json(_summary(out, found, run))


def _summary_line(out: Path, found: "Exported") -> str:
    return (
        f"{out}: {found.requests} requests, {found.prompt_tokens} prompt tokens, "
        f"{found.output_tokens} output tokens, {found.hash_ids} hash ids of {found.block_tokens}"
        f" tokens ({found.fresh_hash_ids} of them new), workload_sha256 {found.workload_sha256}"
    )


def _losses(found: "Exported") -> list[str]:
    """What somebody who replays the file should know is not in it."""
    lost = ["request ids", "name and provenance (its licence and attribution too)"]
    if found.with_priority:
        lost.append(f"the priority of {found.with_priority} requests")
    if found.with_tenant:
        lost.append(f"the tenant of {found.with_tenant} requests")
    told = [f"left out: {', '.join(lost)}"]
    if found.rounded:
        told.append(f"rounded down to whole milliseconds: {found.rounded} arrivals")
    return told


def _command(out: Path, found: "Exported") -> str:
    """The replay, on one line; a fixed hash seed makes the same prompts in every process."""
    return (
        "PYTHONHASHSEED=0 vllm bench serve --backend vllm --base-url http://127.0.0.1:8000"
        f" --model MODEL --dataset-name timed_trace --dataset-path {shlex.quote(str(out))}"
        f" --timed-trace-chunk-hash-size {found.block_tokens} --timed-trace-sec-multiplier 1"
        f" --num-prompts {found.requests} --ignore-eos --save-result --save-detailed"
    )


def _summary(out: Path, found: "Exported", run: str | None) -> dict[str, Any]:
    told = asdict(found)
    del told["first_fresh"]
    return told | {"file": str(out), "command": run}
