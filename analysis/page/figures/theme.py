"""What all charts have in common.

Colours are the page's own CSS variables, so that one drawing is right in light, dark and on paper.
No chart says anything by colour alone: there is a shape, a dash or a word beside it.
"""

from typing import Any

Spec = dict[str, Any]

SIDES = ("baseline", "candidate")
SIDE_COLOURS = {"domain": list(SIDES), "range": ["var(--baseline)", "var(--candidate)"]}
ROWS = {"name": "rows"}  # filled by the page's script
_FONT = "system-ui, sans-serif"


def spec(height: int, description: str, **parts: Any) -> Spec:
    """A chart as wide as its place on the page, whose rows come later."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": description,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "background": "transparent",
        "data": ROWS,
        "config": _CONFIG,
        **parts,
    }


def shared(*axes: str) -> list[Spec]:
    """Parameters by which the page gives the charts of both sides one scale."""
    return [{"name": f"{axis}max", "value": 1} for axis in axes]


def quantity(field: str, title: str, most: str | None = None, **more: Any) -> Spec:
    """A quantitative axis from zero, up to the parameter `most` if there is one."""
    scale: Spec = {"zero": True, "nice": False}
    if most is not None:
        scale |= {"domainMin": 0, "domainMax": {"expr": most}}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, **more}


def hover(*fields: tuple[str, str]) -> list[Spec]:
    """Fields and their words, shown while the pointer is on a mark."""
    return [{"field": field, "title": title} for field, title in fields]


_CONFIG: Spec = {
    "font": _FONT,
    "view": {"stroke": None},
    "mark": {"aria": False},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--ink)",
        "titleFontWeight": "normal",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "gridColor": "var(--line)",
        "gridOpacity": 0.6,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "labelLimit": 140,
        "aria": False,
    },
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--ink)",
        "titleFontWeight": "normal",
        "orient": "top",
        "labelFontSize": 12,
        "symbolStrokeColor": "var(--ink)",
        "columns": 2,
        "labelLimit": 260,
        "aria": False,
    },
    "text": {"color": "var(--ink)", "fontSize": 11},
}
