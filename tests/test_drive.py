"""`preempt collect drive` against a server of the tests' own: a run, whatever the server does."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from completion_server import MODEL, CompletionServer, serving
from ports import held

from collectors.drive.journal import Found, read_journal
from collectors.run import Run, read_run
from replay.workload import Request, Workload
from replay.workload_file import read_workload, write_workload

_PATIENCE_S = 60


@contextmanager
def server(**behaviour: Any) -> Iterator[CompletionServer]:
    """The server on a thread of its own."""
    made = CompletionServer(**behaviour)
    ready, ends = threading.Event(), list[Callable[[], object]]()

    async def serve() -> None:
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        async with serving(made):
            ends.append(partial(loop.call_soon_threadsafe, end.set))
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(_PATIENCE_S)
    try:
        yield made
    finally:
        ends[0]()
        thread.join(_PATIENCE_S)


def workload(tmp_path: Path, *requests: Request, chunk: int | None = None) -> Path:
    """A workload file of these requests, six small ones if none are given."""
    made = requests or tuple(Request(f"r{k}", k * 2000, 5 + k, 4) for k in range(6))
    path = tmp_path / "offered.jsonl"
    write_workload(Workload(made, chunk), path, ".jsonl")
    return path


def command(*arguments: object) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "preempt", "collect", "drive", *map(str, arguments)]


def drive(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """The whole command, no pages scraped."""
    return subprocess.run(
        command(*arguments, "--interval", "off"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environ},
    )


def driven(tmp_path: Path, url: str, *more: object, file: Path | None = None) -> tuple[Any, Run]:
    """A finished drive: its JSON and its run."""
    out, patient = tmp_path / "run", ("--lateness-limit", "1h")  # the machine may be busy
    done = drive(file or workload(tmp_path), "--url", url, "--out", out, "--json", *patient, *more)
    assert (0, "") == (done.returncode, done.stderr)
    return json.loads(done.stdout), read_run(out)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, not forever."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_workload_becomes_a_run_with_a_row_for_every_request(tmp_path: Path) -> None:
    """Statuses, tokens and times of all, the manifest's facts, and the workload itself."""
    with server(per_chunk=3) as served:
        summary, run = driven(tmp_path, served.url, "--side", "candidate", "--pair", 2)
    rows = run.requests
    assert [f"r{k}" for k in range(6)] == rows["request_id"].to_list()
    assert ["ok"] * 6 == rows["status"].to_list()
    assert [5, 6, 7, 8, 9, 10] == rows["prompt_tokens"].to_list()
    assert ([4] * 6, ["length"] * 6) == (
        rows["generated_tokens"].to_list(),
        rows["finish_reason"].to_list(),
    )
    for name in ("ttft_us", "tpot_us", "e2e_us"):
        assert 0 == rows[name].null_count()
    assert (rows["arrival_us"] >= pl.Series([k * 2000 for k in range(6)])).all()
    manifest = run.manifest
    assert ("driven", "0.32.0", MODEL) == (
        manifest["kind"],
        manifest["engine"]["version"],
        manifest["model"]["name"],
    )
    assert ("candidate", 2, None) == tuple(
        manifest["comparison"][name] for name in ("side", "pair", "order")
    )
    assert read_workload(tmp_path / "offered.jsonl").sha256 == summary_sha(manifest)
    assert manifest["send_end_us"] <= manifest["drain_end_us"]
    assert ([], 6, 24) == (
        summary["notes"],
        summary["statuses"]["ok"],
        summary["generated_tokens"],
    )


def summary_sha(manifest: Any) -> str:
    """Hash of the workload that a manifest names."""
    found: str = manifest["workload"]["workload_sha256"]
    return found


