"""The boundary of a report as rows for people: a row for each rate and test, its steps in order."""

from typing import Any

from analysis.gate.cells import DASH
from analysis.gate.verdict import GateReport
from replay.strict import printable

SIGNS = {"within": "✓", "beyond": "✕", None: "?"}
HEADINGS = ("check", "evidence", "rate", "limit", "at multipliers of the rate", "crosses between")
_MOST_STEPS = 9
_TEST = ("rate", "predicate", "statistic")
Row = dict[str, Any]


def strips(report: GateReport) -> list[list[Row]]:
    """Cells of each (evidence, rate, test), lowest multiplier first."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for cell in (report.boundary or {}).get("cells", ()):
        found.setdefault((cell["evidence"], *(cell[k] for k in _TEST)), []).append(cell)
    return [sorted(cells, key=lambda c: c["multiplier"]) for cells in found.values()]


def rows(report: GateReport) -> list[tuple[str, ...]]:
    """One row a strip, under `HEADINGS`: each multiplier's sign and estimate, and the brackets."""
    return [_row(report, cells) for cells in strips(report)]


def facts(report: GateReport) -> list[str]:
    """What the table rests on, and which rates are not in it."""
    found = report.boundary
    if not found:
        return []
    said = []
    if found["model"] is not None:
        pairs = ", ".join(str(pair + 1) for pair in found["pairs"])
        unit = "microseconds of a timed replay" if found["unit"] == "us" else "ticks"
        said.append(
            f"modelled by {printable(found['model'])} in {unit}, over the workloads of pairs"
            f" {pairs}, {found['replays']} replays; ✓ within a limit, ✕ beyond it, ? not known"
        )
    return said + [f"{u['rate']} is not applicable: {u['why']}" for u in found["not_applicable"]]


def brackets(report: GateReport, strip: Row) -> list[Row]:
    """Where the test of a modelled strip crosses its limit."""
    if strip["evidence"] != "modelled":
        return []
    found = (report.boundary or {}).get("bracket") or ()
    return [b for b in found if all(b[k] == strip[k] for k in _TEST)]


def number(value: float | None, statistic: str) -> str:
    """An estimate or a limit: a relative change of a latency, else a share."""
    if value is None:
        return DASH
    return f"{value * 100:.3g} %" if statistic.startswith("good") else f"{value * 100:+.3g} %"


def _row(report: GateReport, cells: list[Row]) -> tuple[str, ...]:
    strip = cells[0]
    statistic = strip["statistic"]
    near = sorted(sorted(cells, key=lambda c: abs(c["multiplier"] - 1))[:_MOST_STEPS], key=_step)
    shown = [f"x {_step(c):g} {SIGNS[c['side']]} {number(c['estimate'], statistic)}" for c in near]
    across = [f"x {b['low']:.4g} and x {b['high']:.4g}" for b in brackets(report, strip)]
    return (
        f"{printable(strip['predicate'])}: {statistic}",
        strip["evidence"],
        strip["rate"],
        number(strip["limit"], statistic),
        f"{', '.join(shown)}{', …' if len(cells) > len(near) else ''}",
        "; ".join(across) or (DASH if strip["evidence"] == "measured" else "no listed steps"),
    )


def _step(cell: Row) -> float:
    return float(cell["multiplier"])
