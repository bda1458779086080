"""A run of metrics alone whose samples are real pages of vLLM, parsed as the collector does it."""

import gzip
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from stored import metrics_only

from collectors.exposition.names import canonical
from collectors.exposition.parse import parse_page
from collectors.exposition.samples import MetricSample, samples_frame
from collectors.run import Run

PAGES = Path(__file__).parent.parent / "fixtures" / "pages"
MINUTE = 60_000_000
IDLE, LOADED = "0.32.0-idle", "0.32.0"


@cache
def page(name: str) -> Sequence[MetricSample]:
    """Samples of a recorded page."""
    body = gzip.decompress((PAGES / f"{name}.txt.gz").read_bytes())
    return canonical(parse_page(body, "text/plain; version=0.0.4")).samples


def paged(run_id: str, *names: str) -> Run:
    """A run with these pages a minute apart: by default before a load of 32 requests and after."""
    scrapes = [(k, k * MINUTE, page(name)) for k, name in enumerate(names or (IDLE, LOADED))]
    return replace(metrics_only(run_id), samples=samples_frame(run_id, scrapes))
