"""Old pages go when they are too old or too many; samples only if somebody asked for that."""

from dataclasses import dataclass
from pathlib import Path

from collectors.columns import DIRECTORIES
from collectors.scrape.pages import PagePart, page_parts
from collectors.scrape.settle import TABLE, samples_path


@dataclass(frozen=True)
class Retention:
    """What is kept; None keeps everything. `samples` lets a part's samples go with its pages."""

    age_us: int | None = None
    size_bytes: int | None = None
    samples: bool = False


def expired(run: Path, retention: Retention, now_ns: int) -> list[PagePart]:
    """Settled parts that are to go, oldest first; never the newest."""
    if retention.age_us is None and retention.size_bytes is None:
        return []
    parts = [part for part in page_parts(run) if part.number is not None and not part.is_journal]
    weights = [_weight(run, part, retention) for part in parts]
    left, gone = sum(weights), []
    for part, weight in zip(parts[:-1], weights, strict=False):
        age_us = (now_ns - part.path.stat().st_mtime_ns) // 1000
        too_old = retention.age_us is not None and age_us > retention.age_us
        if not too_old and (retention.size_bytes is None or left <= retention.size_bytes):
            break
        gone.append(part)
        left -= weight
    return gone


def first_samples(parts: list[PagePart]) -> dict[str, int]:
    """What the manifest must say before the samples of these parts are deleted."""
    last = parts[-1].number
    return {} if last is None else {DIRECTORIES[TABLE]: last + 1}


def delete(run: Path, parts: list[PagePart], *, samples: bool) -> None:
    """Delete parts; samples from the oldest on, so that what is left has no hole."""
    for part in parts:
        if samples and part.number is not None:
            samples_path(run, part.number).unlink(missing_ok=True)
        part.path.unlink(missing_ok=True)


def _weight(run: Path, part: PagePart, retention: Retention) -> int:
    size = part.path.stat().st_size
    if retention.samples and part.number is not None:
        samples = samples_path(run, part.number)
        size += samples.stat().st_size if samples.exists() else 0
    return size
