"""The half of `preempt import` that reads result files: a workload, measured runs, or both.

Thin over `collectors.results`; what is refused is refused before anything is written.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collectors.results import FORMATS
from preempt.commands.options import say
from replay.errors import InputError
from replay.strict import printable

if TYPE_CHECKING:
    from collectors.results.rows import Measured
    from collectors.results.runs import Written
    from collectors.traces.result import ImportResult

Write = Callable[["ImportResult"], dict[str, Any]]


def import_results(
    name: str,
    file: Path,
    *,
    run: Path | None,
    index: int | None,
    max_requests: int,
    write: Write | None,
    quiet: bool,
) -> dict[str, Any]:
    """Read FILE as the result file of a tool; `write` takes the workload, `run` is the directory.

    Gives what `--json` prints.
    """
    from collectors.results.runs import check_paths, write_runs

    found = FORMATS[name].read(file, max_requests)
    place = printable(str(file), 200)
    summary: dict[str, Any] = {}
    result = None
    chosen = _chosen(found, index, place, needed=write is not None)
    if write is not None:
        result = chosen.workload(place, max_requests)
    if run is not None:
        check_paths(run, len(found))
    if write is not None and result is not None:
        summary = write(result)
        say_notes(chosen.notes, quiet=quiet)
    if run is not None:
        written = write_runs(found, run)
        for one in written:
            say(_line(one), quiet=quiet)
            if write is None:
                say_notes(one.notes, quiet=quiet)
        summary["runs"] = [_told(one) for one in written]
    return summary


def say_notes(notes: tuple[str, ...], *, quiet: bool) -> None:
    """What a reader of the numbers must know, a line each."""
    for note in notes:
        say(f"  {note}", quiet=quiet)


def _chosen(found: "list[Measured]", index: int | None, place: str, *, needed: bool) -> "Measured":
    if index is None and len(found) > 1 and needed:
        rule = f"holds {len(found)} benchmarks: --index 1 to {len(found)} says which for --output"
        raise InputError(place, "", rule)
    if index is not None and index > len(found):
        raise click.UsageError(f"--index must be at most {len(found)}: so many FILE holds.")
    return found[(index or 1) - 1]


def _line(run: "Written") -> str:
    by_status = ", ".join(f"{n} {status}" for status, n in run.statuses.items())
    return f"{run.path}: requests: {by_status or 'none'}; without a row: {run.left_out_in_words}"


def _told(run: "Written") -> dict[str, Any]:
    return {
        "path": str(run.path),
        "run_id": run.run_id,
        "statuses": run.statuses,
        "left_out": run.left_out,
        "notes": list(run.notes),
    }
