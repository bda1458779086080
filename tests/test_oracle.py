"""Every mutation of a ledger is caught, by equation and seq, even when the hashes fit again."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import contracts, lab_inputs

from replay.config import RECOVERIES, Config
from replay.events import (
    COLUMNS,
    NEVER_NULL,
    Event,
    Kind,
    Recovery,
    ledger_header,
    to_events,
    to_rows,
)
from replay.lab import replay_lab
from replay.ledger import Ledger, read_ledger, write_ledger
from replay.limitations import LIMITATIONS
from replay.oracle.lab import ALL_EQUATIONS
from replay.oracle.verify import conservation, verify_ledger
from replay.receipt import build_receipt
from replay.requests_table import request_table
from replay.run import replay
from replay.workload import Workload

Events = list[Event]


def crowd(recovery: str) -> tuple[Workload, Config]:
    """Eight requests in a pool for two: every kind of event happens."""
    requests = [
        {
            "request_id": f"r{k}",
            "arrival_us": k // 3,
            "prompt_tokens": 9 + k,
            "output_tokens": 20 - k,
            "priority": k % 2,
        }
        for k in range(8)
    ]
    config = {
        "engine": {"profile": "lab", "capacity_blocks": 9, "block_size": 4},
        "policy": {
            "recovery": recovery,
            "prefill_tokens_per_tick": 5,
            "transfer_bytes_per_tick": 4096,
        },
        "fairness": {"max_queue_ticks": 10, "max_preemptions": 1},
    }
    return contracts(requests, config)


def refitted(ledger: Ledger, events: Sequence[Event], **changes: Any) -> Ledger:
    """The same ledger with other events, and everything that can be recomputed made to fit."""
    config = changes.get("config", ledger.config)
    checks = [{"equation": e, "holds": True} for e in ALL_EQUATIONS]
    rows = to_rows(events)
    return Ledger(
        ledger.workload,
        config,
        rows,
        request_table(ledger.workload, rows),
        build_receipt(ledger.workload, config, rows, checks),
    )


# What a missing event of a kind breaks.
DROPPED = {
    Kind.ARRIVE: "events are in the order",
    Kind.ADMIT: "the queue is ordered",
    Kind.RESUME: "the queue is ordered",
    Kind.PREEMPT: "the victim is the rule's choice",
    Kind.SWAPPED_OUT: "bytes out",
    Kind.RECOVERED: "bytes in",
    Kind.FIRST_TOKEN: "generated tokens never fall",
    Kind.COMPLETE: "generated tokens never fall",
    Kind.FLAG_WAIT: "flags exactly when",
    Kind.FLAG_REPEAT: "flags exactly when",
}


def renumbered(events: Sequence[Event]) -> Events:
    """Events whose seq has no gap again."""
    return [e._replace(seq=k) for k, e in enumerate(events)]


def position(events: Sequence[Event], holds: Callable[[Event], bool]) -> int:
    """Where the first event is of which something holds."""
    return next(k for k, e in enumerate(events) if holds(e))


def changed(events: Sequence[Event], at: int, **columns: Any) -> Events:
    """Events with one of them changed."""
    return [*events[:at], events[at]._replace(**columns), *events[at + 1 :]]


def erase_output(events: Events) -> tuple[Events, int, str]:
    """The victim's generated tokens are gone, and its other counters agree."""
    at = position(events, lambda e: e.kind == Kind.PREEMPT and e.generated_tokens > 0)
    lost = events[at].generated_tokens
    erased = changed(
        events,
        at,
        generated_tokens=0,
        remaining_tokens=events[at].remaining_tokens + lost,
        context_tokens=events[at].context_tokens - lost,
    )
    return erased, at, "generated tokens never fall"


def drop_restore_bytes(events: Events) -> tuple[Events, int, str]:
    """The way back in costs nothing."""
    at = position(events, lambda e: e.kind == Kind.PREEMPT and e.recovery == Recovery.SWAP)
    return changed(events, at, swap_in_bytes=0), at, "bytes in"


def drop_event(kind: Kind) -> Callable[[Events], tuple[Events, int, str]]:
    """One event of a kind is missing and the rest are numbered anew."""

    def mutate(events: Events) -> tuple[Events, int, str]:
        at = position(events, lambda e: e.kind == kind)
        return renumbered([*events[:at], *events[at + 1 :]]), at, DROPPED[kind]

    mutate.__name__ = f"drop_{kind.name.lower()}"
    return mutate


def duplicate_event(events: Events) -> tuple[Events, int, str]:
    """One preemption is told twice."""
    at = position(events, lambda e: e.kind == Kind.PREEMPT)
    return renumbered([*events[: at + 1], *events[at:]]), at + 1, "the victim is the rule's choice"


