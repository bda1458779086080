"""Pieces of HTML that figures are made of: a chart's place, a choice, a reason for its absence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.gate.cells import DASH
from analysis.page.escape import sentence, text
from analysis.page.figures.theme import SIDES

Row = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One chart's place. `name` is its id and what the script knows it by."""

    name: str
    title: str
    side: str = ""


def absent(reason: str) -> str:
    """A figure that is not there, and why."""
    return f'<p class="absent">{sentence(reason)}</p>'


def sides(name: str) -> list[Panel]:
    """A panel a side."""
    return [Panel(f"{name}-{side}", side, side) for side in SIDES]


def figure(caption: str, panels: Sequence[Panel]) -> str:
    """Charts with what they show in words; the script fills both."""
    inner = "".join(
        f'<div class="panel" id="panel-{p.name}">'
        + (f"<h3{_key(p.side)}>{text(p.title)}</h3>" if p.title else "")
        # Vega gives its own place another role, which would offer every mark to be read.
        + f'<div role="img" aria-labelledby="summary-{p.name}">'
        f'<div class="chart" id="chart-{p.name}"></div></div>'
        f'<p class="summary" id="summary-{p.name}"></p></div>'
        for p in panels
    )
    two = " two" if len(panels) > 1 else ""
    return (
        f"<figure><figcaption>{sentence(caption)}</figcaption>"
        f'<div class="panels{two}">{inner}</div></figure>'
    )


def _key(side: str) -> str:
    return f' class="key {side}"' if side else ""


def form(label: str, *selects: str) -> str:
    """A group of choices."""
    return f'<form class="choices" aria-label="{label}">{"".join(selects)}</form>'


def select(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    """A choice with its label; the script may fill in options."""
    listed = "".join(f'<option value="{text(v)}">{text(words)}</option>' for v, words in options)
    return (
        f'<label for="choose-{name}">{label}'
        f'<select id="choose-{name}" autocomplete="off">{listed}</select></label>'
    )


def moved(row: Row, field: str) -> str:
    """A value on both sides of a row."""
    return " → ".join(shown(field, row[f"{side}_{field}"]) for side in SIDES)


def shown(name: str, value: Any) -> str:
    """A value as the tables show it: times in milliseconds, a dash for unknown."""
    if value is None:
        return DASH
    if isinstance(value, str):
        return value
    return f"{value / 1000:,.1f}" if name.endswith("_us") else f"{value:,}"
