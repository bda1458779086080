"""P6: the way back is laid down before the way forward is taken.

Each predicate over latencies has a rollback rule, which watches the same field, statistic and slice
with a limit of its own; both sides recorded the field, a live engine shows it, and the
configuration to go back to is known.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Gate, Predicate, Rollback
from analysis.gate.evidence import Row, rows, run_ids
from analysis.gate.verdict import FAIL, PASS, PredicateResult
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

NAME = "rollback-defined"
# vLLM's metric of each latency, by its canonical name; waiting after a preemption is in none.
LIVE_METRICS = {
    "queue_time_us": "request_queue_time_seconds",
    "prefill_time_us": "request_prefill_time_seconds",
    "decode_time_us": "request_decode_time_seconds",
    "ttft_us": "time_to_first_token_seconds",
    "tpot_us": "request_time_per_output_token_seconds",
    "e2e_us": "e2e_request_latency_seconds",
}


def read(
    db: "duckdb.DuckDBPyConnection", runs: Sequence[GateRun], rollback: Rollback
) -> tuple[list[Row], bool]:
    """Latency fields that each run has, and whether the store knows where to go back to."""
    known = rollback.to == "baseline" or bool(
        rows(db, "known_configurations", configuration_sha256=rollback.to)
    )
    return rows(db, "known_latencies", run_ids=run_ids(runs)), known


def judge(
    gate: Gate, runs: Sequence[GateRun], found: Sequence[Row], *, known: bool
) -> PredicateResult:
    """One result that names everything that is missing."""
    rollback = gate.rollback
    if rollback is None:
        raise ValueError(gate.name)
    ruled = {rule.predicate for rule in rollback.when}
    watched = [p for p in gate.predicates if _fields(p)]
    missing = [
        f"no rule watches {printable(p.id)}" for p in watched if p.id not in ruled
    ] + _unseen(watched, runs, found)
    if not known:
        missing.append(f"no run of the store had the configuration {rollback.to}")
    why = f"lacks: {'; '.join(missing)}"
    if not missing:
        why = f"found a rule for each of {len(watched)} predicates over latencies, and a way back"
    return PredicateResult(
        id=NAME,
        kind="rollback_defined",
        verdict=FAIL if missing else PASS,
        why=why,
        reasons=("rollback_undefined",) if missing else (),
    )


def _unseen(
    watched: Iterable[Predicate], runs: Sequence[GateRun], found: Iterable[Row]
) -> list[str]:
    fields = sorted({field for predicate in watched for field in _fields(predicate)})
    has = {(row["run_id"], row["field"]) for row in found}
    missing = [
        f"no metric of a live engine is {field}" for field in fields if field not in LIVE_METRICS
    ]
    for field in fields:
        without = [printable(run.run_id) for run in runs if (run.run_id, field) not in has]
        if without:
            missing.append(f"{field} is unknown in {', '.join(without)}")
    return missing


def _fields(predicate: Predicate) -> tuple[str, ...]:
    """Latencies a predicate is about."""
    if predicate.kind == "regression" and predicate.field is not None:
        return (predicate.field,)
    return tuple(field for field, _ in predicate.slo or ())
