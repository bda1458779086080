"""The first look at a host: what is there, what is missing, and what to do next."""

import gzip
import json
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from fault_server import Answer, FaultServer, Writer, fault_server, fixed, hang, send
from spools import append, header, write_part

from collectors.doctor.spooled import State, spooled
from preempt.commands.doctor import doctor_command
from preempt.main import cli
from replay.errors import InputError

PAGES = Path(__file__).parents[1] / "fixtures" / "pages"
WIDTH = 80


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """A server that a test teaches what to answer."""
    with fault_server() as running:
        yield running


def recorded(name: str) -> bytes:
    """One of the pages that were kept."""
    path = next(PAGES.glob(f"{name}.txt*"))
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def small(
    count: int = 0,
    *,
    running: float = 0,
    tokens: int = 0,
    more: str = "",
    engines: Sequence[int] = (0,),
) -> bytes:
    """A page with all that is needed of vLLM 0.32.0, and a few numbers to choose."""
    text = "process_start_time_seconds 1000.0\n"
    kinds = {
        "num_preemptions": "counter",
        "prompt_tokens": "counter",
        "generation_tokens": "counter",
    }
    values = {
        "num_preemptions_total": count,
        "prompt_tokens_total": tokens,
        "generation_tokens_total": tokens,
        "num_requests_running": running,
        "num_requests_waiting": 2,
        "kv_cache_usage_perc": 0.5,
    }
    text += "".join(f"# TYPE vllm:{name} {kind}\n" for name, kind in kinds.items())
    for engine in engines:
        labels = f'{{engine="{engine}",model_name="tinymodel"}}'
        text += "".join(f"vllm:{name}{labels} {value}\n" for name, value in values.items())
        text += (
            f'vllm:cache_config_info{{block_size="32",cache_dtype="auto",engine="{engine}",'
            'enable_prefix_caching="True",kv_cache_memory_bytes="3145728",num_gpu_blocks="48",'
            'kv_cache_size_tokens="1536",num_gpu_blocks_override="None"} 1.0\n'
        )
    return (text + more).encode()


def one_after_the_other(*pages: bytes) -> Answer:
    """Each page once, then the last for ever."""

    async def answer(server: FaultServer, request: str, writer: Writer) -> None:
        del request
        server.served += 1
        await send(writer, pages[min(server.served, len(pages)) - 1])

    return answer


def doctor(server: FaultServer, *options: object, environ: dict[str, str] | None = None) -> Result:
    """The command's result, on a terminal of 80 columns."""
    words = ["--url", server.url, "--watch", "0", "--timeout", "60s", *map(str, options)]
    runner = CliRunner(
        env={"COLUMNS": str(WIDTH), "PREEMPTION_LEDGER_SPOOL": None, **(environ or {})}
    )
    return runner.invoke(doctor_command, words, catch_exceptions=False)


def facts(server: FaultServer, *options: object) -> dict[str, Any]:
    """What the command prints for machines."""
    found: dict[str, Any] = json.loads(doctor(server, "--json", *options).stdout)
    return found


def said(result: Result) -> str:
    """All output as one line, without the breaks that the width makes."""
    return " ".join(result.stdout.replace(" \\\n", "\n").split())


# What is there.


def test_a_real_page_is_recognised_whole(server: FaultServer) -> None:
    """Release, model, metrics, capacity and what to do next; nothing is missing."""
    server.answer = fixed(recorded("0.32.0"))
    result = doctor(server)
    assert 0 == result.exit_code
    assert f"vLLM 0.32.0 at {server.url}: model tinymodel, 1 engine" in said(result)
    assert "47 blocks of 32 tokens = 1,504 tokens (overridden)" in said(result)
    assert "miss" not in result.stdout
    assert "not exact" not in result.stdout
    assert f"preempt collect metrics --url {server.url} --duration 10m --out my-run" in said(result)


