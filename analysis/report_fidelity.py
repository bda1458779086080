"""The section of a report that says what its modelled numbers are worth: scores of each replay."""

from collections.abc import Iterator

from analysis.fidelity.metrics import place
from analysis.markdown import escape, milliseconds, table
from analysis.report_data import ReportData, Row
from analysis.report_modelled import name

_COUNTS = {"preempt_events": "preempt events", "preemptions": "preemptions"}
_TIMES = {
    "ttft_us": "TTFT",
    "tpot_us": "TPOT",
    "e2e_us": "e2e",
    "queue_us": "queue",
    "requeue_us": "requeue",
}


def section(data: ReportData) -> Iterator[str]:
    """Each ledger's level and scores beside its run, or that nothing says how right it is."""
    if not data.ledgers:
        return
    yield "## How well the replays describe their runs (modelled beside measured)"
    yield ""
    yield (
        "Error is (modelled − measured) / measured. A level says what a comparison is worth:"
        " stepped replays know the engine's own arrival steps, timed ones the duration of a step,"
        " fitted to this run or, a forecast, to another."
    )
    yield ""
    unknown = []
    for ledger in data.ledgers:
        key = (ledger["ledger_id"], ledger["run_id"])
        scores = [r for r in data.fidelity if (r["ledger_id"], r["run_id"]) == key]
        if not scores:
            unknown.append(name(ledger))
            continue
        yield f"**{name(ledger)}: {escape(scores[0]['fidelity_level'])}**"
        yield ""
        yield from table(
            ("of run", "metric", "requests", "modelled", "measured", "error"),
            [_line(row) for row in sorted(scores, key=lambda row: place(row["metric"]))],
        )
        yield ""
    if unknown:
        yield (
            "Of these nothing says how well they describe an engine (a what-if, the lab, or no run"
            f" to compare with): {'; '.join(unknown)}."
        )
        yield ""


def _line(row: Row) -> tuple[object, ...]:
    metric = row["metric"]
    error = None if row["error_frac"] is None else f"{row['error_frac']:+.1%}"
    values = (row["modelled_value"], row["measured_value"])
    if metric in _COUNTS:
        return (row["run_id"], _COUNTS[metric], row["requests"], *values, error)
    time, quantile = metric.rsplit("_", 1)
    label = f"{_TIMES[time]} {quantile} (ms)"
    return (row["run_id"], label, row["requests"], *map(milliseconds, values), error)
