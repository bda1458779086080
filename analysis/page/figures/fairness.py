"""Which requests paid: waiting per request, with a sign for those beyond a limit.

The signs are those of the command line: a triangle for waiting too long, a cross for being
preempted too often.
"""

from analysis.page.figures.theme import Spec, hover, quantity, shared, spec

PLAIN, WAITED, REPEATED, BOTH = (
    "within both limits",
    "▲ waited too long",
    "✕ preempted too often",
    "▲✕ both",
)
MARKS = (PLAIN, WAITED, REPEATED, BOTH)
_TRIANGLE = "M0,-1L0.9,0.8L-0.9,0.8Z"
_CROSS = "M-0.8,-0.8L0.8,0.8M0.8,-0.8L-0.8,0.8"
_SHAPES = ["circle", _TRIANGLE, _CROSS, _TRIANGLE + "M-0.9,-1L0.9,1M0.9,-1L-0.9,1"]
# The symbol beside it is the sign.
_LEGEND = {
    "labelExpr": " : ".join(
        f"datum.label == '{m}' ? '{m.removeprefix('▲✕ ').removeprefix('▲ ').removeprefix('✕ ')}'"
        for m in MARKS
    )
    + " : datum.label"
}


def fairness() -> Spec:
    """A mark per request. Rows: index, arrival_s, wait_s, mark, area and what hovering shows."""
    scale = {"domain": list(MARKS)}
    colours = ["var(--soft)", "var(--second)", "var(--third)", "var(--third)"]
    return spec(
        280,
        "Waiting of each request by its arrival.",
        params=shared("x", "y"),
        mark={"type": "point", "strokeWidth": 1.5, "filled": False, "cursor": "pointer"},
        encoding={
            "x": quantity("arrival_s", "arrival, seconds since the run's start", "xmax"),
            "y": quantity("wait_s", "seconds waited, measured", "ymax"),
            "color": {
                "field": "mark",
                "type": "nominal",
                "title": None,
                "scale": scale | {"range": colours},
                "legend": _LEGEND,
            },
            "shape": {
                "field": "mark",
                "type": "nominal",
                "title": None,
                "scale": scale | {"range": _SHAPES},
                "legend": _LEGEND,
            },
            "size": {"field": "area", "type": "quantitative", "scale": None, "legend": None},
            "tooltip": hover(
                ("request", "request"),
                ("run", "run"),
                ("status", "status"),
                ("wait_s", "waited, s"),
                ("preemptions", "preemptions"),
                ("mark", "mark"),
            ),
        },
    )
