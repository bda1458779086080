"""The sections of a report about modelled ledgers: what each came to, and under whose rules.

Ledgers of one policy can differ in anything else, so each is named by its policy and the first
digits of its id. Whatever leaves what vLLM does says so beside its name.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from analysis.markdown import escape, milliseconds, table
from analysis.report_data import ReportData, Row
from replay.receipt import TIE_RULE, victim_rule

MOST_REQUESTS = 25
SENTENCE = 2000  # characters of text that is not one name
WAITED, DISPLACED = "▲", "✕"
_ID_DIGITS = 8
_ARRIVALS = {"steps": "in the engine's own steps", "time": "when the clock says"}


def ledgers(rows: Sequence[Row]) -> Iterator[str]:
    """Every ledger's totals side by side, then what was declared for them."""
    if not rows:
        return
    yield "## Policies side by side (modelled)"
    yield ""
    yield from _totals(rows)
    yield ""
    yield (
        "Charged is what preemptions cost; replayed is what finished recoveries computed again."
        " Recompute tax is the part of all executed tokens that had been computed before,"
        " interrupted replays included (the lab executes prefill, replay and generation, vllm-v1"
        " positions)."
    )
    yield ""
    for rules in dict.fromkeys(_rules(r) for r in rows):
        yield f"- {rules}"
    what_ifs = (f"{r['recovery']}: {text}" for r in rows for text in r["what_ifs"] or ())
    for sentence in dict.fromkeys(what_ifs):
        yield f"- **{escape(sentence, SENTENCE)}**"
    yield ""


def requests(data: ReportData) -> Iterator[str]:
    """Of each ledger the requests that paid or waited most, beside what was measured of them."""
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
            f"### {name(ledger)}: {WAITED} more than {ledger['max_queue_ticks']:,} queue"
            f" ticks, {DISPLACED} more than {ledger['max_preemptions']} preemptions"
        )
        yield ""
        yield from _about(ledger)
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


def kinds_of_join(data: ReportData) -> Iterator[str]:
    """Which fields make a join a what-if, and of which ledgers."""
    joined = [r for r in data.ledgers if r["run_id"] in {run["run_id"] for run in data.runs}]
    if not joined:
        return
    yield "## Why a join is a what-if"
    yield ""
    intro = "A *fidelity* join compares like with like and may judge the model."
    names = {(r["ledger_id"], r["run_id"]): name(r) for r in joined}
    rows: dict[tuple[Any, ...], list[str]] = {}
    for d in data.differences:
        if (d["ledger_id"], d["run_id"]) in names:
            key = (d["run_id"], d["field"], d["modelled_value"], d["measured_value"])
            rows.setdefault(key, []).append(names[d["ledger_id"], d["run_id"]])
    if not rows:
        yield f"{intro} Every join in this report is one: no field differs."
        yield ""
        return
    yield f"{intro} Every other join of the same requests is a *what-if*; these fields differ:"
    yield ""
    lines = [(*key, "; ".join(named)) for key, named in rows.items()]
    headings = ("run", "field", "modelled value", "measured value", "ledgers")
    yield from table(headings, lines, limit=SENTENCE)
    yield ""


def hashes(rows: Sequence[Row]) -> Iterator[str]:
    """The four hashes of every ledger."""
    if not rows:
        return
    yield "## Hashes (modelled ledgers)"
    yield ""
    for ledger in rows:
        yield f"- {name(ledger)}"
        for kind in ("workload", "input", "event", "receipt"):
            yield f"  - {kind}_sha256 `{ledger[f'{kind}_sha256']}`"
    yield ""


def _totals(rows: Sequence[Row]) -> list[str]:
    return table(
        (
            "ledger",
            "recovery",
            "rule",
            "blocks",
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
                _id(r),
                _policy(r),
                r["rule"],
                r["capacity_blocks"],
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
            for r in rows
        ],
    )


def name(ledger: Row) -> str:
    """A ledger as sections call it, escaped: its policy and the first digits of its id."""
    return escape(f"{_policy(ledger)}, ledger {_id(ledger)}")


