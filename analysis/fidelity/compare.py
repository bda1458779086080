"""A ledger beside the run it describes: everything `preempt fidelity` says, as one record."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
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


def compare(db: duckdb.DuckDBPyConnection, ledger: Ledger, run: Run, replay: Replay) -> Fidelity:
    """Compare a ledger with a run, both loaded into `db`; `replay` makes a ledger of other rates.

    `NotComparable` as in `fidelity_join`.
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
        "not_exact": not_replayed(run),
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
            again = replay(ledger.workload, scaled(ledger.config, factor))
            load_ledger(db, again, "the replay with the drift scaled out")
            remainder = scores(db, again.receipt["receipt_sha256"], run.run_id)
            record["remainder"] = [asdict(score) for score in remainder]
    return Fidelity(found, record, rows, own, remainder)


def _engine(ledger: Ledger, run: Run) -> int:
    """Data-parallel engine that was replayed, as its workload says."""
    return engine_of(run, (ledger.workload.provenance or {}).get("engine"))
