"""Ledgers and runs for the tests of the store: recorded runs, and replays of what they offered."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analysis import store
from collectors.run import Run, read_run, run_workload
from replay.config import Config, parse_config
from replay.events import Rows, event_sha256, to_rows
from replay.lab import replay_lab
from replay.ledger import Ledger
from replay.limitations import labels
from replay.oracle.verify import conservation
from replay.receipt import build_receipt, receipt_sha256
from replay.requests_table import request_table
from replay.workload import Request, Workload

RUNS = Path(__file__).parent.parent / "fixtures" / "runs"


@cache
def recorded(name: str = "base-1") -> Run:
    """A recorded run of a real vLLM."""
    return read_run(RUNS / name)


@cache
def window(start: int = 0, count: int = 40, run: str = "base-1") -> Workload:
    """Some of the requests a recorded run was offered; their ids begin with az."""
    return run_workload(recorded(run), start, count)


@cache
def lab_ledger(recovery: str = "recompute", run: str = "base-1") -> Ledger:
    """40 requests of a run through the lab, in few enough blocks for preemptions."""
    config = parse_config(
        {
            "engine": {
                "profile": "lab",
                "block_size": 32,
                "capacity_blocks": 30,
                "tick_us": 20_000,
            },
            "policy": {"recovery": recovery, "kv_bytes_per_token": 2048},
        },
        "config",
    )
    return sealed(window(run=run), config)


def engine_config(**engine: Any) -> Config:
    """The configuration of base-1's engine, or a change of it, as the vllm-v1 profile has it."""
    like_base_1 = {
        "profile": "vllm-v1",
        "rule": "vllm-0.32.0",
        "block_size": 32,
        "capacity_blocks": 47,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "max_model_len": 960,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "tick_us": 20_000,
    }
    policy = {"kv_bytes_per_token": 2048}
    tables = {"engine": like_base_1 | engine, "policy": policy}
    return parse_config(tables, "config", assume=True)


@cache
def engine_ledger(run: str = "base-1") -> Ledger:
    """A ledger that says it describes base-1's engine, of everything a run was offered."""
    return sealed(run_workload(recorded(run)), engine_config())


def sealed(workload: Workload, config: Config, **changes: Any) -> Ledger:
    """A ledger of the lab's events whose receipt, with `changes`, has the right hashes.

    For a vllm-v1 configuration the events are not what that profile would give: the store does
    not replay, so it cannot tell.
    """
    lab = config.engine.profile == "lab"
    events = _replayed(workload.requests, config if lab else engine_config())
    described = config if lab else _lab_twin()
    checks = conservation(workload, described, events)[0]
    receipt = build_receipt(workload, described, events, checks) | {
        "engine": {"profile": config.engine.profile, "rule": config.engine.rule},
        "input_sha256": config.input_sha256(workload.sha256),
        "event_sha256": event_sha256(events, config),
    }
    receipt |= labels(config)
    requests = request_table(workload, events)
    return Ledger(workload, config, events, requests, resealed(receipt | changes))


def resealed(receipt: dict[str, Any]) -> dict[str, Any]:
    """The receipt with the hash that fits it."""
    return receipt | {"receipt_sha256": receipt_sha256(receipt)}


@cache
def _replayed(requests: tuple[Request, ...], config: Config) -> Rows:
    return to_rows(replay_lab(Workload(requests), config))


def _lab_twin() -> Config:
    return parse_config({"engine": {"profile": "lab", "capacity_blocks": 47}}, "config")


def accept_engine_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load vllm-v1 ledgers, which no release can make or verify yet: joins must know them."""
    checked = store._check_ledger

    def check(ledger: Ledger, place: str) -> None:
        if ledger.config.engine.profile == "lab":
            checked(ledger, place)

    monkeypatch.setattr(store, "_check_ledger", check)