def test_two_drives_send_the_same_bodies(tmp_path: Path) -> None:
    """Prompts and options of each request are equal, in another process with another hash seed."""
    chunked = (
        Request("a", 0, 9, 2, prefix_blocks=(1, 2)),
        Request("b", 0, 9, 2, prefix_blocks=(1,)),
    )
    file = workload(tmp_path, *chunked, chunk=4)
    sent = []
    for number in ("1", "2"):
        with server() as served:
            arguments = (file, "--url", served.url, "--out", tmp_path / number)
            assert 0 == drive(*arguments, PYTHONHASHSEED=number).returncode
            sent.append(served.bodies)
    assert sent[0] == sent[1]
    first, second = (sent[0][name]["prompt"] for name in "ab")
    assert (first[:4], 9) == (second[:4], len(first))
    assert first[4] != second[4]
    assert {"max_tokens": 2, "min_tokens": 2, "ignore_eos": True, "temperature": 0} == {
        name: sent[0]["a"][name]
        for name in ("max_tokens", "min_tokens", "ignore_eos", "temperature")
    }
    assert "priority" not in sent[0]["a"]


def test_priorities_are_sent_when_a_request_has_one(tmp_path: Path) -> None:
    """Then every request names its own."""
    file = workload(tmp_path, Request("a", 0, 3, 2, priority=-3), Request("b", 0, 3, 2))
    with server() as served:
        driven(tmp_path, served.url, file=file)
    assert [-3, 0] == [served.bodies[name]["priority"] for name in "ab"]


@pytest.mark.parametrize(
    ("mode", "status", "problem"),
    [
        ("429", "rejected", "http_429_BadRequestError"),
        ("503", "rejected", "http_503_BadRequestError"),
        ("400", "error", "http_400_BadRequestError"),
        ("500", "error", "http_500_BadRequestError"),
        ("redirect", "error", "http_307"),
        ("cut", "error", "cut_off"),
        ("error", "error", "server"),
        ("garbage", "error", "bad_stream"),
        ("endless", "error", "bad_stream"),
        ("engine_abort", "aborted", "server"),
        ("hang", "aborted", "timeout"),
        ("stall", "aborted", "timeout"),
    ],
)
def test_what_becomes_of_a_request_is_its_status(
    tmp_path: Path, mode: str, status: str, problem: str
) -> None:
    """And nothing of it touches the other requests."""
    # Long enough for the others on a busy machine.
    patience = ("--abort-after", "3s") if problem == "timeout" else ()
    with server(modes={"r2": mode}) as served:
        summary, run = driven(tmp_path, served.url, *patience)
    assert {"ok": 5, status: 1} == summary["statuses"]
    assert {problem: 1} == summary["problems"]
    (row,) = run.requests.filter(pl.col("request_id") == "r2").to_dicts()
    received = mode in {"cut", "error", "stall", "engine_abort"}
    assert (status, received) == (row["status"], row["ttft_us"] is not None)
    assert (None, None) == (row["e2e_us"], row["tpot_us"])
    if mode == "stall":
        assert 1 == row["generated_tokens"]


@pytest.mark.parametrize("mode", ["usage_at_end", "no_end"])
def test_streams_of_other_shapes_are_ok(tmp_path: Path, mode: str) -> None:
    """Usage only at the end, or a stream that closes without [DONE]."""
    with server(mode=mode) as served:
        summary, run = driven(tmp_path, served.url)
    assert {"ok": 6} == summary["statuses"]
    assert [4] * 6 == run.requests["generated_tokens"].to_list()
    assert 0 == run.requests["tpot_us"].null_count()


def test_a_server_that_counts_otherwise_is_believed_and_noted(tmp_path: Path) -> None:
    """Prompt tokens are the server's; a note says how many differ from the workload's."""
    with server(modes={"r1": "template"}) as served:
        summary, run = driven(tmp_path, served.url)
    assert 7 == run.requests["prompt_tokens"][1]
    assert (1, 0) == (summary["prompt_mismatches"], summary["output_mismatches"])
    (note,) = run.manifest["driver"]["notes"]
    assert "other prompt tokens in 1 requests" in note


def test_a_limit_on_requests_in_flight_is_kept_and_said(tmp_path: Path) -> None:
    """The manifest calls it a closed loop."""
    with server(token_s=0.02) as served:
        summary, run = driven(tmp_path, served.url, "--concurrency", 2)
    assert 2 == served.most_in_flight
    assert (True, False) == (summary["held_to_limit"], summary["behind"])
    assert any("closed loop" in note for note in run.manifest["driver"]["notes"])


