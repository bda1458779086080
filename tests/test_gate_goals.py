"""What a gate promises as a whole: every answer can happen, every mutation is caught, by name."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from paired import run_of, slower
from test_gate import (
    DETERMINISTIC,
    PROGRESS,
    Row,
    answer,
    at,
    candidate,
    event_rows,
    events_with,
    ledger_of,
    only,
    preempted,
    rows,
    small,
)
from test_gate_pairs import GOODPUT, INCREASE, TTFT, cut, gate_of

from analysis.gate.verdict import PredicateResult
from collectors.run import Run
from replay.events import COLUMN, Kind
from replay.ledger import Ledger

ROOT = Path(__file__).parents[1]
SPREAD = [1.25, 0.8, 1.2, 0.85, 1.1, 0.9]

# --- each answer of each predicate -----------------------------------------------------------

SHARES = {"id": "p", "kind": "failures", "max_failed_fraction": 0.1, "max_censored_fraction": 0.1}
ERASED = {"id": "p", "kind": "erased_progress"}
REPEAT = {"id": "p", "kind": "repeated_preemption", "max_preemptions": 2}
PREDICATES: dict[str, tuple[Row, str]] = {
    "erased_progress": (ERASED, "violating_requests"),
    "repeated_preemption": (REPEAT, "max"),
    "failed": (SHARES, "failed_fraction"),
    "censored": (SHARES, "censored_fraction"),
    "regression": (TTFT | {"id": "p"}, "p95"),
    "good_fraction": (GOODPUT | {"id": "p"}, "good_fraction"),
    "good_drop": (GOODPUT | {"id": "p"}, "good_drop"),
    "failed_increase": (INCREASE | {"id": "p"}, "failed_increase"),
}


def uneven(columns: Callable[[int], list[pl.Expr]]) -> list[tuple[list[pl.Expr], float]]:
    """Columns and slowness of six candidates that differ from each other."""
    return [(columns(k), factor) for k, factor in enumerate(SPREAD)]


def every(*columns: pl.Expr, factor: float = 1.0) -> list[tuple[list[pl.Expr], float]]:
    """The same for all six candidates."""
    return [(list(columns), factor)] * 6


def status(name: str, of: int) -> pl.Expr:
    """One request of so many ended otherwise."""
    hit = pl.int_range(pl.len()) % of == 0
    return pl.when(hit).then(pl.lit(name)).otherwise(pl.col("status")).alias("status")


def number(name: str, value: int | None) -> pl.Expr:
    """A column of one number, or of none."""
    return pl.lit(value, pl.Int64).alias(name)


def half_of_some(k: int) -> list[pl.Expr]:
    """Every other request of every other candidate failed."""
    return cut(0.5) if k % 2 else []


MADE: dict[tuple[str, str], list[tuple[list[pl.Expr], float]]] = {
    ("erased_progress", "fail"): every(number("generated_tokens", 1)),
    ("erased_progress", "inconclusive"): every(number("generated_tokens", None)),
    ("repeated_preemption", "fail"): every(number("num_preemptions", 3)),
    ("repeated_preemption", "inconclusive"): every(number("num_preemptions", None)),
    ("failed", "fail"): every(status("error", 4)),
    ("censored", "fail"): every(status("censored", 4)),
    ("regression", "fail"): every(factor=1.25),
    ("regression", "inconclusive"): uneven(lambda _: []),
    ("good_fraction", "fail"): every(*cut(0.5)),
    ("good_fraction", "inconclusive"): uneven(half_of_some),
    ("good_drop", "fail"): every(*cut(0.5)),
    ("good_drop", "inconclusive"): uneven(half_of_some),
    ("failed_increase", "fail"): every(*cut(0.5)),
    ("failed_increase", "inconclusive"): uneven(half_of_some),
}


def sides(made: list[tuple[list[pl.Expr], float]], **manifest: Any) -> tuple[list[Run], list[Run]]:
    """Six pairs of equal runs, the candidates changed."""
    return (
        [run_of(f"b{k}", "baseline", k) for k in range(len(made))],
        [
            run_of(f"c{k}", "candidate", k, slower(factor, "ttft_us"), columns, **manifest)
            for k, (columns, factor) in enumerate(made)
        ],
    )


@pytest.mark.parametrize("verdict", ["pass", "fail", "inconclusive", "refused"])
@pytest.mark.parametrize("name", PREDICATES)
def test_each_predicate_can_give_each_answer(name: str, verdict: str) -> None:
    """Made to pass, to fail and not to know; runs of two engines are refused whatever it is."""
    predicate, statistic = PREDICATES[name]
    own = [] if predicate["kind"] == "erased_progress" else [predicate]
    gate = gate_of(*own)
    if verdict == "refused":
        other = {"engine": {"name": "vllm", "version": "0.31.0"}}
        report = answer(gate, *sides(every(), **other))
        assert ("refused", ()) == (report.verdict, report.predicates)
        return
    if (name, verdict) in (("failed", "inconclusive"), ("censored", "inconclusive")):
        smaller = predicate | {k: 0.01 for k in predicate if k.startswith("max_")}
        gate = gate_of(smaller)  # 240 requests show no share of 1 %
    report = answer(gate, *sides(MADE.get((name, verdict), every())))
    check = PROGRESS if predicate["kind"] == "erased_progress" else "p"
    assert verdict == only(report, check, statistic).verdict
    assert verdict == report.verdict


# --- mutations -------------------------------------------------------------------------------

MUTATIONS: dict[str, tuple[list[Row], list[Row] | None, str]] = {
    "finish below the row": (preempted(), events_with(at("finish", generated_tokens=4)), PROGRESS),
    "finish above the row": (preempted(), events_with(at("finish", generated_tokens=6)), PROGRESS),
    "token lost at a preemption": (
        preempted(),
        events_with(at("preempt", generated_tokens=6)),
        PROGRESS,
    ),
    "row short of what was asked": (preempted(generated_tokens=3), None, PROGRESS),
    "row without any token": (preempted(generated_tokens=0), None, PROGRESS),
    "row asked for more": (preempted(max_tokens=9), None, PROGRESS),
    "preempted once too often": (rows(r3={"num_preemptions": 3}), None, "repeat"),
    "preempted far too often": (rows(r3={"num_preemptions": 40}), None, "repeat"),
    "events show more than the row": (
        rows(),
        event_rows(rows(r3={"num_preemptions": 3})),
        "repeat",
    ),
    "row shows more than the events": (
        rows(r3={"num_preemptions": 3}),
        event_rows(rows()),
        "repeat",
    ),
    "half of it failed": (
        rows(**{f"r{k}": {"status": "error"} for k in (0, 1, 2, 3)}),
        None,
        "failures",
    ),
    "half of it cut off": (
        rows(**{f"r{k}": {"status": "censored"} for k in (0, 1, 2, 3)}),
        None,
        "failures",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_of_the_tables_fails_and_names_the_request(name: str) -> None:
    """r3 is among the ids of the check that is meant."""
    requests, events, check = MUTATIONS[name]
    report = answer(DETERMINISTIC, small("base"), candidate(requests, events))
    failed = [p for p in report.predicates if p.verdict == "fail" and p.id == check]
    assert "fail" == report.verdict
    assert [("cand", "r3")] == sorted(
        {(i.run_id, i.request_id) for p in failed for i in p.ids if i.request_id == "r3"}
    )


def set_at(seq: int, column: str, value: int) -> Callable[[Ledger], Ledger]:
    """One cell of the events changed."""

    def change(ledger: Ledger) -> Ledger:
        events = ledger.events.copy()
        assert events[seq, COLUMN[column]] != value
        events[seq, COLUMN[column]] = value
        return replace(ledger, events=events)

    return change


def without(kind: Kind) -> Callable[[Ledger], Ledger]:
    """The first event of a kind taken away."""

    def change(ledger: Ledger) -> Ledger:
        (places,) = (ledger.events[:, COLUMN["kind"]] == kind).nonzero()
        keep = [k for k in range(len(ledger.events)) if k != places[0]]
        return replace(ledger, events=ledger.events[keep])

    return change


def total(name: str) -> Callable[[Ledger], Ledger]:
    """One total of the receipt raised."""

    def change(ledger: Ledger) -> Ledger:
        totals = ledger.receipt["totals"] | {name: ledger.receipt["totals"][name] + 1}
        return replace(ledger, receipt=ledger.receipt | {"totals": totals})

    return change


LEDGER_MUTATIONS: dict[str, Callable[[Ledger], Ledger]] = {
    "generated_tokens": set_at(-1, "generated_tokens", 0),
    "occupied_blocks_after": set_at(3, "occupied_blocks_after", 10_000),
    "remaining_tokens": set_at(2, "remaining_tokens", 99),
    "context_tokens": set_at(2, "context_tokens", 99),
    "tick": set_at(-1, "tick", 0),
    "preemptions": set_at(-1, "preemptions", 7),
    "queue_depth": set_at(0, "queue_depth", 50),
    "no completion": without(Kind.COMPLETE),
    "no admission": without(Kind.ADMIT),
    "total of completions": total("completions"),
    "total of tokens": total("generated_tokens"),
    "total of preemptions": total("preemptions"),
}


def modelled_part(ledger: Ledger) -> PredicateResult:
    """The gate's answer to a ledger."""
    report = answer(DETERMINISTIC, small("base"), candidate(), [ledger])
    (found,) = (p for p in report.predicates if p.evidence == "modelled")
    assert "fail" == report.verdict
    return found


