"""How latency is distributed, by how often a request was preempted (measured)."""

from typing import Any

from analysis.page.figures.theme import Spec, hover, quantity, shared, spec

GROUPS = ("never preempted", "preempted once", "preempted twice or more")


def curves() -> Spec:
    """Steps per group. Rows: seconds, share, group."""
    scale: dict[str, Any] = {"domain": list(GROUPS)}
    return spec(
        260,
        "Share of requests within a latency, by preemptions.",
        params=shared("x"),
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True},
        encoding={
            "x": quantity("seconds", "seconds, measured", "xmax"),
            "y": quantity(
                "share",
                "share of requests",
                scale={"domain": [0, 1]},
                axis={"format": ".0%"},
            ),
            "color": {
                "field": "group",
                "type": "nominal",
                "title": None,
                "scale": scale | {"range": ["var(--first)", "var(--second)", "var(--third)"]},
                "legend": {"columns": 1, "symbolType": "stroke", "symbolSize": 400},
            },
            "strokeDash": {
                "field": "group",
                "type": "nominal",
                "title": None,
                "scale": scale | {"range": [[1, 0], [8, 4], [2, 3]]},
            },
            "tooltip": hover(("group", "group"), ("seconds", "seconds"), ("share", "share")),
        },
    )
