"""P8: the verdict does not stand on an edge of load. It never fails, it keeps a pass back.

A recommendation is the side of a limit that a point estimate lies on. Where a listed step of a rate
moves a modelled estimate across, nobody knows on which side the next day's load will be:
inconclusive, `measure_boundary`. A model that is not on the measured side at the unchanged rate
says nothing of what is near. What was measured stays decided by what was measured.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.gate.boundary.modelled import LimitTest
from analysis.gate.boundary.scan import Bracket, Cell, Scan
from analysis.gate.contract import ARRIVAL, Boundary
from analysis.gate.predicates.common import count, percent
from analysis.gate.verdict import INCONCLUSIVE, PASS, PredicateResult
from replay.strict import printable

NAME = "boundary"
_SHOWN = 3
_Measured = Mapping[tuple[str, str | None], float | None]


def judge(
    boundary: Boundary,
    tests: Sequence[LimitTest],
    found: Scan,
    measured: Sequence[Cell],
    own: Sequence[PredicateResult],
) -> list[PredicateResult]:
    """The modelled row, and a measured one where the gate asks for runs at other arrival rates."""
    estimates = {(r.id, r.statistic): r.estimate for r in own}
    crossings = found.brackets if found.cells else None
    results = [_result("modelled", crossings, _modelled(boundary, tests, found, estimates))]
    if boundary.measured:
        across = [c for c in measured if _crossed(c, measured)]
        decided = _at_rates(measured, across)
        results.append(_result("measured", across if measured else None, decided))
    return results


def _result(
    evidence: str, crossings: Sequence[Bracket | Cell] | None, decided: tuple[str, list[str]]
) -> PredicateResult:
    """A row; `crossings` is None where nothing was looked at."""
    why, reasons = decided
    return PredicateResult(
        id=NAME,
        kind="boundary",
        evidence=evidence,
        statistic=f"{evidence}_crossings",
        estimate=None if crossings is None else len(crossings),
        limit=0,
        method="point estimates at the listed rates against each limit over latencies",
        verdict=INCONCLUSIVE if reasons else PASS,
        why=why,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _modelled(
    boundary: Boundary, tests: Sequence[LimitTest], found: Scan, estimates: _Measured
) -> tuple[str, list[str]]:
    """Words, and the reasons that keep it open; the first says what the words say."""
    if found.why is not None:
        return found.why, ["no_data"]
    unread = "; ".join(f"{u.rate} not applicable ({u.why})" for u in found.unread)
    if not found.cells:
        return f"has no rate that applies: {unread}", ["not_applicable"]
    # What is to be measured is decided by the runs at those rates, in the row beside.
    left = [b for b in found.brackets if boundary.measured and b.rate == ARRIVAL]
    across = [b for b in found.brackets if b not in left]
    unknown = [c for c in found.cells if c.side is None]
    foreign = _disagreeing(tests, found.cells, estimates)
    reasons, words = [], []
    if across:
        reasons.append("measure_boundary")
        words.append(f"found that {_some([_crossing(b) for b in across])}")
    if foreign:
        reasons.append("model_disagrees")
        words.append(f"rests on a model that is not on the measured side: {_some(foreign)}")
    if unknown:
        reasons.append("no_data")
        words.append(f"cannot be shown: {_some(list(dict.fromkeys(map(_unknown, unknown))))}")
    if left:
        words.append(
            f"leaves to the runs at those rates that {_some([_crossing(b) for b in left])}"
        )
    if not words:
        tested = count(len({(c.predicate, c.statistic) for c in found.cells}), "limit")
        words.append(f"found {tested} on the same side when {_steps(found.cells)}, modelled")
    return "; ".join([*words, *([unread] if unread else [])]), reasons


def _at_rates(cells: Sequence[Cell], across: Sequence[Cell]) -> tuple[str, list[str]]:
    if not cells:
        return "has nothing to ask: the gate has no limit over latencies", ["no_data"]
    unknown = [_unknown(c) for c in cells if c.side is None]
    reasons, words = [], []
    if across:
        reasons.append("measure_boundary")
        moved = [f"{_at(c)} moves {_name(c.predicate)} to {c.side} its limit" for c in across]
        words.append(f"found that {_some(moved)}")
    if unknown:
        reasons.append("no_data")
        words.append(f"cannot be shown: {_some(list(dict.fromkeys(unknown)))}")
    if not words:
        words.append(f"found every limit on the same side when {_steps(cells)}, measured")
    return "; ".join(words), reasons


def _crossed(cell: Cell, cells: Sequence[Cell]) -> bool:
    """Whether runs at another rate lie on another side than the pairs."""
    key = (cell.predicate, cell.statistic)
    own = next(c for c in cells if c.multiplier == 1 and (c.predicate, c.statistic) == key)
    return None not in (cell.side, own.side) and cell.side != own.side


def _disagreeing(
    tests: Sequence[LimitTest], cells: Sequence[Cell], estimates: _Measured
) -> list[str]:
    """Where the model at the unchanged rate is not where the runs are, or they are nowhere."""
    words = []
    for test in tests:
        name, key = _name(test.predicate.id), (test.predicate.id, test.statistic)
        cell = next(c for c in cells if c.multiplier == 1 and (c.predicate, c.statistic) == key)
        estimate = estimates.get(key)
        if cell.side is None:
            continue  # said as unknown
        if estimate is None:
            words.append(f"{name} has no measured estimate")
        elif test.side(estimate) != cell.side:
            words.append(
                f"{name} is {cell.side} its limit modelled{_number(cell.estimate, test)}, and"
                f" {test.side(estimate)} it measured{_number(estimate, test)}"
            )
    return words


def _number(value: float | None, test: LimitTest) -> str:
    if value is None:
        return ""
    shown = f"{value * 100:+.3g} %" if test.predicate.kind == "regression" else percent(value)
    return f" ({shown})"


def _crossing(b: Bracket) -> str:
    first, second = b.measure
    return (
        f"{_name(b.predicate)} crosses its limit between {b.rate} x {b.low:.4g} and x {b.high:.4g}"
        f" (modelled): measure at x {first:g} and x {second:g}"
    )


def _unknown(cell: Cell) -> str:
    return f"{_name(cell.predicate)} at {_at(cell)}: {cell.why}"


def _at(cell: Cell) -> str:
    return f"{cell.rate} x {cell.multiplier:g}"


def _steps(cells: Sequence[Cell]) -> str:
    steps: dict[str, list[str]] = {}
    for cell in cells:
        if cell.multiplier != 1 and f"{cell.multiplier:g}" not in steps.setdefault(cell.rate, []):
            steps[cell.rate].append(f"{cell.multiplier:g}")
    return ", ".join(f"{rate} is x {' or '.join(found)}" for rate, found in steps.items())


def _some(words: Sequence[str]) -> str:
    more = f", and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return f"{'; '.join(words[:_SHOWN])}{more}"


def _name(predicate: str) -> str:
    return printable(predicate)


def record(found: Scan, measured: Sequence[Cell]) -> dict[str, Any]:
    """The report's `boundary`; bracket is null where nothing was replayed."""
    from dataclasses import asdict

    return {
        "cells": [asdict(c) for c in (*found.cells, *measured)],
        "bracket": None if found.why is not None else [asdict(b) for b in found.brackets],
        "not_applicable": [asdict(u) for u in found.unread],
        "model": found.model,
        "unit": found.unit,
        "pairs": list(found.pairs),
        "workload_sha256": list(found.workloads),
        "replays": found.replays,
    }
