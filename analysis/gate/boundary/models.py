"""Which ledgers stand for which side: a boundary is replayed from their inputs.

A ledger holds a workload and a configuration. It stands for a side where its configuration is that
side's in everything both know, and for a pair of runs where its workload is what they were offered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun, same
from analysis.gate.contract import CHANGEABLE
from analysis.gate.evidence import rows
from analysis.gate.predicates.common import SIDES, of_side
from replay.canonical import canonical_json
from replay.config import Config
from replay.errors import InputError
from replay.workload import Workload

if TYPE_CHECKING:
    import duckdb

    from replay.ledger import Ledger

_BLOCKS = "cache.num_gpu_blocks"
_FIELDS = ("rule", "cache.block_size", "cache.enable_prefix_caching", *CHANGEABLE)


@dataclass(frozen=True)
class Model:
    """One workload, how either side would serve it, and the pairs of runs that were offered it."""

    workload: Workload
    baseline: Config
    candidate: Config
    pairs: tuple[int, ...]

    @property
    def name(self) -> str:
        """Whose scheduler, and by which rule."""
        engine, assumed = self.baseline.engine, self.baseline.assumed_from
        return f"{engine.profile} {engine.rule}{f' (assumed from {assumed})' if assumed else ''}"


def find_models(
    db: "duckdb.DuckDBPyConnection",
    ledgers: Sequence["Ledger"],
    runs: Sequence[GateRun],
    changed: Sequence[str],
) -> tuple[Model, ...]:
    """Workloads that the ledgers have under both sides' configurations, by their first pair.

    Raises `InputError` where the ledgers model the sides in several ways (recovery, timing, rule).
    """
    first = {side: of_side(runs, side)[0] for side in SIDES}
    ways: dict[bytes, dict[str, dict[str, Ledger]]] = {}
    for ledger in sorted(ledgers, key=lambda one: canonical_json(one.config.tables())):
        for side, run in first.items():
            if _stands_for(ledger.config, run, changed):
                way = ways.setdefault(_way(ledger.config, changed), {})
                way.setdefault(ledger.workload.sha256, {})[side] = ledger
    whole = [found for way in ways.values() if (found := _both(db, way, runs))]
    if len(whole) > 1:
        rule = "must model both sides in one way where the gate has a [boundary]"
        raise InputError("--ledger", "", rule, f"{len(whole)} ways (recovery, rule or timing)")
    return whole[0] if whole else ()


def _both(
    db: "duckdb.DuckDBPyConnection",
    way: Mapping[str, Mapping[str, "Ledger"]],
    runs: Sequence[GateRun],
) -> tuple[Model, ...]:
    found = []
    for sides in way.values():
        if set(sides) == set(SIDES) and (pairs := _pairs(db, sides["baseline"], runs)):
            base, cand = (sides[side] for side in SIDES)
            found.append(Model(base.workload, base.config, cand.config, pairs))
    return tuple(sorted(found, key=lambda m: (m.pairs, m.workload.sha256)))


def _pairs(
    db: "duckdb.DuckDBPyConnection", ledger: "Ledger", runs: Sequence[GateRun]
) -> tuple[int, ...]:
    """Pairs that were offered the ledger's workload, or of which a run is where it is from."""
    workload, source = ledger.workload, ledger.workload.provenance or {}
    # Arrivals in the engine's own steps are no load in time.
    origin = None if source.get("arrivals") == "steps" else source.get("run_id")
    offered = {r.pair for r in runs if r.workload_sha256 == workload.sha256}
    for run in runs:
        if run.run_id == origin:
            # A window of a run is another load.
            covered = rows(
                db,
                "ledger_requests",
                run_ids=[run.run_id],
                request_ids=[r.request_id for r in workload.requests],
                prompt_tokens=[r.prompt_tokens for r in workload.requests],
            )
            offered |= {run.pair for row in covered if row["requests"] == len(workload)}
    return tuple(sorted(offered))


def _stands_for(config: Config, run: GateRun, changed: Sequence[str]) -> bool:
    """Whether the configuration is the run's; a declared change has to be known to both."""
    for field in _FIELDS:
        modelled, found = _value(config, field), run.value(field)
        if modelled is None or found is None:
            if field in changed:
                return False
        elif not same(modelled, found):
            return False
    return True


def _value(config: Config, field: str) -> Any:
    """What a manifest's field is in a configuration, None where its profile does not have it."""
    engine = config.engine
    if field == "rule":
        return engine.rule if engine.profile == "vllm-v1" else None
    if field == _BLOCKS:
        return engine.capacity_blocks + 1  # vLLM counts one that nobody can use
    return getattr(engine, field.partition(".")[2])


def _way(config: Config, changed: Sequence[str]) -> bytes:
    """What two configurations have to share to be the two sides of one model."""
    tables = config.tables()
    names = ["capacity_blocks" if f == _BLOCKS else f.partition(".")[2] for f in changed]
    engine = {k: v for k, v in tables["engine"].items() if k not in names}
    kept = {k: v for k, v in tables.items() if k not in ("engine", "limits", "fairness")}
    return canonical_json(kept | {"engine": engine})
