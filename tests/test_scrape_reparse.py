"""Reading the pages again: samples are replaced by what today's parser says, or stay."""

import errno
import gzip
import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from fault_server import page
from scrape_tools import SMALL, FakeClock, collect, ok

from collectors.run import read_run
from collectors.scrape.entry import Entry
from collectors.scrape.journal import Journal
from collectors.scrape.loop import Collector
from collectors.scrape.outcome import Fetched, Outcome
from collectors.scrape.reparse import reparse
from collectors.scrape.retention import Retention
from collectors.writer import RunWriter, new_manifest
from replay.errors import InputError, OutputExists


def collected(out: Path, **settings: object) -> Collector:
    """A run of seven scrapes, one of them refused."""
    answers = [*(ok(k) for k in range(4)), Fetched(Outcome.REFUSED), ok(5), ok(6)]
    return collect(out, answers, rotation=SMALL, **settings)


def recorded(run: Path, pages: int) -> None:
    """A run of which somebody else recorded the pages."""
    RunWriter.create(run, new_manifest("theirs", "driven", start=None)).close()
    (run / "pages").mkdir()
    with gzip.open(run / "pages" / "recorded.jsonl.gz", "wt") as file:
        for k in range(pages):
            line = {"scrape": k, "unix_s": 1795986381.25 + k / 2, "status": 200}
            line |= {"content_type": "text/plain", "page": page(k).decode()}
            file.write(json.dumps(line) + "\n")


def test_reading_again_changes_nothing_where_the_parser_is_the_same(tmp_path: Path) -> None:
    """Samples and manifest are as they were, twice."""
    collected(tmp_path / "run")
    before = read_run(tmp_path / "run")
    for _ in range(2):
        done = reparse(tmp_path / "run", 0)
        after = read_run(tmp_path / "run")
        assert (7, 6, before.samples.height) == (done.pages, done.with_samples, done.rows)
        assert before.samples.equals(after.samples)
        assert before.manifest == after.manifest


def test_lost_samples_are_made_again(tmp_path: Path) -> None:
    """Pages are enough."""
    collected(tmp_path / "run")
    before = read_run(tmp_path / "run").samples
    shutil.rmtree(tmp_path / "run" / "samples")
    reparse(tmp_path / "run", 0)
    assert before.equals(read_run(tmp_path / "run").samples)


def test_recorded_pages_become_samples(tmp_path: Path) -> None:
    """Time zero is the first page, and the manifest says so."""
    recorded(tmp_path / "run", 5)
    done = reparse(tmp_path / "run", 0)
    run = read_run(tmp_path / "run")
    assert 5 == done.with_samples
    assert [0, 500_000, 1_000_000, 1_500_000, 2_000_000] == run.samples[
        "time_us"
    ].unique().sort().to_list()
    assert 5 == run.manifest["scrapes"]
    assert None is run.manifest["scrape_interval_us"]
    assert any("time zero" in note for note in run.manifest["collection"]["notes"])