def false_flag(events: Events) -> tuple[Events, int, str]:
    """A request is flagged for nothing."""
    at = position(events, lambda e: e.kind == Kind.FLAG_WAIT)
    false = events[at]._replace(kind=Kind.FLAG_REPEAT)
    return renumbered([*events[:at], false, *events[at:]]), at, "flags exactly when"


def swap_victims(events: Events) -> tuple[Events, int, str]:
    """Two preemptions exchange their victims."""
    one = position(events, lambda e: e.kind == Kind.PREEMPT)
    two = position(
        events, lambda e: e.kind == Kind.PREEMPT and e.request_id != events[one].request_id
    )
    first, second = events[one].request_id, events[two].request_id
    swapped = changed(changed(events, one, request_id=second), two, request_id=first)
    return swapped, one, "the victim is the rule's choice"


def change_freed_block(events: Events) -> tuple[Events, int, str]:
    """One block more was freed, and the occupancy agrees."""
    at = position(events, lambda e: e.kind == Kind.PREEMPT)
    event = events[at]
    more = changed(
        events,
        at,
        freed_blocks=(event.freed_blocks or 0) + 1,
        occupied_blocks_after=event.occupied_blocks_after - 1,
    )
    return more, at, "freed blocks = the victim's residency"


def truncate(events: Events) -> tuple[Events, int, str]:
    """The ledger stops right before a preemption."""
    at = position(events, lambda e: e.kind == Kind.PREEMPT)
    return events[:at], at - 1, "the victim is the rule's choice"