@pytest.mark.parametrize(
    ("name", "version"),
    [("0.32.0", "0.32.0"), ("0.28.0", "0.28.0"), ("0.17.1", "0.17.1"), ("0.12.0", "0.12.0")],
)
def test_pages_of_several_releases_lack_nothing_needed(
    server: FaultServer, name: str, version: str
) -> None:
    """Each release is held to its own list of metrics, and is told if replays are not checked."""
    server.answer, server.version = fixed(recorded(name)), version
    result = doctor(server)
    assert 0 == result.exit_code, result.stdout
    checked = version in {"0.32.0", "0.17.1"}
    assert checked == ("replays follow its scheduler exactly" in said(result))
    assert checked != ("was not checked: preempt replay takes --assume-rule" in said(result))
    found = facts(server)
    assert (version, ["tinymodel"], [0]) == (found["version"], found["models"], found["engines"])
    assert 1504 == found["capacity"][0]["capacity_tokens"]
    assert [] == found["metrics"]["unmatched"]
    assert "vllm:num_preemptions_total" == found["metrics"]["recognised"]["num_preemptions"]


@pytest.mark.parametrize("name", sorted({p.name.split(".txt")[0] for p in PAGES.glob("*.txt*")}))
def test_every_kept_page_gets_a_diagnosis_that_fits_the_terminal(
    server: FaultServer, name: str
) -> None:
    """Old releases, Ray, OpenMetrics and several engines: no line is wider than the terminal."""
    server.answer, server.version = fixed(recorded(name)), None
    result = doctor(server)
    assert result.exit_code in {0, 1}
    assert WIDTH >= max(map(len, result.stdout.splitlines()))
    assert "release unknown, /version does not say" in said(result)
    assert "" == result.stderr


def test_a_hidden_capacity_is_missing_and_not_zero(server: FaultServer) -> None:
    """Without the cache's labels nobody knows the blocks: exit 1, and null for machines."""
    page = b"".join(
        line for line in small().splitlines(keepends=True) if b"cache_config_info" not in line
    )
    server.answer = fixed(page)
    result = doctor(server)
    assert 1 == result.exit_code
    assert "miss capacity unknown: the page has no cache_config_info" in said(result)
    assert [] == facts(server)["capacity"]


def test_absent_unknown_and_needed_metrics_are_three_things(server: FaultServer) -> None:
    """Each is named; only what is needed makes the code 1."""
    page = small(more='vllm:from_tomorrow{engine="0",model_name="tinymodel"} 3\n')
    server.answer = fixed(page)
    result = doctor(server)
    assert 0 == result.exit_code
    assert "1 unknown, kept under their own names: vllm:from_tomorrow" in said(result)
    assert "of this release not there (yet): " in said(result)
    found = facts(server)["metrics"]
    assert ["vllm:from_tomorrow"] == found["unmatched"]
    assert "time_to_first_token_seconds" in found["absent"]
    assert ([], False) == (found["needed"], "from_tomorrow" in found["recognised"])
    server.answer = fixed(page.replace(b"vllm:num_requests_waiting", b"vllm:elsewhere"))
    result = doctor(server)
    assert 1 == result.exit_code
    assert "1 that are needed are not there: num_requests_waiting" in said(result)


def test_faults_on_a_page_are_counted_by_kind(server: FaultServer) -> None:
    """The rest is read; no text of a bad line is shown."""
    server.answer = fixed(small(more="vllm:broken{secret 5\n"))
    result = doctor(server)
    assert "warn page 1 fault on it, the rest was read" in said(result)
    assert "secret" not in result.stdout


def test_several_engines_are_shown_one_by_one(server: FaultServer) -> None:
    """Capacity and usage by engine; running and waiting are sums."""
    server.answer = fixed(small(engines=(0, 1, 2), running=4))
    result = doctor(server)
    assert "model tinymodel, 3 engines" in said(result)
    assert "engine 2: 47 blocks of 32 tokens" in said(result)
    assert "running 12, waiting 6, KV cache full: engine 0 50.0%, engine 1 50.0%" in said(result)
    assert [0, 1, 2] == [one["engine"] for one in facts(server)["capacity"]]


# What it is doing.


def test_preemptions_are_counted_between_two_looks(server: FaultServer) -> None:
    """What happened in between and what happened since the start are two numbers."""
    server.answer = one_after_the_other(small(40, tokens=5), small(47, tokens=9, running=3))
    result = doctor(server)
    assert "warn now 7 preemptions in 0.0 s" in said(result)
    assert "47 since the server's start" in said(result)
    server.served = 0
    now = facts(server)["now"]
    assert (7, 47, 3, 2) == (now["between"], now["preemptions"], now["running"], now["waiting"])
    assert [{"engine": 0, "kv_cache_usage_frac": 0.5}] == now["usage"]
    assert 2 * (9 - 5) == now["tokens"]