def _id(ledger: Row) -> str:
    return str(ledger["ledger_id"][:_ID_DIGITS])


def _policy(ledger: Row) -> str:
    """Recovery and victim, and what is not as vLLM does it."""
    victim, label = ledger["victim"], ""
    if ledger["assumed_from"] is not None:
        label = " (assumed rule)"
    if len(ledger["what_ifs"] or ()) > (ledger["assumed_from"] is not None):
        label = " (what-if)" + label
    return str(ledger["recovery"]) + (f", victim {victim}" if victim != "rule" else "") + label


def _about(ledger: Row) -> Iterator[str]:
    """What has to be known of one ledger before its numbers are."""
    tax = _percent(ledger["modelled_recompute_tax_frac"])
    facts = [f"Modelled recompute tax: {'–' if tax is None else tax}."]
    if ledger["arrivals"] is not None:
        facts.append(f"Requests arrive {_ARRIVALS[ledger['arrivals']]}.")
    yield " ".join([*facts, *(f"**{escape(s, SENTENCE)}**" for s in ledger["what_ifs"] or ())])
    yield ""


def _rules(ledger: Row) -> str:
    """What was declared, in one line; equal for the policies of one comparison."""
    victim = victim_rule(ledger["profile"], ledger["victim"], ledger["scheduling_policy"])
    room = ledger["host_capacity_bytes"]
    return escape(
        f"profile {ledger['profile']}, rule {ledger['rule']}; {ledger['capacity_blocks']:,} blocks"
        f" of {ledger['block_size']} tokens, {ledger['kv_bytes_per_token']:,} bytes a token;"
        f"{_scheduler(ledger)} declared rates {ledger['prefill_tokens_per_tick']:,} prefill tokens"
        f" and {ledger['transfer_bytes_per_tick']:,} transfer bytes a tick,"
        f" {_time(ledger)},"
        f" host room {f'{room:,} bytes' if room else 'unlimited'}; victim: {victim}; {TIE_RULE}",
        SENTENCE,
    )


def _scheduler(ledger: Row) -> str:
    """The options that only an engine has, in the words of its configuration."""
    if ledger["profile"] == "lab":
        return ""
    switches = (
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "async_scheduling",
        "scheduler_reserve_full_isl",
    )
    return (
        f" {ledger['scheduling_policy']}, max_num_seqs {ledger['max_num_seqs']:,},"
        f" max_num_batched_tokens {ledger['max_num_batched_tokens']:,},"
        f" max_model_len {ledger['max_model_len']:,}, watermark {ledger['watermark']},"
        f" long_prefill_token_threshold {ledger['long_prefill_token_threshold']:,},"
        f" {', '.join(f'{name} {_switch(ledger[name])}' for name in switches)};"
    )


def _time(ledger: Row) -> str:
    """How long a tick is, or what a step's duration follows from."""
    if ledger["tick_us"] is not None:
        step = "" if ledger["profile"] == "lab" else " (one step)"
        return f"tick{step} {ledger['tick_us']:,} us"
    source = "no calibration"
    if ledger["calibration_run_id"] is not None:
        source = f"fitted to {ledger['calibration_source']} of {ledger['calibration_run_id']}"
    return (
        f"a step {ledger['step_ns']:,} ns and, in ps, {ledger['prefill_token_ps']:,} a prefill"
        f" token, {ledger['decode_request_ps']:,} a decoding request,"
        f" {ledger['kv_token_ps']:,} a KV token ({source})"
    )


def _switch(value: bool | None) -> str:
    return "–" if value is None else "on" if value else "off"


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
                milliseconds(r["measured_ttft_us"]),
                milliseconds(r["measured_tpot_us"]),
                milliseconds(r["measured_requeue_time_us"]),
            )
            for r in rows
        ],
    )


def _percent(fraction: float | None) -> str | None:
    return None if fraction is None else f"{fraction:.1%}"
