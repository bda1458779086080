"""The lab scheduler against worked examples and against a second implementation."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from lab_reference import (
    reference_binary,
    reference_input_sha256,
    reference_requests,
    reference_workload_sha256,
)
from workloads import contracts, lab_inputs

from replay.config import RECOVERIES, Policy
from replay.errors import InputError, Unfinished
from replay.events import Event, Kind, Reason, Recovery, binary_form, to_rows
from replay.lab import replay_lab
from replay.recovery import choose
from replay.requests_table import request_table
from replay.run import replay
from replay.totals import totals

ROOT = Path(__file__).parent.parent


def article(recovery: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Two requests that meet in 8 blocks of 8 tokens; `b` is evicted at 24 + 8 tokens."""
    requests = [
        {"request_id": name, "arrival_us": 0, "prompt_tokens": 24, "output_tokens": 16}
        for name in "ab"
    ]
    config = {
        "engine": {"profile": "lab", "capacity_blocks": 8, "block_size": 8},
        "policy": {"recovery": recovery, "prefill_tokens_per_tick": 48},
    }
    return requests, config


def preempts(events: list[Event]) -> list[Event]:
    """The preempt events alone."""
    return [e for e in events if e.kind == Kind.PREEMPT]


@settings(max_examples=2000)
@given(lab_inputs())
def test_two_implementations_agree_byte_for_byte(
    inputs: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    """The scheduler's ledger is the one that an implementation from the text alone writes."""
    workload, config = contracts(*inputs)
    rows = to_rows(replay_lab(workload, config))
    assert reference_binary(*inputs) == b"".join(binary_form(rows, config))
    assert reference_requests(*inputs) == request_table(workload, rows).to_dicts()
    assert reference_workload_sha256(inputs[0]) == workload.sha256
    assert reference_input_sha256(*inputs) == config.input_sha256(workload.sha256)


@settings(max_examples=200)
@given(lab_inputs())
def test_output_is_conserved_whatever_is_preempted(
    inputs: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    """A complete request generated what it asked for, and no counter of it ever fell."""
    workload, config = contracts(*inputs)
    generated = [0] * len(workload)
    for event in replay_lab(workload, config):
        assert generated[event.request_id] <= event.generated_tokens
        generated[event.request_id] = event.generated_tokens
        if event.kind == Kind.COMPLETE:
            assert workload.requests[event.request_id].output_tokens == event.generated_tokens


def test_recompute_charges_the_whole_context_and_keeps_the_output() -> None:
    """24 prompt + 8 generated tokens free 4 blocks and owe 32 tokens; generated stays 8."""
    (event,) = preempts(replay_lab(*contracts(*article("recompute"))))
    assert (24, 8, 32) == (event.prompt_tokens, event.generated_tokens, event.context_tokens)
    assert (4, 32, None) == (event.freed_blocks, event.recompute_tokens, event.swap_in_bytes)
    workload, config = contracts(*article("recompute"))
    totalled = totals(to_rows(replay_lab(workload, config)), config)
    assert (32, 32) == (totalled["charged_tokens"], totalled["replayed_tokens"])


def test_swap_moves_the_resident_bytes_both_ways() -> None:
    """32 tokens at 512 bytes move 16,384 out and 16,384 in, 32,768 in all."""
    workload, config = contracts(*article("swap"))
    events = replay_lab(workload, config)
    (event,) = preempts(events)
    assert (16_384, 16_384) == (event.swap_out_bytes, event.swap_in_bytes)
    totalled = totals(to_rows(events), config)
    assert 32_768 == totalled["swap_out_bytes"] + totalled["swap_in_bytes"]


def test_adaptive_shows_the_losing_estimate() -> None:
    """Both estimates stand in the event, whichever of them won."""
    (event,) = preempts(replay_lab(*contracts(*article("adaptive"))))
    assert (1, 4, Recovery.RECOMPUTE, Reason.CHEAPER) == (
        event.estimate_recompute_ticks,
        event.estimate_swap_ticks,
        event.recovery,
        event.recovery_reason,
    )


@pytest.mark.parametrize(
    ("recovery", "state", "expected"),
    [
        ("recompute", {}, (Recovery.RECOMPUTE, None)),
        ("swap", {}, (Recovery.SWAP, None)),
        ("swap", {"incomplete": True}, (Recovery.RECOMPUTE, Reason.INCOMPLETE)),
        ("recompute", {"incomplete": True}, (Recovery.RECOMPUTE, Reason.INCOMPLETE)),
        ("recompute", {"on_host": True}, (Recovery.SWAP, Reason.ON_HOST)),
        ("swap", {"host_held_bytes": 1}, (Recovery.RECOMPUTE, Reason.HOST_FULL)),
        ("adaptive", {"host_held_bytes": 1}, (Recovery.RECOMPUTE, Reason.HOST_FULL)),
        ("adaptive", {}, (Recovery.SWAP, Reason.CHEAPER)),
        ("adaptive", {"context_tokens": 2}, (Recovery.RECOMPUTE, Reason.TIE)),
        ("adaptive", {"context_tokens": 1}, (Recovery.RECOMPUTE, Reason.CHEAPER)),
        ("recompute", {"host_held_bytes": 1}, (Recovery.RECOMPUTE, None)),
    ],
)
def test_the_first_reason_that_holds_is_recorded(
    recovery: str, state: dict[str, Any], expected: tuple[Recovery, Reason | None]
) -> None:
    """on_host before incomplete before host_full before the estimates."""
    policy = Policy(
        recovery=recovery,
        kv_bytes_per_token=1,
        prefill_tokens_per_tick=1,
        transfer_bytes_per_tick=32,
        host_capacity_bytes=32,
    )
    state = {"context_tokens": 32, **state}
    choice = choose(policy, **state)
    assert expected == (choice.recovery, choice.reason)
    assert (state["context_tokens"], 2) == (choice.recompute_ticks, choice.swap_ticks)


def test_policies_share_the_input_hash_and_nothing_else() -> None:
    """Three recoveries of one workload: one input hash, three event hashes."""
    receipts = [replay(*contracts(*article(recovery))).receipt for recovery in RECOVERIES]
    assert 1 == len({r["input_sha256"] for r in receipts})
    assert 3 == len({r["event_sha256"] for r in receipts})


def test_what_is_unfinished_is_refused_or_censored() -> None:
    """Requests left at max_ticks fail the run, or end the ledger as censored, never dropped."""
    requests, config = article("recompute")
    inputs = contracts(requests, config | {"limits": {"max_ticks": 15}})
    with pytest.raises(Unfinished, match="2 of 2 requests"):
        replay(*inputs)
    ledger = replay(*inputs, keep_censored=True)
    assert ["censored", "censored"] == ledger.requests["status"].to_list()
    assert 2 == ledger.receipt["totals"]["censored"]


def test_a_request_larger_than_the_pool_is_refused() -> None:
    """The last generated token needs a place too."""
    requests, config = article("recompute")
    requests[1]["output_tokens"] = 41
    with pytest.raises(InputError, match=r"request 1: .* must fit 8 blocks of 8 tokens"):
        replay(*contracts(requests, config))


def test_the_core_needs_no_network_file_or_code_from_data() -> None:
    """A replay runs with sockets, open, eval and exec blocked, and imports nothing for it."""
    script = textwrap.dedent("""
        import sys
        sys.path[:0] = sys.argv[1:]
        import builtins, socket
        from test_lab import article
        from workloads import contracts
        from replay.events import binary_form, to_rows
        from replay.lab import replay_lab
        workload, config = contracts(*article("swap"))
        list(binary_form(to_rows([]), config))  # what it needs is imported when first used

        def blocked(*_, **__):
            raise AssertionError("blocked")

        forbidden = ("open", "socket.", "compile", "exec", "import", "os.", "subprocess.", "eval")
        armed = False

        def audit(name, arguments):
            if armed and name.startswith(forbidden):
                raise AssertionError(name)

        sys.addaudithook(audit)
        for name in ("open", "eval", "exec", "compile", "__import__"):
            setattr(builtins, name, blocked)
        socket.socket = blocked
        armed = True
        events = replay_lab(workload, config)
        size = sum(map(len, binary_form(to_rows(events), config)))
        armed = False
        print(len(events), size > 0)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT), str(ROOT / "tests")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "12 True\n" == done.stdout
