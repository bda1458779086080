"""A gate report in a terminal: the verdict first, then what it rests on, at any width."""

from typing import TYPE_CHECKING

from analysis.gate import cells
from analysis.gate.boundary import tables as boundary
from analysis.gate.comparability import show
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS, REFUSED, GateReport
from replay.strict import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES = {PASS: "bold green", FAIL: "bold red", INCONCLUSIVE: "bold yellow", REFUSED: "bold red"}
_WIDE = 120  # columns from which the numbers fit beside the reasons


def print_report(report: GateReport, console: "Console") -> None:
    """Print to the console at its own width; names are text, never markup."""
    from rich.text import Text

    line = Text(report.sentence)
    line.stylize(STYLES[report.verdict], 0, len(report.stated))
    console.print(line)
    for text in _facts(report):
        console.print(Text(text))
    if report.predicates:
        console.print(_checks(report, wide=console.width >= _WIDE))
    if any(p.effects for p in report.predicates):
        console.print(_effects(report))
    if boundary.strips(report):
        console.print(_boundary(report))
    for text in boundary.facts(report):
        console.print(Text(f"boundary: {text}"))
    if report.runs:
        console.print(_statuses(report))


def _facts(report: GateReport) -> list[str]:
    compared = report.comparability
    lines = []
    if compared.changed:
        lines += [
            f"change: {c.field} {show(c.baseline)} -> {show(c.candidate)}" for c in compared.changed
        ]
    lines += [f"{d.label}: {d.text}" for d in compared.differing]
    if not report.comparability.refused:
        lines.append(f"equal: {len(compared.equal)} fields of engine, model, device and options")
    lines += [f"note: {n}" for n in report.notes]
    if report.recommendation:
        lines.append(f"next: {report.recommendation}")
    if report.exit_map:
        mapped = ", ".join(f"{verdict} = {code}" for verdict, code in report.exit_map)
        lines.append(f"exit codes mapped by --exit-map: {mapped}")
    return lines


def _checks(report: GateReport, *, wide: bool) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, pad_edge=False, title_justify="left")
    table.add_column("check", overflow="fold", max_width=32)
    table.add_column("verdict", no_wrap=True)
    if wide:
        table.add_column("evidence", no_wrap=True)
        table.add_column("statistic", overflow="fold")
        for name in ("baseline", "candidate", "estimate", "interval", "limit"):
            table.add_column(name, justify="right", overflow="fold")
    table.add_column("why", overflow="fold", ratio=1)
    for p in report.predicates:
        numbers = [
            p.evidence,
            cells.what(p),
            cells.per_run(p, "baseline"),
            cells.per_run(p, "candidate"),
            cells.in_unit(p.estimate, p),
            cells.interval(p),
            cells.limit(p),
        ]
        why = p.why if wide or p.evidence == "measured" else f"{p.evidence}: {p.why}"
        table.add_row(
            Text(printable(p.id)),
            Text(p.verdict, STYLES[p.verdict]),
            *(Text(n) for n in numbers if wide),
            Text(why),
        )
    return table


def _effects(report: GateReport) -> "Table":
    """Pair by pair: the numbers a statistical check rests on."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, pad_edge=False)
    table.add_column("effect of each pair", overflow="fold", max_width=32)
    table.add_column("candidate against baseline", overflow="fold", ratio=1)
    for p in report.predicates:
        if p.effects:
            table.add_row(Text(printable(p.id)), Text(f"{cells.what(p)}: {cells.effects(p)}"))
    return table


def _boundary(report: GateReport) -> "Table":
    """Each limit at other rates."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, pad_edge=False)
    for name in boundary.HEADINGS:
        table.add_column(name, overflow="fold")
    for row in boundary.rows(report):
        table.add_row(*map(Text, row))
    return table


def _statuses(report: GateReport) -> "Table":
    from rich.table import Table

    table = Table(show_edge=False, pad_edge=False)
    table.add_column("requests", no_wrap=True)
    for side in ("baseline", "candidate"):
        table.add_column(side, justify="right", no_wrap=True)
    for name, *values in cells.status_rows(report):
        table.add_row(name, *(cells.number(v) for v in values))
    return table
