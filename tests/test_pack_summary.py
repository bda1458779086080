"""What a manifest says of a recorder that was killed, or that disagrees with the page's counter."""

from pathlib import Path
from typing import Any

import pytest
from spools import MONOTONIC_NS, UNIX_NS, append, header, ns, write_part
from test_pack import observed, packed, some, story_of

from collectors.exposition.samples import MetricSample, samples_frame
from collectors.pack.batch import pack_spool
from collectors.run import read_run
from collectors.run_config import not_replayed
from collectors.scrape.spool_hook import SpoolHook
from collectors.writer import RunWriter

NO_END = (
    "the recorder's end is missing (the engine was killed, or still ran): its last events may be"
    " missing"
)
END = ["E", ns(9_000_000)]
S = 1_000_000


def struck(n: int, name: str, seq: int, at_us: int, *, status: str = "ok") -> list[Any]:
    """A request that is preempted once, a millisecond after it came, and ends after ten more."""
    whole = some(n, name, seq, at_us, step=10 * n)
    request, arrive, admit, step, finish = whole
    step_1, step_2 = 10 * n + 1, 10 * n + 2
    return [
        *(request, arrive, admit, step),
        ["P", seq + 2, step_1, ns(at_us + 1000), n, 41, 41, 1, 2, 0, 0, 1, 1],
        ["U", seq + 3, step_2, ns(at_us + 2000), n, 0],
        ["F", seq + 4, step_2, ns(at_us + 10_000), n, 2, 1, status, *finish[8:]],
    ]


# -- killed ----------------------------------------------------------------------------------------


def test_what_a_killed_engine_had_in_hand_withholds_exact(tmp_path: Path) -> None:
    """Its events go on in a replay, and nobody knows those of the last moment."""
    run = packed(tmp_path, *some(0, "a", 0, 10), *some(1, "b", 3, 20, step=1)[:4])
    assert [NO_END] == run.manifest["not_modelled"]
    assert NO_END in not_replayed(run)
    assert not run.manifest["recorder"]["complete"]


def test_an_engine_that_was_killed_with_nothing_in_hand_withholds_nothing(tmp_path: Path) -> None:
    """Records are in order: what ended has all of its events."""
    run = packed(tmp_path, *some(0, "a", 0, 10), *some(1, "b", 3, 20, step=1))
    assert [] == run.manifest["not_modelled"]
    assert not run.manifest["recorder"]["complete"]


def test_an_engine_that_ended_properly_withholds_nothing(tmp_path: Path) -> None:
    """The end record says that there was no more."""
    run = packed(tmp_path, *story_of("a", "b"), END)
    assert [] == run.manifest["not_modelled"]
    assert run.manifest["recorder"]["complete"]


@pytest.mark.parametrize(("policy", "withheld"), [("priority", True), ("fcfs", False)])
def test_a_wall_clock_that_was_set_withholds_exact_where_arrival_times_are_compared(
    policy: str, withheld: bool, tmp_path: Path
) -> None:
    """Priority compared what that clock showed, which is not what the rows say."""
    hour = 3600 * 10**9
    early, late = some(0, "a", 0, 1000), some(1, "b", 3, 20_000_000, step=1)
    late[0][3] += hour
    set_then = ["C", UNIX_NS + 10 * 10**9 + hour, MONOTONIC_NS + 10 * 10**9]
    scheduler = header()["scheduler"] | {"scheduling_policy": policy}
    run = packed(tmp_path, *early, set_then, *late, END, scheduler=scheduler)
    found = not_replayed(run)
    assert withheld == any(said.startswith("the wall clock was set") for said in found)
    assert withheld == bool(found)
    assert found == run.manifest["not_modelled"]


def test_requests_that_have_not_ended_withhold_exact_until_they_have(tmp_path: Path) -> None:
    """A collector writes its manifest again and again: each says what is so now, and only that."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    first, second = some(0, "a", 0, 10), some(1, "b", 3, 20, step=1)
    part = write_part(spool, header(), [first[:4], second[:4]])
    ends = ["F", 6, 2, ns(60), 0, *first[4][5:]], ["F", 7, 2, ns(70), 1, *second[4][5:]]
    said = []
    with RunWriter.resume(out) as writer:
        hook = SpoolHook(writer, spool)
        for more in ([], [[ends[0]]], [[ends[1]]]):
            append(part, more)
            hook.pack(final=False)
            manifest = hook.fill(dict(writer.manifest))
            writer.write_manifest(manifest)
            said.append(manifest["not_modelled"])
    words = "requests had not ended when this was written: a replay knows nothing of them"
    assert [[f"2 {words}"], [f"1 {words}"], []] == said


def test_reasons_of_others_stay_in_a_manifest(tmp_path: Path) -> None:
    """The page saw speculative decoding; the spool knows nothing of that."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    write_part(spool, header(), [some(0, "a", 0, 10)[:4]])
    with RunWriter.resume(out) as writer:
        writer.write_manifest({**writer.manifest, "not_modelled": ["speculative decoding was on"]})
    (found,) = pack_spool(spool, out)
    assert ["speculative decoding was on", NO_END] == found.not_modelled


