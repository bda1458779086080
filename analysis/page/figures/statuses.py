"""What became of the requests, per side."""

from analysis.page.figures.theme import SIDE_COLOURS, SIDES, Spec, hover, quantity, spec
from collectors.columns import STATUSES


def statuses() -> Spec:
    """Bars with their numbers. Rows: status, side, requests."""
    place = {
        "y": {"field": "status", "type": "nominal", "title": None, "sort": list(STATUSES)},
        "yOffset": {"field": "side", "sort": list(SIDES)},
        "x": quantity("requests", "requests, measured", axis={"tickMinStep": 1, "tickCount": 6}),
    }
    fill = {"field": "side", "type": "nominal", "title": None, "scale": SIDE_COLOURS}
    return spec(
        260,
        "Requests by status and side.",
        encoding=place,
        layer=[
            {
                "mark": {"type": "bar"},
                "encoding": {
                    "color": fill,
                    "tooltip": hover(("side", "side"), ("status", "status"), ("requests", "n")),
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4},
                "encoding": {"text": {"field": "label"}},
            },
        ],
    )
