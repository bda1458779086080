"""A report in Markdown: measured and modelled apart, flagged requests marked, nothing left out.

Pure: rows in, text out. Every table says by its headings which kind of number it holds; where
both meet, each column does. Names in it come from strangers and are escaped.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from analysis.markdown import escape, table
from analysis.report_data import ReportData, Row
from replay.limitations import LIMITATIONS
from replay.receipt import TIE_RULE, victim_rule

MOST_REQUESTS = 25
_SENTENCE = 2000  # characters of text that is not one name
WAITED, DISPLACED = "▲", "✕"


def markdown_report(data: ReportData) -> str:
    """Whole report, ending in a newline."""
    sections = (
        _head(data),
        _gates(data.gates),
        _runs(data),
        _statuses(data.statuses),
        _by_preemptions(data.by_preemptions),
        _ledgers(data.ledgers),
        _requests(data),
        _kinds_of_join(data),
        _limitations(data.gates),
        _hashes(data),
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
        yield f"## Gate {escape(gate['gate']['name'])}: {escape(gate['sentence'], _SENTENCE)}"
        yield ""
        compared = gate["comparability"]
        for change in compared["changed"]:
            values = f"{_plain(change['baseline'])} to {_plain(change['candidate'])}"
            yield f"- declared change: {escape(change['field'])} from {values}"
        for difference in compared["differing"]:
            values = ", ".join(
                f"{_plain(v['value'])} in {_plain(v['run_id'])}" for v in difference["values"]
            )
            yield f"- **differs: {escape(difference['field'])} ({values})**"
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
            yield f"Next: {escape(gate['recommendation'], _SENTENCE)}."
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
                _both(_ms(r["measured_ttft_us_p50"]), _ms(r["measured_ttft_us_p95"])),
                _both(_ms(r["measured_tpot_us_p50"]), _ms(r["measured_tpot_us_p95"])),
                _ms(r["measured_queue_time_us_p95"]),
                _ms(r["measured_requeue_time_us_p95"]),
            )
            for r in data.runs
        ],
    )
    yield ""
    yield (
        "Quantiles are over the requests that ended well, interpolated; queue ends at the first"
        " schedule, requeue is the waiting after preemptions. TPOT is null below two tokens."
    )
    yield ""


def _statuses(statuses: Sequence[Row]) -> Iterator[str]:
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
        there = sum(row[n] for n in names)
        if row["offered"] is not None and there != row["offered"]:
            yield (
                f"**{escape(run)} is incomplete: {there:,} rows of {row['offered']:,} requests"
                " offered. No number of this run speaks for the missing ones.**"
            )
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
                *(_ms(r[f"measured_{name}_us_p50"]) for name in ("ttft", "tpot", "requeue_time")),
            )
            for r in rows
        ],
    )
    yield ""


def _ledgers(ledgers: Sequence[Row]) -> Iterator[str]:
    if not ledgers:
        return
    yield "## Policies side by side (modelled)"
    yield ""
    yield from table(
        (
            "recovery",
            "of run",
            "modelled requests",
            "modelled complete / censored",
            "modelled preemptions",
            "modelled blocks freed",
            "modelled tokens charged / replayed",
            "modelled tokens executed",
            "modelled recompute tax",
            "modelled bytes out / in",
            "modelled queue ticks",
            f"modelled {WAITED} / {DISPLACED}",
        ),
        [
            (
                f"{r['recovery']} (what-if)" if r["what_ifs"] else r["recovery"],
                r["run_id"],
                r["modelled_requests"],
                f"{r['modelled_completions']} / {r['modelled_censored']}",
                r["modelled_preemptions"],
                r["modelled_freed_blocks"],
                f"{r['modelled_charged_tokens']:,} / {r['modelled_replayed_tokens']:,}",
                r["modelled_executed_tokens"],
                _percent(r["modelled_recompute_tax_frac"]),
                f"{r['modelled_swap_out_bytes']:,} / {r['modelled_swap_in_bytes']:,}",
                r["modelled_queue_ticks"],
                f"{r['modelled_flagged_wait_requests']} / {r['modelled_flagged_repeat_requests']}",
            )
            for r in ledgers
        ],
    )
    yield ""
    yield (
        "Charged is what preemptions cost; replayed is what finished recoveries computed again."
        " Recompute tax is the replayed part, interrupted replays included, of all tokens executed"
        " (prefill, replay, generation)."
    )
    yield ""
    for rules in dict.fromkeys(_rules(r) for r in ledgers):
        yield f"- {rules}"
    what_ifs = (f"{r['recovery']}: {text}" for r in ledgers for text in r["what_ifs"] or ())
    for sentence in dict.fromkeys(what_ifs):
        yield f"- **{escape(sentence, _SENTENCE)}**"
    yield ""


def _rules(ledger: Row) -> str:
    """What was declared, in one line; equal for the policies of one comparison."""
    victim = victim_rule(ledger["profile"], ledger["victim"], ledger["scheduling_policy"])
    room = ledger["host_capacity_bytes"]
    return escape(
        f"profile {ledger['profile']}, rule {ledger['rule']}; {ledger['capacity_blocks']:,} blocks"
        f" of {ledger['block_size']} tokens, {ledger['kv_bytes_per_token']:,} bytes a token;"
        f" declared rates {ledger['prefill_tokens_per_tick']:,} prefill tokens and"
        f" {ledger['transfer_bytes_per_tick']:,} transfer bytes a tick,"
        f" tick {ledger['tick_us']} us,"
        f" host room {f'{room:,} bytes' if room else 'unlimited'}; victim: {victim}; {TIE_RULE}",
        _SENTENCE,
    )


def _requests(data: ReportData) -> Iterator[str]:
    if not data.ledgers:
        return
    yield "## Who paid and who waited (modelled beside measured)"
    yield ""
    yield (
        f"{WAITED} waited too long, {DISPLACED} displaced too often: beyond the ledger's declared"
        " thresholds. Flags observe; they change no schedule. Modelled and measured columns are"
        " of the same request; under another scheduler they are not expected to agree."
    )
    yield ""
    for ledger in data.ledgers:
        rows = [
            r
            for r in data.requests
            if (r["ledger_id"], r["run_id"]) == (ledger["ledger_id"], ledger["run_id"])
        ]
        yield (
            f"### {ledger['recovery']}: {WAITED} more than {ledger['max_queue_ticks']:,} queue"
            f" ticks, {DISPLACED} more than {ledger['max_preemptions']} preemptions"
        )
        yield ""
        if not rows:
            yield "No request was preempted or flagged in this replay."
            yield ""
            continue
        yield from _who_paid(rows[:MOST_REQUESTS])
        left = rows[0]["places"] - len(rows[:MOST_REQUESTS])
        yield ""
        if left > 0:
            yield f"{left} more: `preempt sql --named worst_requests --db FILE` lists all."
            yield ""


def _who_paid(rows: Sequence[Row]) -> list[str]:
    return table(
        (
            "modelled flags",
            "request",
            "join",
            "modelled preemptions",
            "modelled tokens to replay",
            "modelled bytes out / in",
            "modelled queue ticks",
            "measured status",
            "measured preemptions",
            "measured TTFT (ms)",
            "measured TPOT (ms)",
            "measured requeue (ms)",
        ),
        [
            (
                WAITED * r["modelled_flagged_wait"] + DISPLACED * r["modelled_flagged_repeat"],
                r["request_id"],
                r["join_kind"],
                r["modelled_preemptions"],
                r["modelled_recompute_tokens"],
                f"{r['modelled_swap_out_bytes']:,} / {r['modelled_swap_in_bytes']:,}",
                r["modelled_queue_ticks"],
                r["measured_status"],
                r["measured_num_preemptions"],
                _ms(r["measured_ttft_us"]),
                _ms(r["measured_tpot_us"]),
                _ms(r["measured_requeue_time_us"]),
            )
            for r in rows
        ],
    )


def _kinds_of_join(data: ReportData) -> Iterator[str]:
    joined = [r for r in data.ledgers if r["run_id"] in {run["run_id"] for run in data.runs}]
    if not joined:
        return
    yield "## Why a join is a what-if"
    yield ""
    yield (
        "A *fidelity* join compares like with like and may judge the model. Every other join of"
        " the same requests is a *what-if*; these fields differ:"
    )
    yield ""
    names = {(r["ledger_id"], r["run_id"]): r["recovery"] for r in joined}
    rows: dict[tuple[Any, ...], list[str]] = {}
    for d in data.differences:
        if (d["ledger_id"], d["run_id"]) in names:
            key = (d["run_id"], d["field"], d["modelled_value"], d["measured_value"])
            rows.setdefault(key, []).append(names[d["ledger_id"], d["run_id"]])
    yield from table(
        ("run", "field", "modelled value", "measured value", "ledgers"),
        [(*key, ", ".join(recoveries)) for key, recoveries in rows.items()],
    )
    yield ""


def _limitations(gates: Sequence[Row]) -> Iterator[str]:
    yield "## Limitations"
    yield ""
    sentences = [text for gate in gates for text in gate["limitations"]]
    for sentence in dict.fromkeys((*sentences, *LIMITATIONS)):
        yield f"- {escape(sentence, _SENTENCE)}"
    yield ""


def _hashes(data: ReportData) -> Iterator[str]:
    if not data.ledgers:
        return
    yield "## Hashes (modelled ledgers)"
    yield ""
    for ledger in data.ledgers:
        yield f"- {ledger['recovery']}"
        for name in ("workload", "input", "event", "receipt"):
            yield f"  - {name}_sha256 `{ledger[f'{name}_sha256']}`"
    yield ""


def _ms(microseconds: float | None) -> str | None:
    return None if microseconds is None else f"{microseconds / 1000:,.1f}"


def _both(one: str | None, other: str | None) -> str | None:
    return None if one is None and other is None else f"{one or '–'} / {other or '–'}"


def _percent(fraction: float | None) -> str | None:
    return None if fraction is None else f"{fraction:.1%}"