MUTATIONS = [
    erase_output,
    drop_restore_bytes,
    *(drop_event(kind) for kind in Kind if kind is not Kind.CENSORED),
    duplicate_event,
    false_flag,
    swap_victims,
    change_freed_block,
    truncate,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_each_mutation_is_caught_with_all_hashes_recomputed(
    mutation: Callable[[Events], tuple[Events, int, str]], tmp_path: Path
) -> None:
    """A mutated ledger whose rows, receipt and hashes fit again is named by equation and seq."""
    ledger = replay(*crowd("swap"))
    events, seq, equation = mutation(to_events(ledger.events))
    write_ledger(refitted(ledger, events), tmp_path / "mutated")
    violations = verify_ledger(read_ledger(tmp_path / "mutated"))
    assert (seq, True) == (violations[0].seq, violations[0].equation in ALL_EQUATIONS)
    assert any(v.seq == seq and equation in v.equation for v in violations)


@pytest.mark.parametrize("was", RECOVERIES)
@pytest.mark.parametrize("becomes", RECOVERIES)
def test_a_relabelled_policy_is_caught(was: str, becomes: str) -> None:
    """A ledger under another policy's name fails at the first recovery that tells them apart."""
    ledger = replay(*crowd(was))
    events = to_events(ledger.events)
    relabelled = refitted(ledger, events, config=ledger.config.with_policy(becomes, None))
    violations = verify_ledger(relabelled)
    first = position(events, lambda e: e.kind == Kind.PREEMPT)
    assert (was != becomes) == any(
        v.seq is not None and v.seq >= first and "recovery follows the policy" in v.equation
        for v in violations
    )


def test_a_header_that_names_another_policy_is_caught() -> None:
    """The binary form's own label must be the configuration's."""
    ledger = replay(*crowd("swap"))
    header = {"columns": list(COLUMNS), "policy": {"recovery": "recompute", "victim": "rule"}}
    header |= {"profile": "lab", "rule": "lab-1", "schema": "preemption-ledger/1"}
    header["limitations"] = list(LIMITATIONS)
    (violation,) = verify_ledger(replace(ledger, header=header))
    first = position(to_events(ledger.events), lambda e: e.kind == Kind.PREEMPT)
    assert (first, True) == (violation.seq, "header names the policy" in violation.equation)


def test_a_wrong_label_hides_no_other_violation() -> None:
    """A ledger whose metadata lost its limitations is still checked event by event."""
    ledger = replay(*crowd("swap"))
    events, seq, equation = change_freed_block(to_events(ledger.events))
    stripped = replace(refitted(ledger, events), header=ledger_header(ledger.config))
    violations = verify_ledger(stripped)
    assert any(v.seq == seq and equation in v.equation for v in violations)
    assert any("header names the policy" in v.equation for v in violations)


def test_a_cleared_flag_in_the_rows_is_caught_at_its_event() -> None:
    """requests.parquet cannot forget a flag that the events show."""
    ledger = replay(*crowd("recompute"))
    events = to_events(ledger.events)
    at = position(events, lambda e: e.kind == Kind.FLAG_WAIT)
    rows = ledger.requests.clone()
    rows[events[at].request_id, "flagged_wait"] = False
    (violation,) = verify_ledger(replace(ledger, requests=rows))
    assert (at, "flags exactly when the predicate holds") == (violation.seq, violation.equation)


@pytest.mark.parametrize(
    ("found", "shown"),
    [("censored", "censored"), ("S3CRET", "a string of 6 code points"), (None, "null")],
)
def test_a_wrong_status_is_named_if_it_is_one_of_ours(found: str | None, shown: str) -> None:
    """The violation says which there are; a stranger's text is only measured."""
    ledger = replay(*crowd("recompute"))
    rows = ledger.requests.clone()
    rows[0, "status"] = found
    (violation,) = verify_ledger(replace(ledger, requests=rows))
    expected = f"status must be complete (one of complete, censored), found {shown}"
    assert f"requests.parquet row 0: {expected}" == violation.detail


@settings(max_examples=300)
@given(lab_inputs(), st.data())
def test_any_single_cell_is_implied_by_the_rest(
    inputs: tuple[list[dict[str, Any]], dict[str, Any]], data: st.DataObject
) -> None:
    """Changing any one value of any event is a violation at that event's seq."""
    workload, config = contracts(*inputs)
    events = replay_lab(workload, config)
    assert [] == conservation(workload, config, to_rows(events))[1]
    at = data.draw(st.integers(0, len(events) - 1))
    column = data.draw(st.sampled_from(COLUMNS))
    old = getattr(events[at], column)
    values = [0, 1, (old or 0) + 1, (old or 0) - 1, *([] if column in NEVER_NULL else [None])]
    new = data.draw(st.sampled_from([v for v in values if v != old]))
    found = conservation(workload, config, to_rows(changed(events, at, **{column: new})))[1]
    assert at in {v.seq for v in found}


@pytest.mark.parametrize("recovery", RECOVERIES)
def test_a_written_ledger_verifies_alone(recovery: str, tmp_path: Path) -> None:
    """What was written reads back and holds, with nothing beside it."""
    ledger = replay(*crowd(recovery))
    write_ledger(ledger, tmp_path / "ledger")
    read = read_ledger(tmp_path / "ledger")
    assert ledger.events.tolist() == read.events.tolist()
    assert ledger.requests.equals(read.requests)
    assert [] == verify_ledger(read)


@pytest.mark.parametrize(
    "key", ["event_sha256", "input_sha256", "workload_sha256", "receipt_sha256", "totals"]
)
def test_a_receipt_that_does_not_fit_is_named(key: str, tmp_path: Path) -> None:
    """Each hash and each total of the receipt is recomputed."""
    write_ledger(replay(*crowd("swap")), tmp_path / "ledger")
    path = tmp_path / "ledger" / "receipt.json"
    receipt = json.loads(path.read_text())
    if key == "totals":
        receipt[key]["queue_ticks"] += 1
    else:
        receipt[key] = "0" * 64
    path.write_text(json.dumps(receipt))
    details = [v.detail for v in verify_ledger(read_ledger(tmp_path / "ledger"))]
    assert f"receipt.json: {key} does not fit" in details


def test_a_receipt_with_a_number_json_has_no_form_for_is_a_violation(tmp_path: Path) -> None:
    """NaN in a receipt is named, and crashes nothing."""
    write_ledger(replay(*crowd("swap")), tmp_path / "ledger")
    path = tmp_path / "ledger" / "receipt.json"
    path.write_text(path.read_text().replace('"tick_us": 1', '"tick_us": NaN'))
    (violation,) = verify_ledger(read_ledger(tmp_path / "ledger"))
    assert (None, True) == (violation.seq, "no form for" in violation.detail)


def test_an_edited_export_is_named_by_its_line(tmp_path: Path) -> None:
    """events.jsonl must say what events.parquet says."""
    write_ledger(replay(*crowd("swap")), tmp_path / "ledger")
    path = tmp_path / "ledger" / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:5], lines[5].replace('"seq":4', '"seq":44'), *lines[6:]]))
    (violation,) = verify_ledger(read_ledger(tmp_path / "ledger"))
    assert (4, "events.jsonl:6 differs") == (violation.seq, violation.detail)


def test_a_request_no_workload_knows_is_named() -> None:
    """Names outside the contract are violations of their own, not crashes."""
    ledger = replay(*crowd("swap"))
    events = changed(to_events(ledger.events), 3, request_id=-1)
    (violation,) = verify_ledger(replace(ledger, events=to_rows(events)))
    assert 3 == violation.seq