def test_many_recorded_pages_are_several_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut by the bytes of pages, so that another parser cuts at the same places."""
    monkeypatch.setattr("collectors.scrape.reparse._RECORDED_PART_BYTES", 1500)
    recorded(tmp_path / "run", 8)
    done = reparse(tmp_path / "run", 0)
    assert done.parts > 1
    counts = read_run(tmp_path / "run").samples.filter(pl.col("name") == "prompt_tokens")
    assert list(range(8)) == counts["value"].to_list()


def test_what_a_killed_reparse_left_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the new parts are whole the old ones stay; after that the new ones get there."""
    collected(tmp_path / "run")
    before = read_run(tmp_path / "run").samples

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("collectors.scrape.reparse.frame_of", killed)
        with pytest.raises(KeyboardInterrupt):
            reparse(tmp_path / "run", 0)
    assert before.equals(read_run(tmp_path / "run").samples)
    with monkeypatch.context() as patch:
        patch.setattr("collectors.scrape.reparse.Path.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            reparse(tmp_path / "run", 0)
    assert before.equals(read_run(tmp_path / "run").samples)
    reparse(tmp_path / "run", 0)
    assert before.equals(read_run(tmp_path / "run").samples)
    assert [".lock"] == [p.name for p in (tmp_path / "run").iterdir() if p.name.startswith(".")]


def test_what_was_lost_stays_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Troubles of the disk, their gaps and the numbers of scrapes are as they were, twice."""
    append, calls, clock = Journal.append, [0], FakeClock()

    def appended(journal: Journal, entry: Entry) -> int:
        calls[0] += 1
        if 2 < calls[0] < 300 or calls[0] > 420:
            raise OSError(errno.ENOSPC, "no space")
        return append(journal, entry)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", appended)
        patch.setattr("collectors.scrape.backlog.MOST_BYTES", 2**16)
        collect(tmp_path / "run", [ok(k) for k in range(400)], clock)
    before = read_run(tmp_path / "run").manifest
    lost = before["collection"]["problems"]["not_written"]
    for _ in range(2):
        done = reparse(tmp_path / "run", 0)
        after = read_run(tmp_path / "run").manifest
        assert 400 - lost == done.pages == done.with_samples == after["scrapes"]
        assert before["gaps"] == after["gaps"]
        assert before["collection"]["problems"] == after["collection"]["problems"]
        assert {"not_kept": lost, "ok": 400 - lost} == after["collection"]["outcomes"]
    collect(tmp_path / "run", [ok(400), ok(401)], clock)
    scrapes = read_run(tmp_path / "run").samples["scrape"].unique().sort().to_list()
    assert 402 - lost == len(scrapes)
    assert [400, 401] == scrapes[-2:]


def test_numbers_follow_the_last_page_where_a_manifest_counts_too_few(tmp_path: Path) -> None:
    """So reparse left them once; no number is given twice."""
    clock = FakeClock()
    collect(tmp_path / "run", [ok(k) for k in range(5)], clock, rotation=SMALL)
    with RunWriter.resume(tmp_path / "run") as writer:
        collection = {**writer.manifest["collection"], "outcomes": {"ok": 3}}
        writer.write_manifest({**writer.manifest, "collection": collection})
    collect(tmp_path / "run", [ok(5)], clock)
    run = read_run(tmp_path / "run")
    assert list(range(6)) == run.samples["scrape"].unique(maintain_order=True).to_list()
    assert {"not_kept": 2, "ok": 4} == run.manifest["collection"]["outcomes"]


def test_samples_without_pages_are_kept(tmp_path: Path) -> None:
    """Retention took their pages: nothing better can be made of them."""
    clock = FakeClock()
    collect(tmp_path / "run", [ok(k) for k in range(8)], clock, rotation=SMALL)
    before = read_run(tmp_path / "run")
    collect(tmp_path / "run", [ok(8)], clock, retention=Retention(size_bytes=1))
    whole = read_run(tmp_path / "run").samples
    done = reparse(tmp_path / "run", 0)
    after = read_run(tmp_path / "run")
    assert done.kept > 0
    assert whole.equals(after.samples)
    assert before.manifest["gaps"] == after.manifest["gaps"][: len(before.manifest["gaps"])]
    assert 9 == after.manifest["scrapes"]


def test_a_run_that_is_being_written_is_refused(tmp_path: Path) -> None:
    """And one without pages, too."""
    collected(tmp_path / "run")
    with RunWriter.resume(tmp_path / "run"), pytest.raises(OutputExists, match="another process"):
        reparse(tmp_path / "run", 0)
    RunWriter.create(tmp_path / "empty", new_manifest("e", "observed", start=None)).close()
    with pytest.raises(InputError, match="must hold pages to read again, got none"):
        reparse(tmp_path / "empty", 0)


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        (b"{", "must be JSON"),
        (b"\xff", "must be UTF-8"),
        (b"[]", "must be a table"),
        (b'{"scrape": 0}', "unix_s must be seconds"),
        (b'{"scrape": 0, "unix_s": 1e300}', "unix_s must be seconds"),
        (b'{"scrape": 0, "unix_s": 1, "page": 7}', "page must be a string"),
        (b'{"scrape": -1, "unix_s": 1}', "scrape must be >= 0"),
    ],
)
def test_pages_of_strangers_are_held_to_their_form(tmp_path: Path, lines: bytes, rule: str) -> None:
    """A fault is named by its line, and nothing of it is shown."""
    recorded(tmp_path / "run", 1)
    with gzip.open(tmp_path / "run" / "pages" / "recorded.jsonl.gz", "wb") as file:
        file.write(lines + b"\n")
    with pytest.raises(InputError, match=rf"recorded\.jsonl\.gz: line 0: .*{rule}"):
        reparse(tmp_path / "run", 0)
    assert 0 == read_run(tmp_path / "run").samples.height


def test_damaged_compression_is_named(tmp_path: Path) -> None:
    """Half a file is no run of half the length."""
    collected(tmp_path / "run")
    before = read_run(tmp_path / "run").samples
    part = tmp_path / "run" / "pages" / "part-00000.jsonl.xz"
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(InputError, match="must be whole and compressed as named"):
        reparse(tmp_path / "run", 0)
    assert before.equals(read_run(tmp_path / "run").samples)