def test_a_server_that_refuses_everything_ends_the_drive(tmp_path: Path) -> None:
    """One line with the kind of refusal, no prompt, exit 1; the rest is unsent."""
    file = workload(tmp_path, *(Request(f"r{k}", k * 50_000, 5, 4) for k in range(400)))
    with server(mode="400") as served:
        done = drive(file, "--url", served.url, "--out", tmp_path / "run")
    assert 1 == done.returncode
    assert "failed alike: http_400_BadRequestError" in done.stderr
    assert "prompt [" not in done.stderr
    found = counts(tmp_path / "run")
    assert 400 == sum(found.values())
    assert {"error", "unsent"} == found.keys()


def counts(out: Path) -> dict[str, int]:
    """How many requests of a run have which status."""
    return dict(read_run(out).requests["status"].value_counts().iter_rows())


def test_a_server_that_says_nothing_any_more_is_given_up(tmp_path: Path) -> None:
    """Told in a line, then exit 1 long before a time-out; open ones are censored, others unsent."""
    hanging = {f"r{k}": "hang" for k in range(5, 1000)}
    with server(modes=hanging) as served:
        process = running(tmp_path, served.url, 1000, "--give-up-after", "3s", "--drain", "1h")
        code, said = ended(process)
        reached = set(served.bodies)
    assert 1 == code, said
    assert "; given up after 3s\n" in said
    gone = "the server is gone, no token from the server for"
    assert re.search(rf"stopped early: {gone} \d+ s, open", said), said
    found = counts(tmp_path / "run")
    assert (1000, 5) == (sum(found.values()), found["ok"])
    assert {"ok", "censored", "unsent"} == found.keys()
    run = read_run(tmp_path / "run")
    sent = run.requests.filter(pl.col("status") != "unsent")["request_id"]
    assert reached <= set(sent)  # the last of them may have been on their way
    assert run.manifest["drain_end_us"] is not None


def test_a_server_that_went_away_is_given_up(tmp_path: Path) -> None:
    """What was refused is an error, what was not tried any more is unsent."""
    with held() as port:
        with server(port=port) as served:
            process = running(tmp_path, served.url, 1000, "--give-up-after", "1s")
            until(lambda: len(served.bodies) >= 5)
        code, said = ended(process)
    assert 1 == code, said
    assert re.search(r"failed: \d+ \(refused\)", said)
    found = counts(tmp_path / "run")
    assert 1000 == sum(found.values())
    assert {"ok", "error", "unsent"} == found.keys() - {"censored"}


def test_a_server_that_comes_back_in_time_is_waited_for(tmp_path: Path) -> None:
    """The silence and its end are told, and the drive goes on."""
    said = ""
    with server(modes={f"r{k}": "hold" for k in range(10, 50)}) as served:
        more = ("--give-up-after", "6s", "--lateness-limit", "1h")
        process = running(tmp_path, served.url, 50, *more)
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if "no token from the server for" in line:  # after half of that
                served.release()
        code, _ = ended(process)
    assert 0 == code, said
    assert {"ok": 50} == counts(tmp_path / "run")
    assert "no token from the server for " in said
    assert "the server answers again" in said


def test_no_server_is_one_line_and_nothing_written(tmp_path: Path) -> None:
    """Exit 2, and the run's directory does not exist."""
    done = drive(workload(tmp_path), "--url", "http://127.0.0.1:9", "--out", tmp_path / "run")
    assert (2, 1) == (done.returncode, done.stderr.count("\n"))
    assert "refused" in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_output_that_exists_is_kept(tmp_path: Path) -> None:
    """Exit 2 before anything is asked of the server."""
    (tmp_path / "run").mkdir()
    done = drive(workload(tmp_path), "--url", "http://127.0.0.1:9", "--out", tmp_path / "run")
    assert 2 == done.returncode
    assert "exists" in done.stderr


@pytest.mark.parametrize("by_file", [True, False])
def test_the_key_reaches_the_server_and_no_file(tmp_path: Path, *, by_file: bool) -> None:
    """Not the run, not the output, not the command line."""
    key = "sk-very-secret-4711"
    (tmp_path / "key").write_text(f"{key}\n")
    arguments = ("--api-key-file", tmp_path / "key") if by_file else ()
    environ = {} if by_file else {"OPENAI_API_KEY": key}
    with server() as served:
        out = tmp_path / "run"
        done = drive(workload(tmp_path), "--url", served.url, "--out", out, *arguments, **environ)
    assert 0 == done.returncode
    assert {f"Bearer {key}"} == {headers["Authorization"] for headers in served.headers}
    assert key not in done.stdout + done.stderr
    for path in out.rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes(), path


