"""What each check saw, run by run, against its limit: a dot per run or per pair.

A check that is decided over pairs, or windows, shows their effects, the mean and its interval,
because that is what its limit is for. Each check has its own unit, and so its own axis.
"""

from itertools import zip_longest
from typing import Any

from analysis.gate import cells
from analysis.gate.verdict import GateReport, PredicateResult
from analysis.page.figures.theme import SIDE_COLOURS, SIDES, Spec, hover, quantity, spec

MOST_CHECKS = 12
PAIR, WINDOW, MEAN = "pair", "window", "mean, with its interval"


def effects(*, percent: bool, pairs: int, of: str | None, bounded: bool) -> Spec:
    """Dots and a dashed line. Rows: pair, side, value, limit; a mean has low and high.

    `of`: whose effects the dots are, None where they are runs.
    """
    words = list(SIDES) if of is None else [_effect_of(of), MEAN]
    colours = SIDE_COLOURS["range"]
    axis = {"format": ".3~%" if percent else "~g", "tickCount": 5}
    dots = {
        "mark": {"type": "point", "size": 80, "filled": True, "opacity": 1},
        "encoding": {
            "x": quantity("value", "measured", axis=axis),
            "y": {"field": "pair", "type": "nominal", "title": None, "sort": None},
            **({} if of else {"yOffset": {"field": "side", "sort": words}}),
            "color": {
                "field": "side",
                "type": "nominal",
                "title": None,
                "scale": {"domain": words, "range": colours},
            },
            "shape": {
                "field": "side",
                "type": "nominal",
                "title": None,
                "scale": {"domain": words, "range": ["circle", "diamond"]},
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
    interval = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 2, "color": colours[1]},
        "encoding": {
            "x": {"field": "low", "type": "quantitative"},
            "x2": {"field": "high"},
            "y": {"field": "pair", "type": "nominal", "sort": None},
        },
    }
    layer = [*([interval] if bounded else []), dots, limit, word]
    return spec(110 + 22 * min(pairs, 24), "Runs against a limit.", layer=layer)


def effect_rows(result: PredicateResult, of: str = PAIR) -> list[dict[str, Any]]:
    """Dots of one check; none where the limit or a run's value is unknown.

    Where the check has pair effects they are the dots, with their mean and its interval.
    """
    if result.limit is None:
        return []
    if result.effects:
        rows = [
            {"pair": f"{of} {k + 1}", "side": _effect_of(of), "value": value, "limit": result.limit}
            for k, value in enumerate(result.effects)
        ]
        mean = {"pair": MEAN, "side": MEAN, "value": result.estimate, "limit": result.limit}
        bounds = {"low": result.low, "high": result.high}
        return [*rows, mean | bounds] if None not in (result.estimate, *bounds.values()) else rows
    if result.kind == "regression" or not result.candidate or None in result.candidate:
        return []
    baseline = result.baseline or (None,) * len(result.candidate)
    return [
        {"pair": f"{of} {k + 1}", "side": side, "value": value, "limit": result.limit}
        for k, pair in enumerate(zip_longest(baseline, result.candidate))
        for side, value in zip(SIDES, pair, strict=True)
        if value is not None
    ]


def unit(report: GateReport) -> str:
    """What the differences of a report are of."""
    return WINDOW if report.observational else PAIR


def _row(result: PredicateResult, report: GateReport) -> str:
    """What a row of a check is: what is counted over live runs has no windows."""
    whole = report.observational and not result.effects and len(result.candidate) != report.pairs
    return "run" if whole else unit(report)


def _effect_of(of: str) -> str:
    return f"effect of a {of}"


def is_percent(result: PredicateResult) -> bool:
    """Whether a check's values are shares or relative changes."""
    return cells.in_unit(1.0, result).endswith("%")


def shown(report: GateReport) -> list[tuple[PredicateResult, list[dict[str, Any]]]]:
    """Checks that have dots, at most `MOST_CHECKS`."""
    found = [(p, effect_rows(p, _row(p, report))) for p in report.predicates]
    return [(p, rows) for p, rows in found if rows][:MOST_CHECKS]
