"""A drive that was sent becomes a whole run: at once, or later if it was killed.

Rows come from the driver's journal, samples from the pages it scraped, and what the engine did
from the recorder's spool, which can also be added later.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.drive.journal import read_journal
from collectors.drive.scrapes import JOURNAL_ENTRIES, settle, unsettled
from collectors.drive.store import Summary, finish_run
from collectors.writer import RunWriter
from replay.errors import InputError, OutputExists, ReplayError
from replay.workload import MAX_REQUESTS
from replay.workload_file import read_workload

if TYPE_CHECKING:
    from collectors.pack.batch import Packed

Told = Callable[[str], None]


@dataclass(frozen=True)
class Driven:
    """A finished drive; `spool_left` means that a spool was to be added, and none is yet."""

    run: Path
    summary: Summary
    stopped: str | None
    interrupted: bool
    packed: "Packed | None"
    spool_left: bool = False


def finish(run: Path, spool: Path | None, told: Told) -> Driven:
    """Make what a killed drive left a whole run; one that is whole is `OutputExists`."""
    with RunWriter.resume(run) as writer:
        manifest = writer.manifest
        place = run / "offered.jsonl"
        if manifest["kind"] != "driven" or not place.is_file():
            raise InputError(str(run), "", "must be the run of a drive")
        workload = read_workload(place, MAX_REQUESTS)
        settings = read_journal(run, len(workload)).settings
        left = settings.spool and spool is None and not manifest.get("recorder")
        if manifest["drain_end_us"] is not None and spool is None and not unsettled(run):
            more = f", but for its spool: {adding_spool(run)} adds that" if left else ""
            raise OutputExists(f"{run}: is finished already{more}")
        summary = finish_run(writer, workload)
    packed = complete(run, settings.interval_us, spool, told)
    return Driven(run, summary, None, interrupted=False, packed=packed, spool_left=left)


def adding_spool(run: Path, spool: Path | None = None) -> str:
    """The command that adds what the engine recorded to a driven run."""
    where = "DIR" if spool is None else shlex.quote(str(spool))
    return f"preempt collect drive --finish {shlex.quote(str(run))} --spool {where}"


def complete(run: Path, interval_us: int | None, spool: Path | None, told: Told) -> "Packed | None":
    """Read what was scraped, and add what the engine recorded; `told` hears of what takes long."""
    if interval_us is not None and (journals := unsettled(run)):
        if journals > 1:
            told(f"reading the pages that were scraped, some {journals * JOURNAL_ENTRIES}")
        settle(run, interval_us)
    if spool is None:
        return None
    from collectors.pack.batch import pack_spool

    try:
        (packed,) = pack_spool(spool, run)
    except ReplayError as exc:
        more = f"{run} is whole without it; later: {adding_spool(run, spool)}"
        raise ReplayError(f"{exc}; {more}") from exc
    return packed