def test_a_counter_that_fell_is_no_negative_rate(server: FaultServer) -> None:
    """A restart, or several workers: there is no number of preemptions then."""
    server.answer = one_after_the_other(small(40), small(7))
    result = doctor(server)
    assert "warn now counters fell between two looks" in said(result)
    assert "preemptions in" not in result.stdout
    server.served = 0
    assert facts(server)["now"]["between"] is None


def test_gauges_that_no_token_backs_are_called_stale(server: FaultServer) -> None:
    """Requests shown as running while no token is counted may be a frozen picture."""
    server.answer = fixed(small(3, running=106, tokens=8))
    assert "while requests are shown as running: the gauges may be stale" in said(doctor(server))
    assert facts(server)["now"]["stale"] is True
    server.answer = one_after_the_other(small(running=3, tokens=8), small(running=3, tokens=9))
    server.served = 0
    assert "stale" not in said(doctor(server))


def test_a_second_look_that_fails_leaves_the_first_one_standing(server: FaultServer) -> None:
    """Everything but the rate is known."""

    async def once(server: FaultServer, request: str, writer: Writer) -> None:
        server.served += 1
        answer = fixed(small()) if server.served == 1 else fixed(b"", status="500 No")
        await answer(server, request, writer)

    server.answer = once
    result = doctor(server)
    assert 0 == result.exit_code
    assert "warn now unknown, the second look came to: http_500" in said(result)
    server.served = 0
    assert facts(server)["now"] is None


def test_what_a_replay_does_not_model_is_named(server: FaultServer) -> None:
    """From the page alone, and it is a warning, not something missing."""
    server.answer = fixed(small(more='vllm:spec_decode_num_drafts_total{engine="0"} 3\n'))
    result = doctor(server)
    assert 0 == result.exit_code
    assert "warn not exact speculative decoding" in said(result)
    (sentence,) = facts(server)["not_modelled"]
    assert sentence.startswith("speculative decoding")


# What is not vLLM.


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (fixed(b"no", status="401 Unauthorized"), "wants a token; --bearer-token-file FILE"),
        (fixed(b"no", status="403 Forbidden"), "refuses whoever asks, or this token"),
        (fixed(b"no", status="404 Not Found"), "there is no metrics page"),
        (fixed(b"no", status="418 Teapot"), "answers with 418"),
        (
            fixed(b"", status="302 Found", headers="Location: http://evil.example/\r\n"),
            "redirects, which is not followed with a token",
        ),
        (fixed(b""), "the metrics page is empty"),
        (fixed(b"python_info 1\n"), "nothing on it is vLLM's"),
        (fixed(b"# TYPE sglang:num_running_reqs gauge\nsglang:x 1\n"), "this is SGLang, not vLLM"),
        (fixed(b"<html><body>hello</body></html>"), "what is there is no metrics page"),
        (hang, "no whole answer in time; --timeout"),
    ],
)
def test_what_is_no_vllm_is_one_line_and_code_2(
    server: FaultServer, answer: Answer, words: str
) -> None:
    """The line says which of the many ways it is, and what would help."""
    server.answer, server.version = answer, None
    # An answer that never comes is not waited for; any other may be slow on a busy machine.
    result = doctor(server, "--timeout", "300ms" if answer is hang else "10s")
    assert (2, "") == (result.exit_code, result.stdout)
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"preempt: {server.url}: ")
    assert words in line


def test_nobody_at_the_address_is_one_line_and_code_2() -> None:
    """A port that nobody listens on, with what to check."""
    result = CliRunner().invoke(doctor_command, ["--url", "http://127.0.0.1:1"])
    assert 2 == result.exit_code
    said = "nothing listens there; is the server up, and is this its port?"
    assert [f"preempt: http://127.0.0.1:1: {said}"] == result.stderr.splitlines()


