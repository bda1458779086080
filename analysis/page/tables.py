"""HTML tables: a caption, scopes, and every cell as text."""

from collections.abc import Sequence

from analysis.gate.cells import DASH
from analysis.page.escape import MOST_CHARACTERS, sentence, text

Cell = str | float | None


def table(
    caption: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    name: str | None = None,
    limit: int = MOST_CHARACTERS,
) -> str:
    """A table whose first column names its rows; a missing value is a dash, numbers align right."""
    numeric = [
        bool(rows) and all(isinstance(r[k], int | float | None) for r in rows)
        for k in range(len(headings))
    ]
    head = "".join(
        f'<th scope="col"{_kind(right)}>{text(h, limit)}</th>'
        for h, right in zip(headings, numeric, strict=True)
    )
    lines = []
    for first, *rest in rows:
        cells = "".join(
            f"<td{_kind(right)}>{_cell(value, limit)}</td>"
            for value, right in zip(rest, numeric[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{_cell(first, limit)}</th>{cells}</tr>')
    identity = "" if name is None else f' id="{name}"'
    # A table that is wider than the screen scrolls, and so has to be reachable by keyboard.
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{sentence(caption)}">'
        f"<table{identity}><caption>{sentence(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def number(value: float) -> str:
    """A number for people: thousands apart, at most three decimals."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _kind(right: bool) -> str:
    return ' class="number"' if right else ""


def _cell(value: Cell, limit: int) -> str:
    if value is None:
        return DASH
    return text(value, limit) if isinstance(value, str) else number(value)
