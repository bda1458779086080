"""The half of `preempt import` that reads result files: a workload, measured runs, or both.

Thin over `collectors.results`; what is refused is refused before anything is written.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands.import_asked import Asked
from preempt.commands.options import say
from replay.errors import InputError

if TYPE_CHECKING:
    from collectors.results.rows import Measured
    from collectors.results.runs import Written
    from collectors.traces.result import ImportResult


def import_results(
    found: "list[Measured]", asked: Asked, *, run: Path | None, index: int | None
) -> dict[str, Any]:
    """Write the workload of a benchmark, and the runs of all or of the one `index` chooses.

    Gives what `--json` prints. Where no request ended well there is no workload, and that is an
    error unless there is a run, which has them all.
    """
    from collectors.results.runs import check_paths

    found = found if index is None else [_chosen(found, index)]
    result = None if asked.out is None else _workload(found, asked, needed=run is None)
    if run is not None:
        check_paths(run, len(found))
    summary: dict[str, Any] = {}
    if result is not None:
        summary |= asked.write(result)
        _say_notes(found[0].notes, quiet=asked.quiet)
    elif asked.out is not None:
        told = "not written: no request ended well with a prompt and an output; the run has all"
        say(f"{asked.out}: {told}", quiet=asked.quiet)
        summary["workload"] = None
    if run is not None:
        summary["runs"] = _runs(found, run, asked, with_notes=result is None)
    return summary


def _chosen(found: "list[Measured]", index: int) -> "Measured":
    if index > len(found):
        rule = f"--index must be at most {len(found)}: so many FILE holds."
        raise click.UsageError(rule, click.get_current_context())
    return found[index - 1]


def _workload(found: "list[Measured]", asked: Asked, *, needed: bool) -> "ImportResult | None":
    """What is to be written of the one benchmark; None if it has nothing and needs not have."""
    from collectors.results.runs import replayable

    if len(found) > 1:
        rule = f"holds {len(found)} benchmarks: --index 1 to {len(found)} says which"
        raise InputError(asked.place, "", rule)
    if not needed and not replayable(found[0]):
        return None
    return asked.cut(found[0].workload(asked.place, asked.max_requests))


def _runs(
    found: "list[Measured]", run: Path, asked: Asked, *, with_notes: bool
) -> list[dict[str, Any]]:
    from collectors.results.runs import write_runs

    written = write_runs(found, run)
    for one in written:
        say(_line(one), quiet=asked.quiet)
        if with_notes:
            _say_notes(one.notes, quiet=asked.quiet)
    if asked.windowed:
        say("  all requests: --start and --count cut the workload only", quiet=asked.quiet)
    return [_told(one) for one in written]


def _say_notes(notes: tuple[str, ...], *, quiet: bool) -> None:
    """What a reader of the numbers must know, a line each."""
    for note in notes:
        say(f"  {note}", quiet=quiet)


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
