"""Taking samples out of a Prometheus server: which ones, of which engine, and what goes wrong."""

import asyncio
import json
import math
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from prometheus_server import FakePrometheus, Fault, Labels, Points, fake_prometheus, fault

from collectors.prometheus import api, backfill
from collectors.prometheus.backfill import Wanted
from collectors.prometheus.matchers import inner
from collectors.prometheus.source import Range
from collectors.prometheus.targets import only_target, target_of
from collectors.run import Run, read_run
from collectors.scrape.credentials import Credentials
from collectors.scrape.fetch import Fetcher
from collectors.scrape.urls import urls_of
from preempt.commands import progress
from preempt.main import main
from replay.errors import InputError

START = 1_795_986_000_000  # 2026-11-29T21:00:00Z
MINUTE = 60_000
WHEN = Range(START, START + MINUTE)
ENGINE = {"job": "vllm", "instance": "gpu-1:8000", "engine": "0", "model_name": "tiny"}
UP = {"__name__": "up", "job": "vllm", "instance": "gpu-1:8000"}
SECRET = "sesame-open-9923"  # noqa: S105 (of nothing)


def times(count: int = 60, first: int = START + 137, step: int = 1000) -> list[int]:
    """Moments of scrapes, none of them at a whole second."""
    return [first + k * step for k in range(count)]


def series(at: list[int], **labels: str) -> list[tuple[Labels, Points]]:
    """What Prometheus has of an engine whose counters rise by one a scrape."""
    own = ENGINE | labels
    target = {k: v for k, v in own.items() if k not in {"engine", "model_name"}}
    rising = [(one, float(k)) for k, one in enumerate(at)]
    info = own | {"block_size": "16", "num_gpu_blocks": "64", "num_gpu_blocks_override": "None"}
    found = [
        (own | {"__name__": "vllm:num_preemptions_total"}, rising),
        (own | {"__name__": "vllm:num_requests_running"}, [(one, 3.0) for one in at]),
        (info | {"__name__": "vllm:cache_config_info"}, [(one, 1.0) for one in at]),
        (target | {"__name__": "process_start_time_seconds"}, [(one, 1e9) for one in at]),
        (target | {"__name__": "up"}, [(one, 1.0) for one in at]),
    ]
    for le in ("0.1", "+Inf"):
        name = {"__name__": "vllm:time_to_first_token_seconds_bucket", "le": le}
        found.append((own | name, rising))
    return found


def filled(
    fake: FakePrometheus,
    out: Path,
    when: Range = WHEN,
    timeout_us: int = 60_000_000,
    pauses: list[float] | None = None,
    **wanted: Any,
) -> Run:
    """The run that a backfill makes; pauses take no time."""

    async def pause(seconds: float) -> None:
        if pauses is not None:
            pauses.append(seconds)

    async def fill() -> None:
        async with Fetcher(urls_of(fake.url), Credentials(), timeout_us) as fetcher:
            await backfill.backfill(api.Api(fetcher, pause), Wanted(when, **wanted), out)

    asyncio.run(fill())
    return read_run(out)


@pytest.mark.parametrize("left_open", [False, True])
@pytest.mark.parametrize("width_ms", [137, 863, 1000, 7001, 300_000])
def test_no_sample_comes_twice_or_is_lost_at_a_windows_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, left_open: bool, width_ms: int
) -> None:
    """Windows may end on a sample's very millisecond, on either generation of the server."""
    monkeypatch.setattr(backfill, "_FIRST_MS", width_ms)
    monkeypatch.setattr(backfill, "_LONGEST_MS", width_ms)
    with fake_prometheus(series(times())) as fake:
        fake.left_open = left_open
        run = filled(fake, tmp_path / "run")
    rows = run.samples.filter(run.samples["name"] == "num_preemptions")
    assert [float(k) for k in range(60)] == rows["value"].to_list()
    assert list(range(60)) == rows["scrape"].to_list()
    assert [137_000 + k * 1_000_000 for k in range(60)] == rows["time_us"].to_list()
    assert (60, 1_000_000, []) == tuple(
        run.manifest[key] for key in ("scrapes", "scrape_interval_us", "gaps")
    )


