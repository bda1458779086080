"""The measured tables of a shareable run: ids by one map, texts from known vocabularies only."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from collectors.exposition.known import KNOWN
from collectors.run import Run
from collectors.sanitize.options import Blur
from collectors.sanitize.pseudonyms import Pseudonyms, order_digits
from collectors.sanitize.steps import Renumbered, bucketed, rounded_down
from replay.errors import InputError
from replay.strict import parse_json

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition", "tool_calls", "content_filter")
# Labels that vLLM itself fills from fixed lists; anything else may be anybody's text.
LABELS: Mapping[str, tuple[str, ...]] = {
    "finished_reason": FINISH_REASONS,
    "reason": ("capacity", "deferred"),
    "sleep_state": ("awake", "weights_offloaded", "discard_all"),
    "source": ("local_compute", "local_cache_hit", "external_kv_transfer"),
}
SUFFIXES = ("", "_bucket", "_sum", "_count")
_TOKENS = ("prompt_tokens", "generated_tokens", "max_tokens", "cached_tokens")
_ARRIVALS = ("arrival_us", "engine_arrival_us")


@dataclass(frozen=True)
class Ids:
    """From a run's own names to what its shareable form calls them."""

    requests: Mapping[str, str]
    tenants: Mapping[str, str | None]
    run_id: str


def ids_of(
    run: Run, run_id: str, pseudonyms: Pseudonyms, blur: Blur, merged: Mapping[str, str | None]
) -> Ids:
    """Pseudonyms of every request in the order of arrival, and of every tenant.

    The order is the offered workload's, then that of measured requests nobody offered. `merged`:
    what rare tenants become.
    """
    offered = run.offered.requests if run.offered else ()
    rows = by_arrival(run.requests)
    names = list(
        dict.fromkeys(
            [*(r.request_id for r in offered), *rows["request_id"], *run.events["request_id"]]
        )
    )
    digits, told = order_digits(len(names)), pseudonyms.of("request", names)
    requests = {
        name: f"{place:0{digits}}-{hexed}"
        for place, (name, hexed) in enumerate(zip(names, told, strict=True))
    }
    tenants = {*rows["tenant"].drop_nulls(), *(r.tenant for r in offered if r.tenant is not None)}
    renamed: dict[str, str | None] = dict(pseudonyms.tenants(tenants))
    dropped = dict.fromkeys(tenants) if blur.no_tenants else merged
    return Ids(requests, {**renamed, **dropped}, run_id)


def by_arrival(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `measured_requests` in a workload's order."""
    return rows.sort("arrival_us", maintain_order=True)


def shareable_requests(
    rows: pl.DataFrame, ids: Ids, blur: Blur, renumbered: Renumbered
) -> pl.DataFrame:
    """Rows of `measured_requests`, by arrival: rounded, equal ones could not be told apart."""
    reason = pl.col("finish_reason")
    rows = by_arrival(rows)
    return rows.with_columns(
        _renamed("request_id", ids.requests),
        _renamed("tenant", ids.tenants),
        renumbered(rows["prefix_blocks"]),
        *(bucketed(name, blur.tokens) for name in _TOKENS),
        *(rounded_down(name, blur.arrival_us) for name in _ARRIVALS),
        run_id=pl.lit(ids.run_id),
        finish_reason=pl.when(reason.is_in(FINISH_REASONS)).then(reason),
    )


def shareable_events(rows: pl.DataFrame, ids: Ids) -> pl.DataFrame:
    """Rows of `measured_events`."""
    return rows.with_columns(_renamed("request_id", ids.requests), run_id=pl.lit(ids.run_id))


def shareable_samples(
    rows: pl.DataFrame, ids: Ids, pseudonyms: Pseudonyms, blur: Blur
) -> pl.DataFrame:
    """Rows of `metric_samples` whose name and labels are vLLM's own; the others are left out.

    So is what counts tokens, where token counts are blurred.
    """
    blurred = "tokens" if blur.tokens > 1 else "nothing"
    names = [
        f"{name}{suffix}"
        for name, metric in KNOWN.items()
        for suffix in SUFFIXES
        if blurred not in metric.unit
    ]
    ours = [text for text in rows["labels"].unique() if own_labels(text)]
    renamed = pseudonyms.models(rows["model"].drop_nulls().unique().to_list())
    return rows.filter(pl.col("name").is_in(names) & pl.col("labels").is_in(ours)).with_columns(
        _renamed("model", renamed), run_id=pl.lit(ids.run_id)
    )


def own_labels(text: str) -> bool:
    """Whether a sample's labels are only those that vLLM fills from fixed lists."""
    try:
        found = parse_json(text, "")
    except InputError:
        return False
    return isinstance(found, dict) and all(v in LABELS.get(k, ()) for k, v in found.items())


def _renamed(column: str, names: Mapping[str, str | None]) -> pl.Expr:
    return pl.col(column).replace_strict(names, default=None, return_dtype=pl.String)