def test_a_refusal_is_a_fact_for_machines_too(server: FaultServer) -> None:
    """With --json the outcome's name is on standard output, the line on standard error."""
    server.answer = fixed(b"no", status="401 Unauthorized")
    result = doctor(server, "--json")
    found = json.loads(result.stdout)
    assert (2, 2, "http_401", 401) == (
        result.exit_code,
        found["code"],
        found["outcome"],
        found["status"],
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (fixed(b""), "the metrics page is empty; was it started with --disable-log-stats"),
        (fixed(b"python_info 1\n"), "nothing on it is vLLM's; was it started with"),
        (fixed(b"no", status="500 No"), "fails with 500; its log says why; a PROMETHEUS_MULTIPROC"),
        (fixed(b"no", status="404 No"), "there is no metrics page"),
    ],
)
def test_a_vllm_without_its_metrics_is_still_called_vllm(
    server: FaultServer, answer: Answer, words: str
) -> None:
    """Its /version answers: something needed is missing, and why is said."""
    server.answer = answer
    result = doctor(server)
    assert 1 == result.exit_code
    assert result.stdout.startswith(f"vLLM 0.32.0 at {server.url}")
    assert words in said(result)
    assert "0.32.0" == facts(server)["version"]


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://user:hunter2@127.0.0.1:1", "http://127.0.0.1:1/?key=hunter2", "x"]
)
def test_an_address_that_is_none_is_an_error_that_does_not_repeat_it(url: str) -> None:
    """A secret in an address stays there."""
    result = CliRunner().invoke(doctor_command, ["--url", url])
    assert 0 != result.exit_code
    assert "hunter2" not in result.output + str(result.exception)


def test_a_token_is_sent_and_never_shown(server: FaultServer, tmp_path: Path) -> None:
    """From a file or the environment; next steps name the file only."""
    (tmp_path / "token").write_text("hunter2\n")
    server.answer = fixed(small())
    for options, environ in (
        (["--bearer-token-file", tmp_path / "token"], {}),
        ([], {"PREEMPT_BEARER_TOKEN": "hunter2"}),
    ):
        result = doctor(server, *options, environ=environ)
        assert 0 == result.exit_code
        assert "Authorization: Bearer hunter2" in server.requests[-1]
        assert "hunter2" not in result.output
        assert bool(options) == (f"-file {tmp_path / 'token'}" in said(result))


@pytest.mark.parametrize("page", ["idle", "busy", "none"])
@pytest.mark.parametrize("recorded", [False, True])
def test_every_next_step_is_a_command_there_is(
    server: FaultServer, tmp_path: Path, page: str, recorded: bool
) -> None:
    """Options included: whatever is shown to copy is taken by the command line."""
    token, spool = tmp_path / "a token", tmp_path / "spool"
    token.write_text("hunter2\n")
    record(spool, [["X", 0]])
    server.answer = fixed(b"" if page == "none" else small(running=3 * (page == "busy"), tokens=5))
    options = ["--bearer-token-file", token, *(["--spool", spool] if recorded else [])]
    steps = " && ".join(facts(server, *options)["next"]).split(" && ")
    commands = [shlex.split(step) for step in steps if step.startswith("preempt ")]
    assert {"idle": 4, "busy": 2, "none": 1}[page] <= len(commands)
    assert (recorded and page != "none") == (
        ["preempt", "fidelity", "my-ledger", "my-run"] in commands
    )
    assert (not recorded or page == "none") == (["preempt", "doctor"] in [c[:2] for c in commands])
    for words in commands:
        command: click.Command = cli
        while isinstance(command, click.Group):
            _, *words[:] = words
            found = command.get_command(click.Context(command), words[0])
            assert found is not None, words[0]
            command = found
        assert command.make_context("preempt", words[1:]).params


@pytest.mark.parametrize("width", [80, 200])
def test_next_steps_can_be_pasted_at_any_width(
    server: FaultServer, tmp_path: Path, width: int
) -> None:
    """A shell reads what a terminal shows as the very same commands."""
    token = tmp_path / "a token of some length, for it has to be broken"
    token.write_text("hunter2\n")
    server.answer = fixed(small())
    result = doctor(server, "--bearer-token-file", token, environ={"COLUMNS": str(width)})
    shown = result.stdout.split("next:\n")[1].replace("\\\n", "").splitlines()
    expected = facts(server, "--bearer-token-file", token)["next"]
    assert [shlex.split(line, comments=True) for line in expected] == [
        shlex.split(line, comments=True) for line in shown
    ]


