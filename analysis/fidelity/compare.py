"""A ledger beside the run it describes: everything `preempt fidelity` says, as one record."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import duckdb

from analysis.counter import counter_rows
from analysis.fidelity.divergence import first_divergence
from analysis.fidelity.drift import drift, scaled
from analysis.fidelity.scores import Score, buckets, distances, level, scores
from analysis.join import fidelity_join
from analysis.store import load_ledger
from collectors.run import Run, engine_of
from collectors.run_config import not_replayed
from replay.config import Config
from replay.errors import ReplayError
from replay.ledger import Ledger
from replay.workload import Workload

Replay = Callable[[Workload, Config], Ledger]
STEPPED, FORECAST = "stepped", "timed, calibrated on another run"


@dataclass(frozen=True)
class Fidelity:
    """One comparison; `remainder` are the scores once a forecast's drift is scaled out."""

    level: str | None
    record: dict[str, Any]
    rows: list[dict[str, Any]]
    scores: list[Score]
    remainder: list[Score]


def of_run(ledger: Ledger, run: Run) -> Ledger:
    """The ledger as a replay of this run's requests, where its workload names no run.

    A forecast is made of a workload before there is a run; `compare` refuses another workload.
    """
    provenance = ledger.workload.provenance or {}
    if provenance.get("run_id") is not None:
        return ledger
    named = {**provenance, "run_id": run.run_id}
    return replace(ledger, workload=replace(ledger.workload, provenance=named))


def compare(db: duckdb.DuckDBPyConnection, ledger: Ledger, run: Run, replay: Replay) -> Fidelity:
    """Compare a ledger with a run, both loaded into `db`; `replay` makes a ledger of other rates.

    `NotComparable` as in `fidelity_join`. A second replay that cannot end leaves no remainder, and
    `not_remaining` in the record says why.
    """
    ledger_id = ledger.receipt["receipt_sha256"]
    rows = fidelity_join(db, ledger_id, run.run_id)
    found = level(db, ledger_id, run.run_id)
    own = scores(db, ledger_id, run.run_id)
    remainder: list[Score] = []
    record: dict[str, Any] = {
        "join_kind": "fidelity",
        "level": found,
        "ledger_id": ledger_id,
        "run_id": run.run_id,
        "arrivals": rows[0]["join_arrivals"],
        "what_ifs": ledger.receipt["what_ifs"],
        "not_exact": [*not_replayed(run), *_ended_otherwise(rows)],
        "counter": next(iter(counter_rows(db)), None),
        "limitations": ledger.receipt["limitations"],
        "timing": ledger.receipt.get("timing"),
        "scores": [asdict(score) for score in own],
        "distances": distances(db, ledger_id, run.run_id),
        "buckets": buckets(db, ledger_id, run.run_id),
    }
    engine = _engine(ledger, run)
    if found == STEPPED:
        parting = first_divergence(ledger, run, engine)
        record["divergence"] = None if parting is None else parting.record()
    if (timing := ledger.config.timing) is not None:
        record["drift"] = factor = drift(run, engine, timing)
        if found == FORECAST and factor is not None:
            remainder, why = _remainder(db, ledger, run, scaled(ledger.config, factor), replay)
            record["remainder"] = [asdict(score) for score in remainder]
            record["not_remaining"] = why
    return Fidelity(found, record, rows, own, remainder)


def _remainder(
    db: duckdb.DuckDBPyConnection, ledger: Ledger, run: Run, config: Config, replay: Replay
) -> tuple[list[Score], str | None]:
    """Scores of a second replay, or why there is none."""
    try:
        again = replay(ledger.workload, config)
    except ReplayError as exc:
        return [], str(exc)
    load_ledger(db, again, "the replay with the drift scaled out")
    return scores(db, again.receipt["receipt_sha256"], run.run_id), None


def _ended_otherwise(rows: list[dict[str, Any]]) -> list[str]:
    """A line on requests of which the engine generated more or less than the replay."""
    counts = [(row["modelled_generated_tokens"], row["measured_generated_tokens"]) for row in rows]
    other = sum(None not in pair and pair[0] != pair[1] for pair in counts)
    if not other:
        return []
    return [f"{other} requests generated another number of tokens than in the replay"]


def _engine(ledger: Ledger, run: Run) -> int:
    """Data-parallel engine that was replayed, as its workload says."""
    return engine_of(run, (ledger.workload.provenance or {}).get("engine"))
