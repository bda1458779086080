"""A report in Markdown: measured and modelled apart, flagged requests marked, nothing left out.

Pure: rows in, text out. Every table says by its headings which kind of number it holds; where
both meet, each column does. Names in it come from strangers and are escaped.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from analysis import report_fidelity, report_modelled
from analysis.comparable import METRICS_ONLY
from analysis.counter import disagreement
from analysis.driver import driver_limitations
from analysis.gate.comparability import LABELS
from analysis.latencies import import_limitations, latencies, left_out
from analysis.markdown import escape, milliseconds, table
from analysis.report_data import ReportData, Row
from analysis.report_modelled import SENTENCE
from replay.limitations import LIMITATIONS
from replay.strict import printable

_MOST_NAMED = 10  # runs in one sentence


def markdown_report(data: ReportData) -> str:
    """Whole report, ending in a newline."""
    sections = (
        _head(data),
        _gates(data.gates),
        _runs(data),
        _statuses(data),
        _by_preemptions(data.by_preemptions),
        _counters(data.counters),
        report_modelled.ledgers(data.ledgers),
        report_fidelity.section(data),
        report_modelled.requests(data),
        report_modelled.kinds_of_join(data),
        _limitations(data),
        report_modelled.hashes(data.ledgers),
    )
    return "\n".join(line for section in sections for line in section).rstrip("\n") + "\n"


def _head(data: ReportData) -> Iterator[str]:
    yield "# Preemption report"
    yield ""
    yield (
        f"{len(data.runs)} measured run(s), {len(data.ledgers)} modelled ledger(s),"
        f" {len(data.gates)} gate verdict(s)."
    )
    yield ""
    yield (
        "**Measured** numbers come from a real engine. **Modelled** numbers are declared"
        " arithmetic: ticks, tokens and bytes under stated rates. No tick here is a latency."
        " A dash is a value nobody has, which is not zero."
    )
    yield ""


def _gates(gates: Sequence[Row]) -> Iterator[str]:
    for gate in gates:
        yield f"## Gate {escape(gate['gate']['name'])}: {escape(gate['sentence'], SENTENCE)}"
        yield ""
        compared = gate["comparability"]
        for change in compared["changed"]:
            values = f"{_plain(change['baseline'])} to {_plain(change['candidate'])}"
            yield f"- declared change: {escape(change['field'])} from {values}"
        for difference in compared["differing"]:
            values = ", ".join(
                f"{_plain(v['value'])} in {_plain(v['run_id'])}" for v in difference["values"]
            )
            label = LABELS[difference["why"]]
            yield f"- **{label}: {escape(difference['field'])} ({values})**"
        for side in ("baseline", "candidate"):
            names = [escape(r["run_id"]) for r in gate["runs"] if r["side"] == side]
            yield f"- {side}: {', '.join(names) or '–'}"
        yield ""
        if gate["predicates"]:
            yield from table(
                ("check", "evidence", "verdict", "reasons", "why"),
                [
                    (p["id"], p["evidence"], p["verdict"], ", ".join(p["reasons"]), p["why"])
                    for p in gate["predicates"]
                ],
            )
            yield ""
        if gate["recommendation"]:
            yield f"Next: {escape(gate['recommendation'], SENTENCE)}."
            yield ""


def _plain(value: object) -> str:
    return "–" if value is None else escape(str(value))


def _runs(data: ReportData) -> Iterator[str]:
    if not data.runs:
        return
    yield "## Measured runs"
    yield ""
    yield from table(
        ("run", "engine", "device", "model", "usable blocks", "block size", "scheduling"),
        [
            (
                r["run_id"],
                f"{r['engine_name']} {r['engine_version'] or '(version unknown)'}",
                r["device_name"] or r["device_kind"],
                r["model_name"],
                r["cache_capacity_blocks"],
                r["cache_block_size"],
                r["scheduler_scheduling_policy"],
            )
            for r in data.runs
        ],
    )
    yield ""
    yield from table(
        (
            "run",
            "measured requests",
            "measured ok",
            "measured preemptions",
            "latencies",
            "measured TTFT p50 / p95 (ms)",
            "measured TPOT p50 / p95 (ms)",
            "measured queue p95 (ms)",
            "measured requeue p95 (ms)",
        ),
        [
            (
                r["run_id"],
                r["measured_requests"],
                r["measured_ok"],
                r["measured_preemptions"],
                latencies(_fields(r)) if r["measured_requests"] else None,
                _quantiles(r, "ttft"),
                _quantiles(r, "tpot"),
                milliseconds(r["measured_queue_time_us_p95"]),
                milliseconds(r["measured_requeue_time_us_p95"]),
            )
            for r in data.runs
        ],
    )
    yield ""
    yield (
        "Quantiles are over the requests that ended well, interpolated; queue ends at the first"
        " schedule, requeue is the waiting after preemptions. TPOT is null below two tokens."
        " Latencies say whose they are: those of two sources are not comparable."
    )
    yield ""


def _statuses(data: ReportData) -> Iterator[str]:
    statuses = data.statuses
    if not statuses:
        return
    names = list(dict.fromkeys(s["measured_status"] for s in statuses))
    names.sort(key=("ok", "aborted", "error", "censored", "unsent", "rejected").index)
    by_run: dict[str, Row] = {}
    for s in statuses:
        row = by_run.setdefault(s["run_id"], {"offered": s["measured_offered"]})
        row[s["measured_status"]] = s["measured_requests"]
    yield "## What became of the requests (measured)"
    yield ""
    yield from table(
        ("run", "offered", *names),
        [(run, row["offered"], *(row[n] for n in names)) for run, row in by_run.items()],
    )
    yield ""
    for run, row in by_run.items():
        if row["offered"] is None:
            continue
        there = sum(row[n] or 0 for n in names)
        if there != row["offered"]:
            yield (
                f"**{escape(run)} is incomplete: {there:,} rows of {row['offered']:,} requests"
                " offered. No number of this run speaks for the missing ones.**"
            )
            yield ""

    for r in data.runs:
        if sentence := left_out(r["run_id"], _fields(r)):
            yield f"**{escape(sentence, SENTENCE)}**"
            yield ""


def _by_preemptions(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield "## By number of preemptions (measured)"
    yield ""
    yield from table(
        (
            "run",
            "measured preemptions of a request",
            "measured requests",
            "measured ok",
            "measured TTFT p50 (ms)",
            "measured TPOT p50 (ms)",
            "measured requeue p50 (ms)",
        ),
        [
            (
                r["run_id"],
                r["measured_num_preemptions"],
                r["measured_requests"],
                r["measured_ok"],
                milliseconds(r["measured_ttft_us_p50"]),
                milliseconds(r["measured_tpot_us_p50"]),
                milliseconds(r["measured_requeue_time_us_p50"]),
            )
            for r in rows
        ],
    )
    yield ""


def _counters(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield "## Preemptions by the engine's own counter (measured)"
    yield ""
    yield from table(
        (
            "run",
            "series",
            "samples",
            "from (s)",
            "to (s)",
            "preemptions by the counter",
            "resets",
            "preempt events then",
            "difference",
            "not compared",
        ),
        [
            (
                r["run_id"],
                r["measured_series"],
                r["measured_samples"],
                _seconds(r["measured_from_us"]),
                _seconds(r["measured_to_us"]),
                r["measured_counter_preemptions"],
                r["measured_resets"],
                r["measured_preempt_events_in_window"],
                r["measured_difference"],
                r["measured_not_compared"],
            )
            for r in rows
        ],
    )
    yield ""
    yield (
        "The counter rises when a victim next emits a token, so a number belongs to a window. A"
        " dash is not measured. After a reset the counter's number is a lower bound. The events"
        " are the recorder's in the counter's window, the difference is counter less events."
    )
    yield ""
    for r in rows:
        if sentence := disagreement(r):
            yield f"**{escape(r['run_id'])}: {escape(sentence, SENTENCE)}.**"
            yield ""


def _limitations(data: ReportData) -> Iterator[str]:
    yield "## Limitations"
    yield ""
    sentences = [text for run in data.runs for text in _of_run(run)]
    sentences += _without_requests(data.runs)
    sentences += [text for gate in data.gates for text in gate["limitations"]]
    for sentence in dict.fromkeys((*sentences, *LIMITATIONS)):
        yield f"- {escape(sentence, SENTENCE)}"
    yield ""


def _of_run(run: Row) -> list[str]:
    sentences = import_limitations(run["run_id"], _fields(run))
    return sentences + driver_limitations(run["run_id"], _fields(run))


def _fields(run: Row) -> Callable[[str], Any]:
    """A row's manifest fields by their dotted names."""
    return lambda dotted: run[dotted.replace(".", "_")]


def _without_requests(runs: Sequence[Row]) -> list[str]:
    bare = [
        printable(r["run_id"])
        for r in runs
        if r["measured_requests"] is None and r["offered_requests"] is None
    ]
    if not bare:
        return []
    more = f" and {len(bare) - _MOST_NAMED} more" if len(bare) > _MOST_NAMED else ""
    names = ", ".join(bare[:_MOST_NAMED])
    return [f"No request was recorded in {names}{more}: {METRICS_ONLY}."]


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1_000_000


def _quantiles(run: Row, name: str) -> str | None:
    found = [milliseconds(run[f"measured_{name}_us_{quantile}"]) for quantile in ("p50", "p95")]
    return " / ".join(value or "–" for value in found) if any(found) else None