def test_the_range_takes_in_its_start_and_not_its_end(tmp_path: Path) -> None:
    """Two ranges that meet share no sample."""
    with fake_prometheus(series(times(first=START))) as fake:
        first = filled(fake, tmp_path / "a", Range(START, START + 30_000))
        second = filled(fake, tmp_path / "b", Range(START + 30_000, START + MINUTE))
    assert (30, 30) == (first.manifest["scrapes"], second.manifest["scrapes"])
    assert 0 == second.samples["time_us"].min()


@pytest.mark.parametrize("step_ms", [250, 500, 1000])
def test_steps_give_the_same_samples_once(tmp_path: Path, step_ms: int) -> None:
    """A value that several steps show is one sample, at its own time, even in two windows."""
    with fake_prometheus(series(times())) as fake:
        raw = filled(fake, tmp_path / "raw")
        steps = filled(fake, tmp_path / "steps", step_ms=step_ms)
    order = ["scrape", "name", "labels", "le"]
    assert raw.samples.drop("run_id").sort(order).equals(steps.samples.drop("run_id").sort(order))
    assert raw.manifest["gaps"] == steps.manifest["gaps"] == []
    assert any("at steps of" in note for note in steps.manifest["collection"]["notes"])


@pytest.mark.parametrize("step_ms", [5, 50])
def test_a_short_step_over_a_long_range_is_asked_for_in_windows(
    tmp_path: Path, step_ms: int
) -> None:
    """A query of more than 11,000 points a series is an error of Prometheus's, never asked."""
    at = times(4, step=15_000)
    with fake_prometheus(series(at)) as fake:
        raw = filled(fake, tmp_path / "raw")
        steps = filled(fake, tmp_path / "steps", step_ms=step_ms)
        ranges = [ask for path, ask in fake.asked if path.endswith("query_range")]
    assert 4 == steps.manifest["scrapes"]
    assert raw.samples.drop("run_id").height == steps.samples.drop("run_id").height
    points = [(float(a["end"]) - float(a["start"])) / float(a["step"]) + 1 for a in ranges]
    assert 11_000 >= max(points)


def test_a_server_with_smaller_limits_is_asked_for_less(tmp_path: Path) -> None:
    """Some front ends call a window that is too long a bad request."""
    with fake_prometheus(series(times())) as fake:
        fake.faults = [_through(fake), _through(fake), fault(400), fault(400)]
        assert 60 == filled(fake, tmp_path / "run").manifest["scrapes"]


def test_a_longer_step_leaves_samples_out_and_says_so(tmp_path: Path) -> None:
    """What no step shows cannot be had, and the manifest names the step."""
    with fake_prometheus(series(times())) as fake:
        run = filled(fake, tmp_path / "run", step_ms=5000)
    assert 12 == run.manifest["scrapes"]
    notes = run.manifest["collection"]["notes"]
    assert "seen at steps of 5000 ms: samples in between are not here" in notes


def test_nothing_of_prometheus_gets_into_the_run(tmp_path: Path) -> None:
    """Its labels go, whatever they are called, and a label that it renamed gets its name back."""
    more = {"rack": "b-17", "pod": "vllm-0", "exported_pod": "of-the-page"}
    found = series(times(), **more)
    for labels, _ in found:
        if labels["__name__"] == "up":
            del labels["exported_pod"]
    with fake_prometheus(found) as fake:
        run = filled(fake, tmp_path / "run", more='job="vllm"')
    assert {'{"pod":"of-the-page"}'} == set(run.samples["labels"])
    text = (tmp_path / "run" / "manifest.json").read_text()
    assert [] == [word for word in ("b-17", "vllm-0", "gpu-1") if word in text]
    assert "observed" == run.manifest["kind"]
    assert (16, 64, 63) == tuple(
        run.manifest["cache"][key] for key in ("block_size", "num_gpu_blocks", "capacity_blocks")
    )