@pytest.mark.parametrize("name", LEDGER_MUTATIONS)
def test_every_mutation_of_a_ledger_fails_and_names_the_equation(name: str) -> None:
    """The oracle's first finding is in the answer."""
    found = modelled_part(LEDGER_MUTATIONS[name](ledger_of(10)))
    assert ("fail", ("oracle_violated",)) == (found.verdict, found.reasons)
    assert "in a modelled ledger, first: " in found.why


# --- power that needs no statistics ----------------------------------------------------------


def test_one_percent_of_shed_requests_is_a_failure() -> None:
    """2 of 240 rejected, where 0.5 % may fail; the requests are named."""
    gate = gate_of({"id": "p", "kind": "failures", "max_failed_fraction": 0.005})
    report = answer(gate, *sides(every(status("rejected", 100))))
    found = only(report, "p")
    assert ("fail", ("too_many_failed",)) == (found.verdict, found.reasons)
    assert found.ids


# --- the same bytes --------------------------------------------------------------------------


def test_the_command_gives_the_same_bytes_whatever_the_hash_seed_and_the_threads() -> None:
    """Two processes over the recorded runs; one reads with one thread of polars, one with two."""
    written = []
    for seed, threads in (("1", "1"), ("77", "2")):
        done = subprocess.run(
            [
                sys.executable,
                *("-m", "preempt", "gate", "run", "--json"),
                str(ROOT / "fixtures" / "gates" / "blocks-48-to-80.toml"),
                *("--baseline", str(ROOT / "fixtures" / "runs" / "base-1")),
                *("--candidate", str(ROOT / "fixtures" / "runs" / "cand-80")),
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": threads},
            capture_output=True,
            check=False,
        )
        assert 3 == done.returncode, done.stderr
        written.append(done.stdout)
    assert written[0] == written[1]
