"""The recorder's preemptions beside the page's counter, where both saw the same time.

The counter moves when a victim next emits a token. So the two are compared only between two scrapes
that show an engine with nothing to do, and only if every preemption lies between them. Elsewhere
nothing is said here: `preemption_counter_totals` compares what can be compared after loading.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.columns import DIRECTORIES
from collectors.manifest import value_at
from collectors.pack.session import Session

if TYPE_CHECKING:
    import polars as pl

_COUNTER = "num_preemptions"
_IDLE = ("num_requests_running", "num_requests_waiting")
_COLUMNS = ("scrape", "time_us", "engine", "name", "value")


def disagreement(
    run: Path, manifest: Mapping[str, Any], sessions: Collection[Session]
) -> str | None:
    """How the two differ over the same time; None if they do not, or if it was not the same."""
    engines = {session.key.engine for session in sessions}
    if not sessions or len(engines) < len(sessions) or not _one_counter(manifest):
        return None
    if any(session.rows.known.counts["cut_victims"] for session in sessions):
        return None  # the counter never learns of those
    parts = sorted((run / DIRECTORIES["metric_samples"]).glob("part-*.parquet"))
    if not parts:
        return None
    first, last = (_idle(part, engines) for part in (parts[0], parts[-1]))
    if first is None or last is None:
        return None
    (start_us, before), (end_us, after) = first[0], last[-1]
    for session in sessions:
        known = session.rows.known
        if known.first_preempt_us is None or known.last_preempt_us is None:
            continue
        if known.first_preempt_us <= start_us or known.last_preempt_us >= end_us:
            return None
    seen = sum(session.rows.known.counts["preemptions"] for session in sessions)
    rose = int(after - before)
    if rose < 0 or rose == seen:
        return None
    return f"the recorder saw {seen} preemptions, and the page's counter rose by {rose} meanwhile"


def _one_counter(manifest: Mapping[str, Any]) -> bool:
    """Whether the counter is one from the first scrape to the last."""
    resets = manifest.get("counter_resets") or ()
    fell = any(reset.get("name") == _COUNTER for reset in resets)
    return not fell and not value_at(manifest, "collection.several_workers")


def _idle(part: Path, engines: set[int]) -> list[tuple[int, float]] | None:
    """Moments of a part at which nothing ran or waited, and the counter then; None if none."""
    import polars as pl

    found = pl.read_parquet(part, columns=list(_COLUMNS)).filter(
        pl.col("name").is_in([_COUNTER, *_IDLE])
    )
    named = set(found["engine"].drop_nulls())
    if (named or engines) != engines or (not named and len(engines) > 1):
        return None
    rows = found.group_by("scrape").agg(
        pl.col("time_us").first(),
        counter=_sum(_COUNTER),
        busy=pl.col("value").filter(pl.col("name").is_in(_IDLE)).sum(),
        gauges=pl.col("name").filter(pl.col("name").is_in(_IDLE)).n_unique(),
    )
    rows = rows.filter(pl.col("busy") == 0, pl.col("gauges") == len(_IDLE)).drop_nulls("counter")
    return rows.sort("scrape").select("time_us", "counter").rows() or None


def _sum(name: str) -> "pl.Expr":
    import polars as pl

    values = pl.col("value").filter(pl.col("name") == name)
    return pl.when(values.count() > 0).then(values.sum())