def test_failed_and_missing_scrapes_are_gaps(tmp_path: Path) -> None:
    """A scrape that failed has a number, one that nobody made has none, and both are missed."""
    at = times()
    kept = [one for k, one in enumerate(at) if k not in {10, 11} and not 20 <= k < 25]
    found = [one for one in series(kept) if one[0]["__name__"] != "up"]
    ups = [(one, float(k not in {10, 11})) for k, one in enumerate(at) if not 20 <= k < 25]
    with fake_prometheus([*found, (UP, ups)]) as fake:
        run = filled(fake, tmp_path / "run")
    assert {"ok": 53, "unreachable": 2} == run.manifest["collection"]["outcomes"]
    gaps = [(gap["start_us"], gap["end_us"], gap["scrapes_missed"]) for gap in run.manifest["gaps"]]
    assert [(9_137_000, 12_137_000, 2), (19_137_000, 25_137_000, 5)] == gaps
    reasons = [gap["reason"] for gap in run.manifest["gaps"]]
    assert ["unreachable: 2", "collector not running: 5"] == reasons


def test_the_ends_of_the_range_are_gaps_too(tmp_path: Path) -> None:
    """Asked for a minute, with forty seconds there, it says which twenty are not."""
    with fake_prometheus(series(times(40, START + 10_000))) as fake:
        run = filled(fake, tmp_path / "run")
    gaps = [(gap["start_us"], gap["end_us"], gap["scrapes_missed"]) for gap in run.manifest["gaps"]]
    assert [(0, 10_000_000, 10), (49_000_000, 60_000_000, 10)] == gaps


def test_a_reset_of_a_counter_is_found(tmp_path: Path) -> None:
    """By the same rules as in a direct scrape."""
    found = series(times())
    for labels, points in found:
        if labels["__name__"] == "vllm:num_preemptions_total":
            points[:] = [(at, value % 30 + 5) for at, value in points]
    with fake_prometheus(found) as fake:
        run = filled(fake, tmp_path / "run")
    (reset,) = run.manifest["counter_resets"]
    assert ("num_preemptions", 30, 34.0, 5.0) == tuple(
        reset[key] for key in ("name", "scrape", "before", "after")
    )


@pytest.mark.parametrize("width_ms", [1000, 4567, 30_000])
def test_resets_are_found_at_the_edge_of_windows_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width_ms: int
) -> None:
    """Wherever windows end, of every engine on the page, once."""
    monkeypatch.setattr(backfill, "_FIRST_MS", width_ms)
    monkeypatch.setattr(backfill, "_LONGEST_MS", width_ms)
    found = series(times()) + series(times(), engine="1")[:2]
    for labels, points in found:
        if labels["__name__"] == "vllm:num_preemptions_total":
            points[:] = [(at, value % (20 + int(labels["engine"]))) for at, value in points]
    with fake_prometheus(found) as fake:
        run = filled(fake, tmp_path / "run")
    resets = [(one["engine"], one["scrape"]) for one in run.manifest["counter_resets"]]
    assert [(0, 20), (1, 21), (0, 40), (1, 42)] == resets
    assert {0, 1} == set(run.samples["engine"].drop_nulls())
    assert 60 == run.manifest["scrapes"]


def test_nan_is_null_and_a_series_that_ends_has_no_more_rows(tmp_path: Path) -> None:
    """Prometheus leaves its staleness markers out; a value that is no number is one of ours."""
    found = series(times())
    found[0][1][5] = (found[0][1][5][0], math.nan)
    del found[1][1][30:]
    with fake_prometheus(found) as fake:
        run = filled(fake, tmp_path / "run")
    by_name = {key: frame for (key,), frame in run.samples.group_by("name")}
    assert [None] == by_name["num_preemptions"]["value"].to_list()[5:6]
    assert 30 == by_name["num_requests_running"].height
    assert 60 == run.manifest["scrapes"]


