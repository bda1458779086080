"""The newest whole window of a live run, and what of the baseline stands beside it.

Records reach a run late: a collector packs what the engine wrote now and then, and a request has no
row before it ends. So a window ends `follow_up_us` before the newest record of requests, and what
arrived in it and has not ended is counted as such. How old that record is says whether anybody
still collects; of an old one nothing is concluded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Design
from analysis.gate.evidence import by_run, rows, run_ids, units
from analysis.gate.predicates.common import count, of_side
from analysis.gate.validity import Objection
from replay.errors import InputError
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

_SECOND = 1_000_000


@dataclass(frozen=True)
class Window:
    """From and until which moment (microseconds since 1970) arrivals count, or why there is none.

    `candidate` and `baseline` are the requests of either side. `whole_baseline`: a baseline that
    had ended before is taken whole. `alone`: why nothing is compared with the baseline.
    `age_us` is how old the newest record is.
    """

    from_us: int
    until_us: int
    age_us: int
    candidate: GateRun
    baseline: GateRun
    whole_baseline: bool
    nothing: Objection | None
    alone: Objection | None


def newest(
    db: "duckdb.DuckDBPyConnection",
    runs: Sequence[GateRun],
    design: Design,
    window_us: int,
    now_us: int,
    most_age_us: int,
) -> Window | None:
    """The newest whole window of the candidate; None where it has no record of any request."""
    sides = {side: of_side(runs, side) for side in ("baseline", "candidate")}
    for run in sides["candidate"]:
        if run.start_us is None:
            rule = "must be known: a window is placed by the clock"
            raise InputError(f"run {printable(run.run_id)}", "start", rule, "unknown")
    found = by_run(rows(db, "recorded_until", run_ids=run_ids(runs)))
    reach = {r: row["recorded_until_us"] for r, row in found.items()}
    reached = _reached(sides["candidate"], reach)
    if reached is None:
        return None
    beside = _reached(sides["baseline"], reach)
    live = beside is not None and beside >= reached - window_us
    until = (reached if not live or beside is None else min(reached, beside)) - design.follow_up_us
    first = until - window_us + 1
    candidate = _unit(sides["candidate"], "candidate", reach, first, until)
    if live:
        baseline = _unit(sides["baseline"], "baseline", reach, first, until)
    else:
        baseline = _whole(sides["baseline"], reach, design)
    (candidate, torn), (baseline, torn_too) = (
        _with_open(db, unit, design) for unit in (candidate, baseline)
    )
    return Window(
        from_us=first,
        until_us=until,
        age_us=now_us - reached,
        candidate=candidate,
        baseline=baseline,
        whole_baseline=not live,
        nothing=_stale(now_us - reached, most_age_us)
        or _too_new(sides["candidate"], first, window_us, design)
        or _torn(torn + torn_too),
        alone=_too_new(sides["baseline"], first, window_us, design) if live else None,
    )


def _reached(runs: Sequence[GateRun], reach: Mapping[str, int | None]) -> int | None:
    """Moment until which all runs of a side are recorded, None where one is not or has no clock."""
    ends = []
    for run in runs:
        recorded = reach.get(run.run_id)
        if run.start_us is None or recorded is None:
            return None
        ends.append(run.start_us + recorded)
    return min(ends)


def _stale(age_us: int, most_us: int) -> Objection | None:
    if abs(age_us) <= most_us:
        return None
    text = f"{abs(age_us) / _SECOND:.0f} s"
    if age_us < 0:
        why = f"the newest record of a request is {text} ahead of this clock"
    else:
        why = f"the newest record of a request is {text} old: is anybody still collecting?"
    return Objection("stale", why)


def _too_new(
    runs: Sequence[GateRun], first: int, window_us: int, design: Design
) -> Objection | None:
    """Objection to a run that began, or was warming up, within the window."""
    late = [r for r in runs if (r.start_us or 0) + design.warmup_us > first]
    if not late:
        return None
    why = (
        f"{printable(late[0].run_id)} is not recorded for a whole window of"
        f" {window_us / _SECOND:g} s, its warm-up and its follow-up yet"
    )
    return Objection("no_whole_window", why)


def _torn(number: int) -> Objection | None:
    """Objection to requests whose events had been written when the run was read, and no row."""
    if not number:
        return None
    why = f"the run was read while it was written ({count(number, 'request')} without a row)"
    return Objection("torn", f"{why}: look again")


def _unit(
    runs: Sequence[GateRun], side: str, reach: Mapping[str, int | None], first: int, until: int
) -> GateRun:
    """The window of one side, of all its runs together."""
    parts = tuple((r.run_id, first - (r.start_us or 0), until - (r.start_us or 0)) for r in runs)
    return _named(runs, f"the {side}'s window", reach, parts)


def _whole(runs: Sequence[GateRun], reach: Mapping[str, int | None], design: Design) -> GateRun:
    """All of a side that had ended, but for its warm-up and who could not be followed."""
    parts = tuple(
        (r.run_id, design.warmup_us, end - design.follow_up_us)
        for r in runs
        if (end := reach.get(r.run_id)) is not None
    )
    return _named(runs, "the baseline's whole run", reach, parts)


def _named(
    runs: Sequence[GateRun],
    name: str,
    reach: Mapping[str, int | None],
    parts: tuple[tuple[str, int, int], ...],
) -> GateRun:
    """One unit; the end of its observation is known where each of its runs has a record."""
    ends = [reach.get(r.run_id) for r in runs]
    known = [e for e in ends if e is not None]
    end = min(known) if len(known) == len(ends) else None
    manifest = {**runs[0].manifest, "drain_end_us": end}
    return replace(runs[0], run_id=name, pair=0, manifest=manifest, parts=parts)


def _with_open(
    db: "duckdb.DuckDBPyConnection", unit: GateRun, design: Design
) -> tuple[GateRun, int]:
    """The unit with how many have not ended, and how many were being written."""
    places = units([unit], design) if unit.parts else []
    found = rows(db, "open_requests", units=places) if places else []
    numbered = replace(unit, open_requests=sum(row["open"] for row in found))
    return numbered, sum(row["torn"] for row in found)
