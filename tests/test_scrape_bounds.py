"""Pages that are made to fill memory: what is kept of them has an end, and says that it has."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fault_server import INFO, page

from collectors.exposition.parse import MOST_SAMPLES, OPENMETRICS, parse_page
from collectors.exposition.samples import MetricSample, samples_frame
from collectors.scrape import settle
from collectors.scrape.entry import fetched_entry
from collectors.scrape.fetch import MOST_PAGE_BYTES
from collectors.scrape.observe import Observer
from collectors.scrape.outcome import Fetched, Outcome
from collectors.scrape.reading import read_entry
from collectors.scrape.watch import MOST_LISTED
from collectors.scrape.workers import Workers

TEXT = "text/plain"
PAGES = Path(__file__).parents[1] / "fixtures" / "pages"
EMPTY: dict[str, Any] = {
    "engine": {"version": None},
    "model": {"name": None},
    "cache": {},
    "clocks": {},
    "drain_end_us": None,
}


def seen(observer: Observer, body: bytes) -> None:
    """Show an observer one more page."""
    fetched = Fetched(Outcome.OK, 200, TEXT, body)
    at_ns = observer.seen * 1_000_000_000
    observer.see(read_entry(fetched_entry(fetched, at_ns, at_ns, 1000, scrape=observer.seen)))


def lines(name: str, count: int, first: int = 0) -> bytes:
    """So many samples, of so many names and models."""
    row = 'vllm:{name}_{k}_total{{engine="0",model_name="m{k}"}} 1\n'
    return "".join(row.format(name=name, k=k) for k in range(first, first + count)).encode()


def buckets(count: int) -> bytes:
    """So many samples of one family."""
    return b"".join(b'vllm:x_bucket{le="%d"} 1\n' % k for k in range(count))


def test_names_models_and_engines_of_hostile_pages_have_an_end() -> None:
    """New ones on every page fill no memory; how many found no room is a note."""
    observer = Observer(1_000_000)
    for k in range(6):
        info = INFO.format(blocks=64, tokens=1024)
        engines = "".join(info.replace('engine="0"', f'engine="{k}-{n}"') for n in range(400))
        seen(observer, page(k) + lines("odd", 500, 500 * k) + engines.encode())
    found = observer.identity
    assert [MOST_LISTED] * 4 == [
        len(kept) for kept in (observer.names, observer.unmatched, found.models, found.cache)
    ]
    notes = observer.fill(EMPTY)["collection"]["notes"]
    for what in ("metric names", "unknown metric names", "models", "engines"):
        assert any(note.endswith(f" more {what} found no room here") for note in notes), what


def test_notes_that_are_made_anew_are_there_once_after_every_start() -> None:
    """A restart goes on with what they were made of."""
    observer = Observer(1_000_000)
    manifest = {**EMPTY, "metric_names": None, "gaps": None, "counter_resets": None}
    for k in range(4):
        seen(observer, page(k) + lines("odd", 1 + 500 * k, 500 * k))
        observer.watch.note(f"start {k}")
        manifest = observer.fill(manifest)
        observer = Observer.resumed(manifest, 1_000_000)
    notes = manifest["collection"]["notes"]
    assert [f"start {k}" for k in range(4)] == [n for n in notes if n.startswith("start")]
    assert 1 == len([note for note in notes if note.startswith("names like vLLM's")])
    assert 1 == len([note for note in notes if " more metric names found no room" in note])
    assert "vllm:odd_0_total," in notes[-1]


def test_long_labels_are_kept_as_a_digest() -> None:
    """They still tell one configuration from another."""
    long = 'vllm:cache_config_info{{engine="0",block_size="16",x="{x}"}} 1\n'
    one, other = Observer(1_000_000), Observer(1_000_000)
    seen(one, page(1) + long.format(x="a" * 50_000).encode())
    seen(other, page(1) + long.format(x="b" * 50_000).encode())
    assert one.identity.differs(other.identity)
    assert 200 > sum(len(text) for pair in one.identity.cache["0"] for text in pair)


def test_counters_that_are_followed_have_an_end() -> None:
    """Other counters fall on every page."""
    workers = Workers()
    for k in range(20):
        names = range(1000 * k, 1000 * (k + 1))
        workers.see(k, None, dict.fromkeys(names, 2.0), dict.fromkeys(names, 1.0))
    assert 10_000 > len(workers._tracks)


@pytest.mark.parametrize(
    ("content_type", "end", "complete"),
    [
        (TEXT, b"", True),
        (TEXT, b"vllm:half", False),
        (OPENMETRICS, b"# EOF\n", True),
        (OPENMETRICS, b"", False),
        (None, b"# EOF\n", True),
    ],
)
def test_a_page_with_too_many_series_keeps_the_first(
    content_type: str | None, end: bytes, complete: bool
) -> None:
    """It is no page that was cut, even where the last that is kept is a bucket; its end decides."""
    body = buckets(MOST_SAMPLES + 5) + end
    found = parse_page(body, content_type)
    assert 32_768 == len(found.samples)
    assert [(32_769, "too many series")] == found.problems
    assert (True, complete) == (found.cut, found.complete)


def test_a_page_with_too_many_samples_has_an_outcome_of_its_own() -> None:
    """Half of its engines would pass for all of them: none are taken, and the page is kept."""
    observer = Observer(1_000_000)
    seen(observer, page(1))
    seen(observer, page(2) + buckets(MOST_SAMPLES))
    seen(observer, page(3))
    assert {"ok": 2, "too_many_samples": 1} == observer.outcomes
    assert 1 == observer.problems["too many series"]
    (gap,) = observer.fill(EMPTY)["gaps"]
    assert "too_many_samples: 1" == gap["reason"]
    entry = fetched_entry(Fetched(Outcome.OK, 200, TEXT, buckets(MOST_SAMPLES + 1)), 0, 0, 0)
    assert Outcome.TOO_MANY_SAMPLES == read_entry(entry).entry.outcome
    again = read_entry(read_entry(entry).entry)
    assert (Outcome.TOO_MANY_SAMPLES, entry.page) == (again.entry.outcome, again.entry.page)


def test_a_page_of_64_engines_is_taken_whole() -> None:
    """Every engine of a page as a real vLLM 0.32.0 writes it, and the last family, too."""
    lines = gzip.decompress((PAGES / "0.32.0.txt.gz").read_bytes()).decode().splitlines()
    many = [
        line.replace('engine="0"', f'engine="{engine}"')
        for line in lines
        for engine in (range(64) if 'engine="0"' in line else (0,))
    ]
    body = "".join(f"{line}\n" for line in many).encode()
    found = read_entry(fetched_entry(Fetched(Outcome.OK, 200, TEXT, body), 0, 0, 0))
    assert MOST_PAGE_BYTES > len(body)
    assert (Outcome.OK, {}) == (found.entry.outcome, found.problems)
    assert found.canonical is not None
    counts = Counter(sample.engine for sample in found.canonical.samples)
    assert [counts[0]] * 64 == [counts[engine] for engine in range(64)]


def test_samples_become_frames_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many small pages nor a few large ones are held as rows all at once."""
    rows: list[int] = []

    def counted(run_id: str, piece: list[tuple[int, int, list[MetricSample]]]) -> object:
        rows.append(sum(len(samples) for *_, samples in piece))
        return samples_frame(run_id, piece)

    monkeypatch.setattr(settle, "samples_frame", counted)
    sample = MetricSample(0, "m", "prompt_tokens", "{}", None, 1.0)
    sizes = [15_000] * 6 + [10] * 50
    frame = settle.frame_of("r", ((k, k, [sample] * size) for k, size in enumerate(sizes)))
    assert sum(sizes) == frame.height == sum(rows)
    assert 40_000 >= max(rows)