def test_two_engines_are_refused_with_a_choice(tmp_path: Path) -> None:
    """One run is one engine: the message lists them, and --instance picks one."""
    found = series(times()) + series(times(), instance="gpu-2:8000")
    with fake_prometheus(found) as fake:
        with pytest.raises(InputError) as caught:
            filled(fake, tmp_path / "run")
        assert "pass --instance" in str(caught.value)
        assert "got 2: instance=gpu-1:8000; instance=gpu-2:8000" in str(caught.value)
        assert not (tmp_path / "run").exists()
        run = filled(fake, tmp_path / "run", more='instance="gpu-2:8000"')
    assert 60 == run.manifest["scrapes"]


def test_two_copies_of_a_series_are_two_engines(tmp_path: Path) -> None:
    """A label that only some servers add tells copies apart, and is named."""
    found = series(times(), server="a") + series(times(), server="b")
    with fake_prometheus(found) as fake, pytest.raises(InputError, match="got server"):
        filled(fake, tmp_path / "run")
    ups = [one for one in found if one[0]["__name__"] != "up"]
    for labels, _ in ups:
        labels["container"] = labels.pop("server")
    with fake_prometheus(ups) as fake, pytest.raises(InputError, match="differ in no label"):
        filled(fake, tmp_path / "run")


def test_many_choices_are_cut_and_harmless_to_print() -> None:
    """Twenty are shown, without control characters."""
    listed = [{"instance": f"\x1b[31m{k:03d}"} for k in range(50)]
    with pytest.raises(InputError) as caught:
        only_target(listed)
    assert "\x1b" not in str(caught.value)
    assert "got 50: " in str(caught.value)
    assert str(caught.value).endswith("and 30 more")


def test_without_up_the_usual_labels_go() -> None:
    """A server that keeps no series of up leaves the names that Prometheus usually adds."""
    target = target_of({"job": "vllm"}, [])
    labels = {"__name__": "vllm:x", "job": "vllm", "node": "n", "engine": "0", "team": "t"}
    assert {"engine": "0", "team": "t"} == target.page_labels(labels)


def test_another_configuration_ends_the_range(tmp_path: Path) -> None:
    """A run has one; the message says from when on there is another."""
    found = series(times())
    info = dict(found[2][0]) | {"num_gpu_blocks": "128"}
    found.append((info, found[2][1][30:]))
    del found[2][1][30:]
    with fake_prometheus(found) as fake, pytest.raises(InputError) as caught:
        filled(fake, tmp_path / "run")
    assert "must end before 2026-11-29T21:00:30.137Z" in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "other",
    [
        fault(422, b'{"status":"error"}'),
        fault(503),
        fault(200, b"[" + b" " * api.MOST_ANSWER_BYTES + b"]"),
    ],
)
def test_too_much_is_asked_for_in_smaller_windows(tmp_path: Path, other: Fault) -> None:
    """Whatever the server's way to say so, the samples are the same."""
    with fake_prometheus(series(times())) as fake:
        fake.faults = [_through(fake), _through(fake), other]
        run = filled(fake, tmp_path / "run")
        assert 60 == run.manifest["scrapes"]
        fake.most_points = 30
        again = filled(fake, tmp_path / "again")
    assert run.samples.drop("run_id").equals(again.samples.drop("run_id"))


def _through(fake: FakePrometheus) -> Fault:
    """The proper answer."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path, ask = fake.asked[-1]
        status, data = fake.answer(path, ask)
        body = json.dumps({"status": "success", "data": data}).encode()
        fault(status, body)(handler)

    return answer


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Headers, and then nothing until the client goes."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.flush()
    handler.connection.settimeout(10)
    handler.connection.recv(1)


def test_a_server_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query has one deadline, and windows do not shrink for ever."""
    monkeypatch.setattr(backfill, "_FIRST_MS", 8)  # each is waited for as long as an answer is
    with fake_prometheus(series(times())) as fake:
        fake.faults = [_through(fake), _through(fake), *[hang] * 40]
        with pytest.raises(InputError, match=r"within --timeout.*got timeout"):
            filled(fake, tmp_path / "run", timeout_us=1_000_000)
    assert [] == list(tmp_path.iterdir())


