"""How numbers of a gate report look to people, in a terminal and in Markdown alike."""

from analysis.gate.verdict import GateReport, PredicateResult
from analysis.markdown import milliseconds
from collectors.columns import STATUSES
from replay.strict import printable

_MOST_RUNS = 6
_SHARES = ("_fraction", "_drop", "_increase")
DASH = "\u2013"  # a value nobody has, which is not zero


def number(value: float | None, statistic: str | None = None) -> str:
    """A number in its statistic's unit; a dash for unknown, shares as percent."""
    if value is None:
        return DASH
    if statistic is not None and statistic.endswith(_SHARES):
        return f"{value * 100:.3g} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def per_run(result: PredicateResult, side: str) -> str:
    """One number per run of a side, in pair order; a quantile that was cut off says so."""
    values = getattr(result, side)
    shown = ", ".join(_cut_off(v, result) for v in values[:_MOST_RUNS])
    return f"{shown}, …" if len(values) > _MOST_RUNS else shown or DASH


def in_unit(value: float | None, result: PredicateResult) -> str:
    """An estimate or a bound; of a regression a relative change."""
    if value is not None and result.kind == "regression":
        return f"{value * 100:+.3g} %"
    return number(value, result.statistic)


def interval(result: PredicateResult) -> str:
    """Both bounds."""
    if result.low is None or result.high is None:
        return DASH
    return f"{in_unit(result.low, result)} to {in_unit(result.high, result)}"


def effects(result: PredicateResult) -> str:
    """The pairs' own differences."""
    shown = ", ".join(in_unit(v, result) for v in result.effects[:_MOST_RUNS])
    return f"{shown}, …" if len(result.effects) > _MOST_RUNS else shown or DASH


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
    return in_unit(result.limit, result)


def _cut_off(value: float | None, result: PredicateResult) -> str:
    if value is not None and result.cap is not None and value >= result.cap:
        return f">= {milliseconds(result.cap)} ms"
    if value is not None and result.kind == "regression":
        return f"{milliseconds(value)} ms"
    return number(value, result.statistic)


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
