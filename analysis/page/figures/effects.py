"""What each check saw, run by run, against its limit: a dot per run or per pair.

A regression's dot is a pair's relative change, because that is what its limit is for. Each check
has its own unit, and so its own axis.
"""

from typing import Any

from analysis.gate.contract import Gate
from analysis.gate.verdict import GateReport, PredicateResult
from analysis.page.figures.theme import SIDE_COLOURS, SIDES, Spec, hover, quantity, spec

MOST_CHECKS = 12


def effects(*, percent: bool, pairs: int) -> Spec:
    """Dots and a dashed line. Rows: pair, side, value, limit, label."""
    axis = {"format": ".3~%" if percent else "~g", "tickCount": 5}
    dots = {
        "mark": {"type": "point", "size": 80, "filled": True, "opacity": 1},
        "encoding": {
            "x": quantity("value", "measured", axis=axis),
            "y": {"field": "pair", "type": "nominal", "title": None, "sort": None},
            "yOffset": {"field": "side", "sort": list(SIDES)},
            "color": {"field": "side", "type": "nominal", "title": None, "scale": SIDE_COLOURS},
            "shape": {
                "field": "side",
                "type": "nominal",
                "title": None,
                "scale": {"domain": list(SIDES), "range": ["circle", "diamond"]},
            },
            "tooltip": hover(("pair", "pair"), ("side", "side"), ("value", "value")),
        },
    }
    limit = {
        "mark": {"type": "rule", "strokeDash": [5, 3], "strokeWidth": 2, "color": "var(--ink)"},
        "encoding": {"x": {"field": "limit", "type": "quantitative", "aggregate": "max"}},
    }
    word = {
        "mark": {"type": "text", "text": "limit", "align": "right", "dx": -5, "baseline": "top"},
        "encoding": {
            "x": {"field": "limit", "type": "quantitative", "aggregate": "max"},
            "y": {"value": 0},
        },
    }
    return spec(110 + 22 * min(pairs, 24), "Runs against a limit.", layer=[dots, limit, word])


def effect_rows(result: PredicateResult, gate: Gate) -> list[dict[str, Any]]:
    """Dots of one check; none where a run's value or the limit is unknown."""
    if result.limit is None or not result.candidate or None in result.candidate:
        return []
    rows = [
        {"pair": f"pair {k + 1}", "side": side, "value": value, "limit": result.limit}
        for k, (b, c) in enumerate(
            zip(result.baseline or (None,) * len(result.candidate), result.candidate, strict=True)
        )
        for side, value in (("baseline", b), ("candidate", c))
        if value is not None
    ]
    if result.kind != "regression":
        return rows
    if not result.baseline or None in result.baseline:
        return []
    floor = gate.predicate(result.id).floor_us or 0
    return [
        {
            "pair": f"pair {k + 1}",
            "side": "candidate",
            "value": (c + floor) / (b + floor) - 1,
            "limit": result.limit,
        }
        for k, (b, c) in enumerate(zip(result.baseline, result.candidate, strict=True))
        if b is not None and c is not None and b + floor > 0
    ]


def is_percent(result: PredicateResult) -> bool:
    """Whether a check's values are shares or relative changes."""
    name = result.statistic or ""
    return result.kind == "regression" or name.endswith("_fraction") or "_drop" in name


def shown(report: GateReport, gate: Gate) -> list[tuple[PredicateResult, list[dict[str, Any]]]]:
    """Checks that have dots, at most `MOST_CHECKS`."""
    found = [(p, effect_rows(p, gate)) for p in report.predicates]
    return [(p, rows) for p, rows in found if rows][:MOST_CHECKS]
