"""One preemption: the state that survives, the blocks that leave, the work that comes back."""

from analysis.page.figures.theme import Spec, hover, quantity, spec

SURVIVES, LEAVES, RETURNS = "survives", "leaves", "comes back"


def conservation(unit: str) -> Spec:
    """Bars of one unit. Rows: what, fate, amount, label."""
    return spec(
        130 if unit == "tokens" else 90,
        f"One preemption in {unit}.",
        encoding={
            "y": {
                "field": "what",
                "type": "nominal",
                "title": None,
                "sort": None,
                "axis": {"labelLimit": 200},
            },
            "x": quantity("amount", unit, axis={"tickMinStep": 1, "tickCount": 5}),
        },
        layer=[
            {
                "mark": {"type": "bar", "height": 18},
                "encoding": {
                    "color": {
                        "field": "fate",
                        "type": "nominal",
                        "title": None,
                        "legend": None,
                        "scale": {
                            "domain": [SURVIVES, LEAVES, RETURNS],
                            "range": ["var(--first)", "var(--soft)", "var(--second)"],
                        },
                    },
                    "tooltip": hover(("what", "what"), ("amount", unit)),
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4},
                "encoding": {"text": {"field": "label"}},
            },
        ],
    )