def test_no_text_of_a_prompt_or_an_answer_is_kept(tmp_path: Path) -> None:
    """Neither the generated text nor the prompt's tokens are in any file."""
    with server() as served:
        driven(tmp_path, served.url)
    prompt = json.dumps(served.bodies["r5"]["prompt"][:4]).strip("[]").encode()
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"secret text" not in data
            assert prompt not in data


def running(tmp_path: Path, url: str, count: int, *more: object) -> subprocess.Popen[str]:
    """A drive of many requests, 20 ms apart, in the background."""
    requests = (Request(f"r{k}", k * 20_000, 5, 4) for k in range(count))
    arguments = (workload(tmp_path, *requests), "--url", url, "--out", tmp_path / "run", *more)
    return subprocess.Popen(
        command(*arguments, "--interval", "off"), stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what it said."""
    _, said = process.communicate(timeout=_PATIENCE_S)
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_sending_and_what_hangs_is_censored(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Exit 130 with a whole run: done, in flight at the end of the drain, and never sent."""
    with server(modes={"r0": "hang"}) as served:
        process = running(tmp_path, served.url, 1000, "--drain", "2s")
        until(lambda: len(served.bodies) >= 5)
        process.send_signal(number)
        code, said = ended(process)
    assert 130 == code, said
    rows = read_run(tmp_path / "run").requests
    found = dict(rows["status"].value_counts().iter_rows())
    assert 1000 == sum(found.values())
    assert 1 == found["censored"]
    assert found["ok"] >= 4
    assert len(served.bodies) == found["ok"] + found["censored"]
    assert "censored" == rows["status"][0]


def test_a_second_signal_waits_for_nothing(tmp_path: Path) -> None:
    """The run is written although the drain is an hour."""
    with server(mode="hang") as served:
        process = running(tmp_path, served.url, 3, "--drain", "1h", "--timeout", "2h")
        until(lambda: len(served.bodies) == 3)

        def written() -> bool:
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)  # two at once may arrive as one
            return json.loads(manifest.read_text())["drain_end_us"] is not None

        manifest = tmp_path / "run" / "manifest.json"
        until(written)
        code, said = ended(process)
    assert 130 == code, said
    assert {"censored"} == set(read_run(tmp_path / "run").requests["status"])


def statuses(found: Found) -> list[str]:
    """Of the requests that a journal tells of."""
    return [seen.status for seen in found.seen.values()]


def test_a_killed_drive_is_finished_later_with_all_that_had_ended(tmp_path: Path) -> None:
    """SIGKILL, then --finish: every request that the server had answered is a row with times."""
    with server(modes={"r0": "hang"}) as served:
        process = running(tmp_path, served.url, 1000)
        until(lambda: len(served.bodies) >= 5)  # so there is a journal
        until(lambda: statuses(read_journal(tmp_path / "run", 1000)).count("ok") >= 15)
        process.kill()
        ended(process)
        reached = set(served.bodies)
    out = tmp_path / "run"
    assert read_run(out).manifest["drain_end_us"] is None
    done = drive("--finish", out)
    assert 0 == done.returncode, done.stderr
    run = read_run(out)
    rows = run.requests
    found = dict(rows["status"].value_counts().iter_rows())
    assert 1000 == sum(found.values())
    assert "censored" == rows["status"][0]
    assert found["ok"] >= 15
    # The journal is behind the server, or, by what was being sent, before it: only ends are known.
    assert set(rows.filter(pl.col("status") == "ok")["request_id"]) <= reached
    assert any("killed" in note for note in run.manifest["driver"]["notes"])
    again = drive("--finish", out)
    assert (2, True) == (again.returncode, "finished already" in again.stderr)


