"""Windows of live traffic: the same stretches of the clock on both sides of a random split.

Nobody can offer a live canary the baseline's requests again, so a pair is a window: what arrived
at either side between the same two moments. Windows begin where the last run begins, the warm-up
behind it, and follow each other; one is whole if every run began before it and was observed for
`follow_up_us` behind it. A side may have several runs (replicas): a window is of all of them.
Clocks of hosts are taken to agree; what they are apart has to be small beside a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.gate.comparability import Comparability, Difference, GateRun, RunValue
from analysis.gate.contract import Design
from analysis.gate.evidence import Row, by_run, rows, slice_rows, units
from analysis.gate.predicates.common import SIDES, count, of_side
from analysis.gate.validity import Objection
from analysis.gate.verdict import RunSummary

if TYPE_CHECKING:
    import duckdb

_START = "start"


@dataclass(frozen=True)
class Windows:
    """How live runs were cut: `whole` windows there are, of which the first `judged` count.

    `units` are those in report order, the baseline's before the candidate's; `runs` are the runs
    cut to them.
    """

    whole: int
    judged: int
    units: tuple[GateRun, ...]
    runs: tuple[GateRun, ...]


def require_start(compared: Comparability, runs: Sequence[GateRun]) -> Comparability:
    """Refusal of runs that no clock places, added to what else is found."""
    if all(run.start_us is not None for run in runs):
        return compared
    values = tuple(RunValue(r.run_id, r.side, r.value(_START)) for r in runs)
    return replace(
        compared, key=None, differing=(*compared.differing, Difference(_START, "unknown", values))
    )


def cut(runs: Sequence[GateRun], design: Design) -> Windows:
    """Windows of runs whose start is known; none where the end of one is not."""
    starts = [run.start_us for run in runs if run.start_us is not None]
    ends = [run.value("drain_end_us") for run in runs]
    width = design.window_us or 0
    if not runs or not width or len(starts) < len(runs) or None in ends:
        return Windows(0, 0, (), ())
    begin = max(starts) + design.warmup_us
    end = min(s + e for s, e in zip(starts, ends, strict=True)) - design.follow_up_us
    whole = max(0, (end + 1 - begin) // width)
    judged = min(whole, design.most_pairs)
    units = tuple(
        _unit(of_side(runs, side), side, k, begin + k * width, width)
        for k in range(judged)
        for side in SIDES
    )
    spans = tuple(replace(r, parts=(_part(r, begin, judged * width),)) for r in runs)
    return Windows(whole, judged, units, spans if judged else ())


def summaries(
    db: "duckdb.DuckDBPyConnection", windows: Windows, design: Design
) -> tuple[RunSummary, ...]:
    """What became of the requests of each window; offered is what was recorded."""
    found = by_run(slice_rows(db, "window_counts", None, windows.units, design))
    return tuple(_summary(unit, found.get(unit.run_id)) for unit in windows.units)


def unfinished(
    db: "duckdb.DuckDBPyConnection", windows: Windows, design: Design
) -> Objection | None:
    """Objection to requests that arrived in a window and whose end nobody recorded."""
    places = units(windows.units, design)
    found = rows(db, "open_requests", units=places) if places else []
    if not found:
        return None
    number = count(sum(row["open"] + row["torn"] for row in found), "request")
    why = (
        f"cannot be decided: {number} of the windows had no row yet when the runs were read"
        " (preempt collect pack SPOOL --out RUN ends them)"
    )
    return Objection("no_data", why)


def recorded(runs: Sequence[RunSummary]) -> tuple[RunSummary, ...]:
    """Runs of live traffic with what was recorded as what was offered: nobody knows more."""
    return tuple(r if r.offered is not None else replace(r, offered=r.requests) for r in runs)


def _unit(runs: Sequence[GateRun], side: str, number: int, begin: int, width: int) -> GateRun:
    """One window of one side; its name stands for it wherever a run's would."""
    parts = tuple(_part(run, begin, width) for run in runs)
    return replace(
        runs[0], run_id=f"window {number + 1} of the {side}", side=side, pair=number, parts=parts
    )


def _part(run: GateRun, begin: int, width: int) -> tuple[str, int, int]:
    first = begin - (run.start_us or 0)
    return run.run_id, first, first + width - 1


def _summary(unit: GateRun, row: Row | None) -> RunSummary:
    requests, failed, censored = (
        (row[name] for name in ("requests", "failed", "censored")) if row else (0, 0, 0)
    )
    return RunSummary(
        run_id=unit.run_id,
        side=unit.side,
        pair=unit.pair,
        seed=None,
        order=None,
        manifest_sha256=unit.manifest_sha256,
        configuration_sha256=None,
        offered=requests,
        eligible=requests,
        ok=requests - failed - censored,
        error=failed,
        aborted=0,
        censored=censored,
        unsent=0,
        rejected=0,
    )
