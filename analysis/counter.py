"""What the engine's preemption counter came to, beside what the recorder saw in the same window.

Two instruments measured the same thing. Where they disagree a reader has to hear of it, and of what
is known to make them: neither is corrected by the other.
"""

from collections.abc import Mapping
from typing import Any

import duckdb

from analysis.sqlfiles import sql

Row = Mapping[str, Any]
_FEWER = (
    "the counter moves when a victim next emits a token, and never for one that is aborted before"
)


def counter_rows(db: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Rows of `preemption_counter_totals`, with how complete the recorder's part of the run is."""
    found = db.execute(sql("report", "counter"))
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def disagreement(row: Row) -> str | None:
    """How counter and recorder differ over the same window, and what can make them; None if not."""
    difference = row["measured_difference"]
    if not difference:
        return None
    side = "more" if difference > 0 else "fewer"
    events = row["measured_preempt_events_in_window"]
    reasons = _why_more(row) if difference > 0 else [_FEWER]
    return (
        f"the counter shows {abs(difference)} {side} than the {events} preemptions that the"
        f" recorder saw in the same window; {'; '.join(reasons)}"
    )


def _why_more(row: Row) -> list[str]:
    """What the recorder may have missed, and what is the counter's own."""
    window = _window(row["measured_events_from_us"], row["measured_events_to_us"])
    reasons = [f"what is recorded reaches from {window}"]
    if dropped := row["recorder_dropped_records"]:
        reasons.append(f"the recorder dropped {dropped} records")
    if row["recorder_complete"] is False:
        reasons.append("an engine was killed, whose last moment is not recorded")
    return [*reasons, "the counter has a victim of before the window if it emits within it"]


def counter_line(row: Row) -> str:
    """The counter's number for people, and how the recorder's stands to it."""
    number = row["measured_counter_preemptions"]
    if number is None:
        return f"counter: not measured ({row['measured_not_compared']})"
    least = "at least " if row["measured_resets"] else ""
    window = _window(row["measured_from_us"], row["measured_to_us"])
    start = f"counter: {least}{number} preemptions from {window}"
    if row["measured_not_compared"] is not None:
        return f"{start}; not compared with the recorder: {row['measured_not_compared']}"
    return f"{start}; {disagreement(row) or 'the recorder saw as many'}"


def _window(from_us: int, to_us: int) -> str:
    return f"{from_us / 1_000_000:.1f} to {to_us / 1_000_000:.1f} s of the run"