def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(tmp_path: Path) -> None:
    """No server is needed, and nothing is written."""
    done = drive(workload(tmp_path), "--dry-run", "--json", "--speed", "2")
    assert 0 == done.returncode
    plan = json.loads(done.stdout)
    assert (6, 45, 24, 5000) == tuple(
        plan[name] for name in ("requests", "prompt_tokens", "output_tokens", "duration_us")
    )
    assert ["offered.jsonl"] == [path.name for path in tmp_path.iterdir()]


def test_a_dry_run_asks_a_server_what_it_can_take(tmp_path: Path) -> None:
    """Requests longer than its max_model_len are counted, and nothing is sent."""
    file = workload(tmp_path, Request("a", 0, 4000, 96), Request("b", 0, 4000, 97))
    with server() as served:
        dry = (file, "--dry-run", "--url", served.url)
        done, json_done = drive(*dry), drive(*dry, "--json")
    assert (0, {}) == (done.returncode, served.bodies)
    said = "longer than the server's max_model_len of 4096 tokens, and refused by it: 1 of 2"
    assert f"{said} requests\n" in done.stderr
    plan = json.loads(json_done.stdout)
    assert (4096, 1) == (plan["max_model_len"], plan["longer_than_max_model_len"])
    gone = drive(file, "--dry-run", "--url", "http://127.0.0.1:9")
    assert (2, 1) == (gone.returncode, gone.stderr.count("\n"))


def test_a_spool_that_is_not_there_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    """Not after an hour of driving."""
    with server() as served:
        arguments = ("--url", served.url, "--out", tmp_path / "run", "--spool", tmp_path / "none")
        done = drive(workload(tmp_path), *arguments)
    assert (2, {}) == (done.returncode, served.bodies)
    assert "must be a recorder's spool directory" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_spool_that_is_not_packed_is_named_with_the_command_that_does_it(tmp_path: Path) -> None:
    """After a kill as after a spool that was empty; the run is whole without it."""
    spool, out = tmp_path / "spool", tmp_path / "run"
    spool.mkdir()
    adds = f"preempt collect drive --finish {out} --spool"
    with server() as served:
        process = running(tmp_path, served.url, 1000, "--spool", spool)
        until(lambda: len(served.bodies) >= 5)
        process.kill()
        ended(process)
        done, again = drive("--finish", out), drive("--finish", out)
        assert (0, True) == (done.returncode, f"is not in it yet: {adds} DIR\n" in done.stderr)
        assert (2, True) == (again.returncode, f"{adds} DIR adds that" in again.stderr)
        other = tmp_path / "other"
        done = drive(workload(tmp_path), "--url", served.url, "--out", other, "--spool", spool)
    assert 2 == done.returncode
    adds = f"preempt collect drive --finish {other} --spool {spool}"
    assert f"; {other} is whole without it; later: {adds}\n" in done.stderr
    assert {"ok": 6} == counts(other)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--url", "http://127.0.0.1:9"), "Missing option '--out'"),
        (("--out", "x"), "Missing option '--url'"),
        (("--url", "http://u:p@h", "--out", "x"), "url must have no user"),
        (("--url", "http://127.0.0.1:9", "--out", "x", "--speed", "0"), "--speed must be a factor"),
        (("--url", "http://127.0.0.1:9", "--out", "x", "--drain", "5"), "--drain must be a number"),
        (("--url", "http://h", "--out", "x", "--give-up-after", "9"), "--give-up-after must be"),
        (("--url", "http://127.0.0.1:9", "--out", "x", "--token-ids", "5"), "--token-ids must be"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Nothing is written."""
    done = drive(workload(tmp_path), *arguments)
    assert (2, True) == (done.returncode, said in done.stderr), done.stderr
    assert 1 == done.stderr.count("\n")


def test_client_detail_says_when_each_was_intended(tmp_path: Path) -> None:
    """`client.parquet` has one private row a request, also for what was scheduled faster."""
    with server() as served:
        driven(tmp_path, served.url, "--speed", "2")
    path = tmp_path / "run" / "client.parquet"
    frame = pl.read_parquet(path)
    assert [k * 1000 for k in range(6)] == frame["intended_us"].to_list()
    assert [200] * 6 == frame["http_status"].to_list()
    assert [4] * 6 == frame["chunks"].to_list()
    assert 0o600 == path.stat().st_mode & 0o777