# -- the page's counter ----------------------------------------------------------------------------


def scraped(path: Path, *pages: tuple[int, int, int], engine: int | None = 0) -> Path:
    """A run with these scrapes: time, requests running, the counter."""
    run = observed(path)
    with RunWriter.resume(run) as writer:
        for k, (at_us, running, count) in enumerate(pages):
            values = {
                "num_preemptions": count,
                "num_requests_running": running,
                "num_requests_waiting": 0,
            }
            found = [
                MetricSample(engine, "tiny", name, "{}", None, float(value))
                for name, value in values.items()
            ]
            frame = samples_frame(writer.manifest["run_id"], [(k, at_us, found)])
            writer.write_part("metric_samples", frame.drop("run_id"))
    return run


def differing(run: Path, spool: Path) -> list[str]:
    """Notes on the counter that packing leaves."""
    pack_spool(spool, run)
    return [n for n in read_run(run).manifest["recorder"]["notes"] if "counter" in n]


def two_struck(spool: Path, **changes: Any) -> Path:
    """Two requests that were preempted, one and two seconds into the run."""
    records = [*struck(0, "a", 0, 1 * S), *struck(1, "b", 5, 2 * S, **changes), END]
    write_part(spool, header(), [records])
    return spool


def test_a_counter_that_disagrees_over_the_same_time_is_noted(tmp_path: Path) -> None:
    """With both numbers; nobody is corrected."""
    run = scraped(tmp_path / "run", (0, 0, 5), (S, 1, 5), (3 * S, 0, 8))
    expected = "the recorder saw 2 preemptions, and the page's counter rose by 3 meanwhile"
    assert [expected] == differing(run, two_struck(tmp_path / "spool"))


@pytest.mark.parametrize("engine", [0, None])
def test_a_counter_that_agrees_is_not_mentioned(tmp_path: Path, engine: int | None) -> None:
    """Whether the page names its engine or not."""
    run = scraped(tmp_path / "run", (0, 0, 5), (3 * S, 0, 7), engine=engine)
    assert [] == differing(run, two_struck(tmp_path / "spool"))


@pytest.mark.parametrize(
    "pages",
    [
        [(0, 1, 5), (3 * S, 0, 8)],  # busy at the first scrape
        [(0, 0, 5), (3 * S, 1, 8)],  # and at the last
        [(1 * S + 5000, 0, 5), (3 * S, 0, 8)],  # a preemption came before the first
        [(0, 0, 5), (2 * S, 0, 8)],  # and behind the last
        [(0, 0, 5), (3 * S, 0, 1)],  # the counter began anew
        [],
    ],
)
def test_of_another_time_nothing_is_said(tmp_path: Path, pages: list[Any]) -> None:
    """The counter lags and scrapes are rare: the numbers need not be the same."""
    assert [] == differing(scraped(tmp_path / "run", *pages), two_struck(tmp_path / "spool"))


def test_of_a_victim_that_never_went_on_nothing_is_said(tmp_path: Path) -> None:
    """The counter moves when a victim next emits a token."""
    run = scraped(tmp_path / "run", (0, 0, 5), (3 * S, 0, 6))
    assert [] == differing(run, two_struck(tmp_path / "spool", status="aborted"))


def test_of_other_engines_than_the_recorded_nothing_is_said(tmp_path: Path) -> None:
    """The page has engine 1, the spool has 0."""
    run = scraped(tmp_path / "run", (0, 0, 5), (3 * S, 0, 8), engine=1)
    assert [] == differing(run, two_struck(tmp_path / "spool"))


def test_a_run_without_samples_says_nothing_of_a_counter(tmp_path: Path) -> None:
    """There is nothing to compare with."""
    assert [] == differing(observed(tmp_path / "run"), two_struck(tmp_path / "spool"))


def test_a_running_collector_notes_it_too(tmp_path: Path) -> None:
    """As soon as both are there."""
    run = scraped(tmp_path / "run", (0, 0, 5), (3 * S, 0, 8))
    with RunWriter.resume(run) as writer:
        hook = SpoolHook(writer, two_struck(tmp_path / "spool"))
        hook.pack(final=False)
        notes = hook.fill(dict(writer.manifest))["recorder"]["notes"]
    assert any("rose by 3 meanwhile" in note for note in notes)
