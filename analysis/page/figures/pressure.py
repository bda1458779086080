"""How full the KV cache was, who waited, and when requests were preempted.

Measured panels have seconds, modelled ones ticks: they are never one chart and never one axis.
"""

from analysis.page.figures.theme import Spec, hover, quantity, shared, spec

MEASURED, MODELLED = "measured", "modelled"
_TIME = {
    MEASURED: ("time", "seconds since the run's start, measured"),
    MODELLED: ("time", "ticks, modelled"),
}
_HEIGHT = 120


def occupancy(evidence: str) -> Spec:
    """The fullest moment of each bucket. Rows: time, kv_cache_usage_frac."""
    return spec(
        _HEIGHT,
        f"KV cache occupancy over time, {evidence}.",
        params=shared("x"),
        mark={
            "type": "area",
            "interpolate": "step-after",
            "fill": "var(--first)",
            "fillOpacity": 0.25,
            "line": {"stroke": "var(--first)", "strokeWidth": 1.5},
        },
        encoding={
            "x": quantity(*_TIME[evidence], "xmax"),
            "y": quantity(
                "kv_cache_usage_frac",
                "KV cache used",
                scale={"domain": [0, 1]},
                axis={"format": ".0%", "tickCount": 3},
            ),
            "tooltip": hover(("time", "time"), ("kv_cache_usage_frac", f"used, {evidence}")),
        },
    )


def queue(evidence: str) -> Spec:
    """Most running and most waiting. Rows: time, what, requests."""
    scale = {"domain": ["running", "waiting"]}
    return spec(
        _HEIGHT + 20,
        f"Running and waiting requests over time, {evidence}.",
        params=shared("x", "y"),
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 1.5},
        encoding={
            "x": quantity(*_TIME[evidence], "xmax"),
            "y": quantity("requests", "requests", "ymax", axis={"tickCount": 4, "tickMinStep": 1}),
            "color": {
                "field": "what",
                "type": "nominal",
                "title": None,
                "scale": scale | {"range": ["var(--first)", "var(--second)"]},
                "legend": {"symbolType": "stroke", "symbolSize": 400},
            },
            "strokeDash": {
                "field": "what",
                "type": "nominal",
                "title": None,
                "scale": scale | {"range": [[1, 0], [6, 3]]},
            },
            "tooltip": hover(("time", "time"), ("what", "what"), ("requests", evidence)),
        },
    )


def preemptions(evidence: str) -> Spec:
    """Preemptions of each bucket. Rows: time, preemptions."""
    return spec(
        _HEIGHT,
        f"Preemptions over time, {evidence}.",
        params=shared("x", "y"),
        mark={"type": "bar", "width": 2, "fill": "var(--second)"},
        encoding={
            "x": quantity(*_TIME[evidence], "xmax"),
            "y": quantity(
                "preemptions", "preemptions", "ymax", axis={"tickCount": 4, "tickMinStep": 1}
            ),
            "tooltip": hover(("time", "time"), ("preemptions", f"preemptions, {evidence}")),
        },
    )
