"""Writes a workload with its attempts, and says so: import, sanitize and the workload tools do."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preempt.commands.options import say
from replay.errors import InputError, OutputExists
from replay.output import new_file

if TYPE_CHECKING:
    from collectors.traces.result import ImportResult

# As SPDX calls licences; "the measurer's own" is none.
_LICENSE = re.compile(r"[A-Za-z0-9.+-]{1,64}")


def same_file(out: Path, file: Path) -> bool:
    """Whether the output is the input, by whatever name."""
    try:
        return out.samefile(file)
    except OSError:  # one of them does not exist, the usual case
        return False


def write_result(result: "ImportResult", out: Path, *, force: bool) -> dict[str, Any]:
    """Write the workload and its attempts, or neither; what there is to say of them.

    `license_left_out`: the source has a licence, and the form of `out` no place for it.
    """
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
        "license_left_out": out.suffix == ".jsonl" and _licensed(result.batches.head.provenance),
    }


def say_written(summary: Mapping[str, Any], *, quiet: bool) -> None:
    """Say what was written, and what its form has no place for."""
    by_reason = ", ".join(f"{n} {reason}" for reason, n in summary["attempts"].items())
    say(
        f"{summary['workload']}: {summary['requests']} requests, attempts: {by_reason or 'none'}, "
        f"{summary['prompt_tokens']} prompt tokens, {summary['output_tokens']} output tokens, "
        f"workload_sha256 {summary['workload_sha256']}",
        quiet=quiet,
    )
    if summary["license_left_out"]:
        told = "left out: provenance, with the source's licence and attribution"
        say(f"  {told} (.parquet and .json hold it)", quiet=quiet)


def _is_attempts(path: Path) -> bool:
    from collectors.traces.result import ATTEMPTS_SCHEMA
    from replay.parquet import open_batches

    try:
        with open_batches(path) as (_, metadata, _, _):
            return metadata.get("schema") == ATTEMPTS_SCHEMA
    except InputError:
        return False


def _attempts(result: "ImportResult") -> dict[str, int]:
    # Of a run its own tables keep the rows, so only its provenance counts them.
    provenance = result.batches.head.provenance or {}
    dropped = {reason: n for reason, n in provenance.get("dropped", {}).items() if n}
    return result.attempts_by_reason or dropped


def _licensed(told: object) -> bool:
    """Whether a provenance names a licence, its own or one of the workloads that were merged."""
    if isinstance(told, Mapping):
        name = told.get("license")
        own = isinstance(name, str) and _LICENSE.fullmatch(name) is not None
        return own or any(map(_licensed, told.values()))
    return isinstance(told, list) and any(map(_licensed, told))
