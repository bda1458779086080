"""How numbers of a gate report look to people, in a terminal and in Markdown alike."""

from collections.abc import Sequence

from analysis.gate.verdict import GateReport, PredicateResult
from collectors.columns import STATUSES
from replay.strict import printable

_MOST_RUNS = 6
DASH = "\u2013"  # a value nobody has, which is not zero


def number(value: float | None, statistic: str | None = None) -> str:
    """A number in its statistic's unit; a dash for unknown, shares as percent."""
    if value is None:
        return DASH
    if statistic is not None and (statistic.endswith("_fraction") or "_drop" in statistic):
        return f"{value * 100:.3g} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def per_run(values: Sequence[float | None], statistic: str | None) -> str:
    """One number per run, in pair order."""
    shown = ", ".join(number(v, statistic) for v in values[:_MOST_RUNS])
    return f"{shown}, …" if len(values) > _MOST_RUNS else shown or DASH


def what(result: PredicateResult) -> str:
    """What a check looks at: statistic, field and slice in one phrase."""
    parts = [result.statistic or result.kind]
    if result.field and result.field != "status":
        parts.append(f"of {result.field}")
    if result.slice:
        parts.append(f"in {printable(result.slice)}")
    return " ".join(parts)


def limit(result: PredicateResult) -> str:
    """The limit a check is judged by."""
    if result.kind == "regression" and result.limit is not None:
        return f"+{result.limit * 100:.3g} %"
    return number(result.limit, result.statistic)


def status_rows(report: GateReport) -> list[tuple[str, int | None, int | None]]:
    """Offered requests and each status, summed over either side; None where nobody knows."""
    rows = []
    for name in ("offered", *STATUSES):
        sums = []
        for side in ("baseline", "candidate"):
            values = [getattr(r, name) for r in report.runs if r.side == side]
            sums.append(None if not values or None in values else sum(values))
        rows.append((name, sums[0], sums[1]))
    return rows
