"""Samples under canonical names, and the frame of `metric_samples` that they become (SPEC §9)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl


class MetricSample(NamedTuple):
    """One canonical sample.

    `engine` is the data-parallel index, `model` the served name, each None where the page names
    none; `labels` is a sorted JSON object of the others. Histograms are cumulative `<name>_bucket`
    with `le`, `<name>_sum` and `<name>_count`. `value` is None for NaN.
    """

    engine: int | None
    model: str | None
    name: str
    labels: str
    le: float | None
    value: float | None


SeriesKey = tuple[str, int | None, str | None, str]


@dataclass
class Canonical:
    """What a page says of an engine, filled in as it is read.

    `names` maps each canonical name to the page's own; `unmatched` are names like vLLM's that are
    in no table (their samples are kept, under their own names); `superseded` are old names whose
    new one is on the page, too, and whose samples are not kept. `info` has the labels of every
    `…_info` metric, `created` when counters and histograms began (unix seconds) by (name, engine,
    model, labels).
    """

    samples: list[MetricSample] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    unmatched: dict[str, None] = field(default_factory=dict)
    superseded: dict[str, None] = field(default_factory=dict)
    info: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    created: dict[SeriesKey, float] = field(default_factory=dict)
    process_start_s: float | None = None

    @property
    def vllm(self) -> bool:
        """Whether the page has any metric of vLLM."""
        return bool(self.samples or self.info)


def samples_frame(
    run_id: str, scrapes: Iterable[tuple[int, int, Sequence[MetricSample]]]
) -> "pl.DataFrame":
    """Rows of `metric_samples` of (scrape, time_us, samples), in their order."""
    import polars as pl

    numbers: list[int] = []
    times: list[int] = []
    columns: tuple[list[object], ...] = tuple([] for _ in MetricSample._fields)
    for scrape, time_us, samples in scrapes:
        numbers += [scrape] * len(samples)
        times += [time_us] * len(samples)
        for column, values in zip(columns, zip(*samples, strict=True), strict=False):
            column.extend(values)
    types = (pl.Int64, pl.String, pl.String, pl.String, pl.Float64, pl.Float64)
    named = zip(MetricSample._fields, columns, types, strict=True)
    return pl.DataFrame(
        [
            pl.Series("scrape", numbers, pl.Int64),
            pl.Series("time_us", times, pl.Int64),
            *(pl.Series(name, column, kind) for name, column, kind in named),
        ]
    ).select(pl.lit(run_id).alias("run_id"), pl.all())