def test_a_server_that_fails_now_and_then_is_asked_again(tmp_path: Path) -> None:
    """With growing pauses, and only so often."""
    pauses: list[float] = []
    with fake_prometheus(series(times())) as fake:
        fake.faults = [fault(500), fault(429), fault(502)]
        assert 60 == filled(fake, tmp_path / "run", pauses=pauses).manifest["scrapes"]
        assert [0.5, 1.0, 2.0] == pauses
        fake.faults = [fault(500)] * 4
        with pytest.raises(
            InputError, match="Prometheus: series must answer queries, got http_500"
        ):
            filled(fake, tmp_path / "again")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (fault(401, SECRET.encode()), "must let us in: pass --bearer-token-file, got http_401"),
        (fault(404), "is a path prefix missing"),
        (fault(302, Location="http://192.0.2.1/"), "redirects are not followed, got redirect"),
        (fault(400, SECRET.encode()), "is --selector right?, got status 400"),
        (fault(200, b"<html>" + SECRET.encode()), "must be JSON"),
        (fault(200, b'{"status":"success","data":{}}'), "must be a list of series"),
        (fault(200, b'{"status":"success","data":[1]}'), "must be an object of strings"),
        (fault(200, b'{"status":"success","data":[]}'), "must answer"),
        (fault(200, b"[" * 100_000), "nesting too deep"),
        (fault(200, b'{"status":"error","error":"' + SECRET.encode() + b'"}'), "a Prometheus?"),
    ],
)
def test_an_answer_that_is_none_ends_it_in_one_line(
    tmp_path: Path, other: Fault, said: str
) -> None:
    """Without the server's own words, and without a run."""
    with fake_prometheus([]) as fake:
        fake.faults = [other]
        with pytest.raises(InputError) as caught:
            filled(fake, tmp_path / "run")
    if said == "must answer":
        said = "must have a sample of vLLM's in this time under this selector, got none"
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"resultType": "vector", "result": []}, "must be matrix"),
        ({"resultType": "matrix", "result": 1}, "must be a list of series"),
        (_one := {"resultType": "matrix", "result": [{"metric": {}, "values": 1}]}, "must be a li"),
        ({**_one, "result": [{"metric": {}, "values": [[1]]}]}, "must be pairs"),
        ({**_one, "result": [{"metric": {}, "values": [[1, "x"]]}]}, "must be numbers"),
        ({**_one, "result": [{"metric": {}, "values": [[1e999, "1"]]}]}, "must be pairs"),
        ({**_one, "result": [{"metric": 1, "values": []}]}, "must be an object of strings"),
        ({**_one, "result": [{"metric": {}, "values": [[2, "1"], [1, "1"]]}]}, "must rise"),
    ],
)
def test_series_that_are_none_are_refused(tmp_path: Path, data: Any, said: str) -> None:
    """Each with the field and the rule it breaks."""
    with fake_prometheus(series(times())) as fake:
        body = json.dumps({"status": "success", "data": data}).encode()
        fake.faults = [_through(fake), _through(fake), fault(200, body)]
        with pytest.raises(InputError, match=said):
            filled(fake, tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ("{}", ""),
        ('{job="vllm"}', 'job="vllm"'),
        (' { job =~ "a.*" , pod!="x\\"}" , } ', 'job =~ "a.*" , pod!="x\\"}"'),
    ],
)
def test_a_selector_is_matchers_in_braces(text: str, matchers: str) -> None:
    """As people write them."""
    assert matchers == inner(text)


