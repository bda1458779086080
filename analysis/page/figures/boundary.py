"""Each limit at other rates: a strip of marks, by shape and word within or beyond it."""

from typing import Any

from analysis.gate.boundary.tables import SIGNS, brackets, number, strips
from analysis.gate.verdict import GateReport
from analysis.page.figures.theme import Spec, hover, spec

MOST_STRIPS = 12
WORDS = {"within": "✓ within the limit", "beyond": "✕ beyond the limit", None: "? not known"}
_SHAPES = ["circle", "cross", "square"]
_COLOURS = ["var(--first)", "var(--second)", "var(--soft)"]
Row = dict[str, Any]


def boundary(*, crossed: bool) -> Spec:
    """Marks on one line. Rows: multiplier, side, shown, label; brackets: low, high, crosses."""
    x: Row = {
        "field": "multiplier",
        "type": "quantitative",
        "title": "times the unchanged rate",
        "scale": {"zero": False, "nice": False, "padding": 36},
        "axis": {"tickCount": 6, "format": "~g"},
    }
    y = {"value": 40}
    words = list(WORDS.values())
    side: Row = {"field": "side", "type": "nominal", "title": None}
    bracket = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rect", "color": "var(--ink)", "opacity": 0.25, "stroke": "var(--ink)"},
        "encoding": {
            "x": x | {"field": "low"},
            "x2": {"field": "high"},
            "y": {"value": 8},
            "y2": {"value": 78},
            "tooltip": hover(("crosses", "crosses its limit")),
        },
    }
    named = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "text", "text": "crosses", "baseline": "bottom", "dy": -2},
        "encoding": {"x": x | {"field": "low"}, "y": {"value": 8}},
    }
    marks = {
        "transform": [{"filter": "isValid(datum.multiplier)"}],
        "mark": {"type": "point", "size": 110, "filled": True, "opacity": 1},
        "encoding": {
            "x": x,
            "y": y,
            "color": side | {"scale": {"domain": words, "range": _COLOURS}},
            "shape": side | {"scale": {"domain": words, "range": _SHAPES}},
            "tooltip": hover(
                ("multiplier", "times the rate"), ("side", "estimate is"), ("shown", "estimate")
            ),
        },
    }
    estimates = {
        "transform": [{"filter": "isValid(datum.multiplier)"}],
        "mark": {"type": "text", "baseline": "top", "dy": 10},
        "encoding": {"x": x, "y": y, "text": {"field": "label"}},
    }
    # A layer without rows would have no extent, of which the charts warn.
    layer = [*([bracket, named] if crossed else []), marks, estimates]
    return spec(180, "A limit at other rates.", layer=layer)


def shown(report: GateReport) -> list[tuple[Row, list[Row]]]:
    """Strips with their rows, at most `MOST_STRIPS`: those that cross first."""
    found = [(cells[0], _rows(report, cells)) for cells in strips(report)]
    found.sort(key=lambda one: not is_crossed(one[1]))
    return found[:MOST_STRIPS]


def is_crossed(rows: list[Row]) -> bool:
    """Whether a strip has a bracket."""
    return any("low" in row for row in rows)


def _rows(report: GateReport, cells: list[Row]) -> list[Row]:
    statistic = cells[0]["statistic"]
    rows = [
        {
            "multiplier": c["multiplier"],
            "side": WORDS[c["side"]],
            "shown": number(c["estimate"], statistic),
            "label": f"{SIGNS[c['side']]} {number(c['estimate'], statistic)}",
        }
        for c in cells
    ]
    return rows + [
        {
            "low": b["low"],
            "high": b["high"],
            "crosses": f"between x {b['low']:.4g} and x {b['high']:.4g}",
        }
        for b in brackets(report, cells[0])
    ]