@pytest.mark.parametrize("text", ["0", "0s", "10ms", "0.01"])
def test_the_time_between_two_looks_is_a_duration(server: FaultServer, text: str) -> None:
    """As everywhere, and a bare number is seconds."""
    server.answer = fixed(small())
    assert 0 == doctor(server, "--watch", text).exit_code


@pytest.mark.parametrize(
    ("text", "said"), [("2x", "--watch must be a number and a unit"), ("11m", "at most 10m")]
)
def test_a_time_between_two_looks_that_is_none_is_refused(
    server: FaultServer, text: str, said: str
) -> None:
    """Before anything is asked."""
    with pytest.raises(InputError, match=said):
        doctor(server, "--watch", text)
    assert [] == server.requests


def test_hostile_names_are_escaped_and_cut(server: FaultServer) -> None:
    """A model's name cannot move the cursor, nor can a metric's or a label's fill the screen."""
    hostile = "\x1b[31mred\u202e" + "x" * 5000
    page = small().replace(b"tinymodel", hostile.encode())
    long = "".join(f"vllm:zz_{'y' * 100}_{k} 1\n" for k in range(3000))
    server.answer, server.version = fixed(page + long.encode()), "0.32.0"
    result = doctor(server)
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert WIDTH >= max(map(len, result.stdout.splitlines()))
    assert 120 > len(result.stdout.splitlines())
    assert "3000 unknown" in said(result)


# The recorder.


def record(directory: Path, *frames: Sequence[list[Any]], age_s: float = 0, **told: Any) -> Path:
    """A spool's first part, last written `age_s` ago by an engine that began a minute ago."""
    unix_ns = time.time_ns() - 60_000_000_000
    name = header(unix_ns=unix_ns, **told)
    path = write_part(directory, name, frames)
    when = time.time() - age_s
    os.utime(path, (when, when))
    return path


def test_a_living_recorder_of_this_engine_is_active(server: FaultServer, tmp_path: Path) -> None:
    """Its options are shown, and the next steps use its spool."""
    record(tmp_path, [["C", time.time_ns(), 5], ["X", 0]])
    server.answer = fixed(small(1, running=1))
    result = doctor(server, "--spool", tmp_path)
    assert 0 == result.exit_code, result.stdout
    assert "ok recorder 0.1.0 is recording 1 engine, last write " in said(result)
    assert "ok scheduler scheduling_policy fcfs" in said(result)
    assert f"--spool {tmp_path} --duration 10m" in said(result)
    assert "preempt fidelity my-ledger my-run" in said(result)
    assert "pip install" not in result.stdout
    found = facts(server, "--spool", tmp_path)
    assert (True, "recording", [0]) == (
        found["recorder"]["active"],
        found["recorder"]["state"],
        found["recorder"]["engines"],
    )
    assert {"scheduling_policy": "fcfs"} == found["scheduler"]


def test_the_engines_own_variable_names_the_spool(server: FaultServer, tmp_path: Path) -> None:
    """Without --spool the environment is asked, as the recorder asks its own."""
    record(tmp_path, [["X", 0]])
    server.answer = fixed(small())
    result = doctor(server, environ={"PREEMPTION_LEDGER_SPOOL": str(tmp_path)})
    assert "is recording 1 engine" in said(result)


def test_features_that_only_the_recorder_sees_are_named(
    server: FaultServer, tmp_path: Path
) -> None:
    """Groups of blocks stand in no page."""
    record(tmp_path, [["X", 0]], cache_groups=[{"kind": "MambaSpec"}, {"kind": "MambaSpec"}])
    server.answer = fixed(small())
    found = facts(server, "--spool", tmp_path)["not_modelled"]
    assert ["2 groups of KV blocks", "Mamba layers keep"] == [
        found[0][: len("2 groups of KV blocks")],
        found[1][: len("Mamba layers keep")],
    ]