@pytest.mark.parametrize(
    "text", ["", "up", '{job="a"} or up', "{job=a}", '{job="a"', '{a="' + "b" * 5000 + '"}']
)
def test_another_query_is_no_selector(text: str) -> None:
    """Nothing can be smuggled in behind the braces."""
    with pytest.raises(InputError, match="--selector must be matchers in braces"):
        inner(text)


def ended(*arguments: object) -> int:
    """Exit code of the command."""
    with pytest.raises(SystemExit) as left:
        main(["collect", "prometheus", *map(str, arguments)])
    return int(left.value.code or 0)


def test_the_command_makes_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for people, the manifest for machines, and the token only in the request."""
    token = tmp_path / "token"
    token.write_text(SECRET)
    when = "2026-11-29T21:00:00Z/2026-11-29T21:01:00Z"
    with fake_prometheus(series(times())) as fake:
        asked = ("--url", fake.url, "--query-range", when, "--bearer-token-file", token)
        code = ended(*asked, "--out", tmp_path / "run", "--json", "--instance", "gpu-1:8000")
        assert 2 == ended(*asked, "--out", tmp_path / "run")
    output = capsys.readouterr()
    assert 0 == code
    assert 60 == json.loads(output.out)["scrapes"]
    assert f"{tmp_path / 'run'}: 60 scrapes, 0 gaps, 0 counter resets\n" in output.err
    assert "exists; choose another path" in output.err
    assert SECRET not in output.out + output.err
    assert 0o700 == (tmp_path / "run").stat().st_mode & 0o777


def test_how_far_it_is_is_told_to_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line now and then, in seconds of the range; none with --quiet."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(backfill, "_FIRST_MS", 20_000)
    monkeypatch.setattr(backfill, "_LONGEST_MS", 20_000)
    when = "2026-11-29T21:00:00Z/2026-11-29T21:01:00Z"
    with fake_prometheus(series(times())) as fake:
        asked = ("--url", fake.url, "--query-range", when)
        assert 0 == ended(*asked, "--out", tmp_path / "run")
        lines = capsys.readouterr().err.splitlines()
        assert 0 == ended(*asked, "--out", tmp_path / "quiet", "--quiet")
    assert [f"taken from Prometheus: {s} of 60 s" for s in (20, 40, 60)] == lines[:-1]
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--query-range", "2026-11-29T21:00:00Z", "must be START/END"),
        ("--query-range", "2026-11-29T21:00:00Z/2026-11-29T21:00:00Z", "must end after it starts"),
        ("--query-range", "2026-11-29T21:00:00/2026-11-29T21:00:00Z", "with its zone"),
        ("--query-range", "2026-11-29T21:00:00Z/2126-11-29T21:00:00Z", "must end in the past"),
        ("--step", "1us", "--step must be whole"),
        ("--step", "1500us", "--step must be whole milliseconds"),
        ("--url", "ftp://h", "url must be http"),
        ("--timeout", "1", "--timeout must be a number and a unit"),
    ],
)
def test_an_option_that_is_wrong_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, said: str
) -> None:
    """Exit 2, before anything is asked."""
    options = {
        "--url": "http://127.0.0.1:1",
        "--out": tmp_path / "run",
        "--query-range": "2026-11-29T21:00:00Z/2026-11-29T21:01:00Z",
    } | {option: value}
    assert 2 == ended(*(word for pair in options.items() for word in pair))
    assert said in capsys.readouterr().err


def test_the_deadline_is_for_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However many queries there are."""
    when = "2026-11-29T21:00:00Z/2026-11-29T21:01:00Z"
    with fake_prometheus(series(times())) as fake:
        fake.faults = [hang] * 5
        asked = ("--url", fake.url, "--query-range", when, "--deadline", "100ms")
        assert 2 == ended(*asked, "--out", tmp_path / "run")
    errors = capsys.readouterr().err
    assert "must give everything within --deadline; nothing was written: ask for less" in errors
    assert [] == list(tmp_path.iterdir())