@pytest.mark.parametrize(
    ("lost", "words", "code"),
    [
        ([7], "warn recorder 7 records dropped", 0),
        ([0, 0, 2, None], "warn recorder 2 errors inside it", 0),
        ([0, 0, 10, "update"], "miss recorder it switched itself off", 1),
    ],
)
def test_a_recorder_that_lost_something_says_so(
    server: FaultServer, tmp_path: Path, lost: list[Any], words: str, code: int
) -> None:
    """Dropped records and errors warn; one that gave up is missing."""
    names = ["dropped_records", "forgotten_prefixes", "internal_errors", "off"][: len(lost)]
    record(tmp_path, [["X", *lost]], columns={"X": names})
    server.answer = fixed(small())
    result = doctor(server, "--spool", tmp_path)
    assert words in said(result)
    assert code == result.exit_code


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"vllm_version": "0.31.0"}, "vLLM 0.31.0 there, 0.32.0 here"),
        ({"model": "other"}, "model other there, tinymodel here"),
        ({"cache": {"num_gpu_blocks": 80}}, "80 blocks there, 48 here"),
    ],
)
def test_a_spool_of_another_engine_is_not_taken_for_this_ones(
    server: FaultServer, tmp_path: Path, told: dict[str, Any], words: str
) -> None:
    """Release, model and blocks have to be the page's."""
    record(tmp_path, [["X", 0]], **told)
    server.answer = fixed(small())
    result = doctor(server, "--spool", tmp_path)
    assert 1 == result.exit_code
    assert words in said(result)
    assert "pip install ./collectors/recorder" in result.stdout


def test_an_engine_that_began_before_the_server_is_another_one(
    server: FaultServer, tmp_path: Path
) -> None:
    """A server that was restarted without the variable leaves the old spool behind."""
    record(tmp_path, [["X", 0]])
    page = small().replace(b"1000.0", str(time.time()).encode())
    server.answer = fixed(page)
    assert "that engine began before this server did" in said(doctor(server, "--spool", tmp_path))


def test_a_directory_without_a_living_session_says_which_kind_it_is(
    server: FaultServer, tmp_path: Path
) -> None:
    """Nothing there, ended, silent and unreadable are four findings, each with code 1."""
    server.answer = fixed(small())
    empty, ended, silent = tmp_path / "empty", tmp_path / "ended", tmp_path / "silent"
    empty.mkdir()
    record(ended, [["X", 0]], [["E", 9]])
    record(silent, [["X", 0]], age_s=3600)
    for directory, words in {
        empty: "the recorder is not installed beside vLLM, or inert",
        ended: "has only engines that ended",
        silent: "was last written 60 min ago, and its engine did not end properly",
        tmp_path / "nowhere": "must be a recorder's spool directory",
    }.items():
        result = doctor(server, "--spool", directory)
        assert 1 == result.exit_code
        assert words in said(result)


def test_engines_that_do_not_record_are_named(server: FaultServer, tmp_path: Path) -> None:
    """Under data parallelism every engine has a session of its own."""
    record(tmp_path, [["X", 0]])
    server.answer = fixed(small(engines=(0, 1)))
    result = doctor(server, "--spool", tmp_path)
    assert "warn recorder engines 1 of this server do not record there" in said(result)


def test_a_torn_part_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    """A part that is being written to ends where it ends; losses up to there are known."""
    path = record(tmp_path, [["X", 3]])
    append(path, [[["X", 9]]])
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    found = spooled(tmp_path, time.time_ns())
    assert (State.RECORDING, 3) == (found.state, found.dropped)
    path.write_bytes(data)
    assert 9 == spooled(tmp_path, time.time_ns()).dropped


def test_garbage_in_the_spool_is_a_finding(tmp_path: Path) -> None:
    """A file with the right name and the wrong content breaks nothing."""
    (tmp_path / "0-7-1-00000.spool.jsonl.gz").write_bytes(gzip.compress(b"not a header\n"))
    found = spooled(tmp_path, 2)
    assert State.UNREADABLE == found.state
    assert "0-7-1-00000" in (found.problem or "")


def test_nothing_but_three_pages_is_asked_for(server: FaultServer) -> None:
    """The metrics twice, the version and the models once; nothing is posted."""
    server.answer = fixed(small())
    doctor(server)
    asked = [request.split(" HTTP")[0] for request in server.requests]
    assert ["GET /metrics", "GET /version", "GET /v1/models", "GET /metrics"] == asked
