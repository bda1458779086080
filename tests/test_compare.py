"""`preempt compare`: both sides driven in ABBA order, whatever stops it, and handed to the gate."""

import json
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from completion_server import CompletionServer
from ports import held
from test_drive import server, until

from analysis.gate.limitations import SAME_SERVERS
from collectors.compare.server import command_of
from collectors.compare.turns import SIDES, turns
from collectors.run import read_run
from replay.errors import InputError
from replay.workload import Request, Workload
from replay.workload_file import write_workload

ROOT = Path(__file__).parents[1]
IN_COMMAND = "sk-of-the-command"
# The gate is not asked after the first pair: these servers do not tell how they schedule.
UNASKED = (
    "import sys, preempt.commands.compare as c; c._refusal = lambda *_: None;"
    " from preempt.main import main; main(sys.argv[1:])"
)
PATIENT = ("--lateness-limit", "1h", "--interval", "off")
SERVER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from aiohttp import web
from completion_server import CompletionServer, _models, _version

async def serve():
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/completions", CompletionServer(token_s=float(sys.argv[3])).complete)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/version", _version)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[2]), reuse_port=True).start()
    print("serving", flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""


def gate(tmp_path: Path, pairs: int = 2, seeds: int = 1) -> Path:
    """A gate of so many pairs."""
    path = tmp_path / "gate.toml"
    path.write_text(
        'schema = "preemption-gate/1"\nname = "seqs"\n'
        '[change]\nfields = ["scheduler.max_num_seqs"]\n'
        f'[design]\nkind = "driven"\npairs = {pairs}\narrival_seeds = {seeds}\n'
        '[[predicate]]\nid = "repeat"\nkind = "repeated_preemption"\nmax_preemptions = 2\n'
    )
    return path


def offered(tmp_path: Path, name: str = "a", requests: int = 6) -> Path:
    """A workload of small requests."""
    path = tmp_path / f"{name}.jsonl"
    made = tuple(Request(f"{name}{k}", k * 2000, 5 + k, 4) for k in range(requests))
    write_workload(Workload(made), path, ".jsonl")
    return path


def compare(
    tmp_path: Path, *arguments: object, asked: bool = False, out: str = "out"
) -> subprocess.CompletedProcess[str]:
    """The command, of a gate of two pairs."""
    return subprocess.run(
        command(tmp_path, *arguments, asked=asked, out=out),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def command(tmp_path: Path, *arguments: object, asked: bool = False, out: str = "out") -> list[str]:
    """Its words."""
    start = ["-m", "preempt"] if asked else ["-c", UNASKED]
    files = [] if any(str(a).endswith(".jsonl") for a in arguments) else [offered(tmp_path)]
    path = tmp_path / "gate.toml"
    words = [path if path.exists() else gate(tmp_path), *files, "--out", tmp_path / out]
    return [sys.executable, *start, "compare", *map(str, (*words, *arguments, *PATIENT))]


def manifests(out: Path) -> list[dict[str, Any]]:
    """Of the drives that are done, in the order they began."""
    found = [read_run(run).manifest for run in out.glob("pair-*")]
    return sorted(found, key=lambda manifest: manifest["start"])


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the server that a comparison starts."""
    with held() as found:
        yield found


def served(tmp_path: Path, port: int, token_s: float = 0.0) -> str:
    """The command of a server there."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    words = (sys.executable, script, ROOT / "tests", port, token_s, "--api-key", IN_COMMAND)
    return " ".join(map(str, words))


def starting(tmp_path: Path, port: int, start: str, *more: object) -> tuple[object, ...]:
    """Options that start both sides' servers alike."""
    gate(tmp_path, 1)
    both = [option for side in SIDES for option in (f"--{side}-start", start)]
    return ("--url", f"http://127.0.0.1:{port}", *both, *more)


def free(port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


# The order.


def test_sides_take_turns_in_beginning() -> None:
    """ABBA, and the workloads one after the other, each for both sides of its pair."""
    planned = turns(5, 2)
    assert list(range(10)) == [turn.order for turn in planned]
    assert "BCCBBCCBBC" == "".join(turn.side[0].upper() for turn in planned)
    assert [0, 0, 1, 1, 0, 0, 1, 1, 0, 0] == [turn.workload for turn in planned]


def test_both_sides_are_driven_in_turn_with_the_same_prompts(tmp_path: Path) -> None:
    """Each pair has a workload and prompts of its own, and every run knows its place."""
    workloads = [offered(tmp_path, name) for name in ("a", "b")]
    gate(tmp_path, 3, 2)
    with server() as base, server() as cand:
        urls = ("--baseline-url", base.url, "--candidate-url", cand.url)
        done = compare(tmp_path, *workloads, *urls)
    assert 4 == done.returncode, done.stderr  # these servers tell nothing of their scheduler
    found = manifests(tmp_path / "out")
    places = [(m["comparison"]["pair"], m["comparison"]["side"]) for m in found]
    b, c = SIDES
    assert [(0, b), (0, c), (1, c), (1, b), (2, b), (2, c)] == places
    assert list(range(6)) == [m["comparison"]["order"] for m in found]
    assert [0, 0, 1, 1, 0, 0] == [m["comparison"]["arrival_seed"] for m in found]
    assert [0, 0, 1, 1, 2, 2] == [m["driver"]["token_seed"] for m in found]
    assert base.bodies == cand.bodies
    assert 12 == len(base.bodies)  # of the last pair that offered each workload
    report = json.loads((tmp_path / "out" / "verdict" / "report.json").read_text())
    assert ("refused", 6) == (report["verdict"], len(report["runs"]))
    assert SAME_SERVERS in report["limitations"]
    assert "drive 3 of 6, pair 2 of 3, candidate; all will be done about " in done.stderr


def test_runs_that_cannot_be_compared_stop_it_after_the_first_pair(tmp_path: Path) -> None:
    """Hours of driving for a refusal help nobody."""
    with server() as base, server() as cand:
        urls = ("--baseline-url", base.url, "--candidate-url", cand.url)
        done = compare(tmp_path, *urls, asked=True)
    assert 4 == done.returncode
    assert "refused: " in done.stderr
    assert "after the first pair" in done.stderr
    assert 2 == len(manifests(tmp_path / "out"))


def test_a_plan_is_shown_without_driving_anybody(tmp_path: Path) -> None:
    """Nobody has to answer, and nothing is written."""
    urls = ("--baseline-url", "http://127.0.0.1:9", "--candidate-url", "http://127.0.0.1:9")
    done = compare(tmp_path, *urls, "--dry-run")
    assert 0 == done.returncode
    assert "3. pair 2 of 2, candidate: " in done.stderr
    assert not (tmp_path / "out").exists()


# What stops it, and how it goes on.


def test_a_comparison_that_was_given_up_goes_on_with_its_pair(tmp_path: Path) -> None:
    """Pairs that are whole are not driven again, of the other both sides are; nothing is lost."""
    with server() as base, server() as cand:
        urls = ("--baseline-url", base.url, "--candidate-url", cand.url)
        first = fails_in_pair(tmp_path, 1, base, cand, urls)
        assert 1 == first.returncode, first.stderr
        assert "given up; the same command goes on with this pair" in first.stderr
        before = {run.name: run.stat().st_ino for run in (tmp_path / "out").glob("pair-00-*")}
        sent = len(base.headers)
        done = compare(tmp_path, *urls)
    assert 4 == done.returncode, done.stderr
    assert "2 of 4 drives are there already" in done.stderr
    found = {run.name: run.stat().st_ino for run in (tmp_path / "out").glob("pair-*")}
    assert before.items() <= found.items()
    assert 4 == len(found)
    assert 6 == len(base.headers) - sent
    assert [".pair-01-candidate.stopped-1"] == [p.name for p in (tmp_path / "out").glob(".pair-*")]


def fails_in_pair(
    tmp_path: Path,
    pair: int,
    base: CompletionServer,
    cand: CompletionServer,
    urls: tuple[str, ...],
) -> subprocess.CompletedProcess[str]:
    """A comparison whose candidate fails everything from this pair on."""
    cand.fails_after = 6 * pair
    done = compare(tmp_path, *urls)
    cand.fails_after = None
    assert 6 * pair <= len(base.headers)
    return done


def test_another_comparison_takes_another_directory(tmp_path: Path) -> None:
    """What was begun with other workloads, servers or settings is not mixed with this."""
    with server() as base, server() as cand:
        urls = ("--baseline-url", base.url, "--candidate-url", cand.url)
        compare(tmp_path, *urls, asked=True)
        sent = len(base.headers)
        for changed in (
            ("--speed", "2", *urls),
            ("--baseline-url", cand.url, "--candidate-url", cand.url),
            (offered(tmp_path, "other"), *urls),
        ):
            done = compare(tmp_path, *changed, asked=True)
            assert (2, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
            assert "take another --out for another" in done.stderr
    assert sent == len(base.headers)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """It is neither a comparison nor empty."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    urls = ("--baseline-url", "http://127.0.0.1:9", "--candidate-url", "http://127.0.0.1:9")
    done = compare(tmp_path, *urls)
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert ["mine"] == [path.name for path in (tmp_path / "out").iterdir()]


# Servers that are started.


def test_each_drive_starts_its_server_and_ends_it(tmp_path: Path, port: int) -> None:
    """Their output is kept for the owner alone, and the command, which may hold a key, nowhere."""
    done = compare(tmp_path, *starting(tmp_path, port, served(tmp_path, port)))
    assert 4 == done.returncode, done.stderr
    assert free(port)
    logs = sorted((tmp_path / "out" / "logs").iterdir())
    assert ["pair-00-baseline.log", "pair-00-candidate.log"] == [log.name for log in logs]
    assert ["serving"] * 2 == [log.read_text().strip() for log in logs]
    assert {0o600} == {stat.S_IMODE(log.stat().st_mode) for log in logs}
    report = json.loads((tmp_path / "out" / "verdict" / "report.json").read_text())
    assert SAME_SERVERS not in report["limitations"]
    assert [True, True] == [m["comparison"]["own_server"] for m in manifests(tmp_path / "out")]
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [] == [path for path in files if IN_COMMAND.encode() in path.read_bytes()]
    assert IN_COMMAND not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (
            f"{sys.executable} -c \"import sys; sys.exit('no memory {{}}')\"",
            "with 1; its last line",
        ),
        (f'{sys.executable} -c "import time; time.sleep(99)"', "did not answer within 1 s"),
        ("/no/such/program --api-key {}", "that can be started: No such file"),
        ("'{}", "quotes closed"),
    ],
    ids=["ends", "silent", "missing", "quotes"],
)
def test_a_server_that_does_not_come_up_is_told_in_one_line(
    start: str, said: str, tmp_path: Path, port: int
) -> None:
    """With its last words, and without the command."""
    ready = "1s" if "1 s" in said else "1m"  # an end may take its time on a busy machine
    words = starting(tmp_path, port, start.format(""), "--ready", ready)
    done = compare(tmp_path, *words)
    assert (2, said in done.stderr) == (done.returncode, True), done.stderr
    assert "--baseline-start" in done.stderr
    assert "--api-key" not in done.stderr


def test_a_server_that_is_there_before_ours_is_not_driven(tmp_path: Path) -> None:
    """What was measured would be somebody else's."""
    with server() as other:
        port = int(other.url.rpartition(":")[2])
        done = compare(tmp_path, *starting(tmp_path, port, served(tmp_path, port)))
    assert 2 == done.returncode
    assert "a server answers there before ours is started" in done.stderr
    assert [] == other.headers


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)], ids=["int", "term"]
)
def test_a_signal_ends_the_server_too_and_the_same_command_goes_on(
    number: signal.Signals, code: int, tmp_path: Path, port: int
) -> None:
    """In the middle of a drive."""
    start = served(tmp_path, port, 0.05)
    words = command(tmp_path, *starting(tmp_path, port, start), offered(tmp_path, "a", 20))
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    until((tmp_path / "out" / ".pair-00-baseline.driving").exists)
    time.sleep(0.3)  # whenever in it
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert code == process.returncode, said
    assert free(port)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert 4 == done.returncode, done.stderr
    assert 2 == len(manifests(tmp_path / "out"))


# What is asked for.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "both running servers"),
        (("--baseline-url", "http://127.0.0.1:9"), "both running servers"),
        (("--url", "http://127.0.0.1:9", "--baseline-start", "x"), "both running servers"),
        (
            (*("--baseline-url", "http://a", "--candidate-url", "http://b"), "--url", "http://c"),
            "both running servers",
        ),
        (
            ("--baseline-url", "http://a", "--candidate-url", "http://b", "--recorder"),
            "running ones have spools",
        ),
        (
            (
                *("--url", "http://127.0.0.1:9", "--baseline-start", "x"),
                *("--candidate-start", "y", "--baseline-spool", "spool"),
            ),
            "started ones get their own",
        ),
    ],
)
def test_one_way_to_reach_both_sides_is_asked_for(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """Running or started, and never half of each."""
    done = compare(tmp_path, *arguments)
    assert 2 == done.returncode
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("files", "said"),
    [(("a", "b"), "arrival_seeds"), (("a", "a"), "same requests"), ((), "arrival_seeds")],
)
def test_workloads_are_as_many_and_as_different_as_the_gate_plans(
    files: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """One trace twice is one trace."""
    gate(tmp_path, 2, 1 if files == ("a", "b") else 2)
    made: list[Callable[[], Path]] = [lambda n=n: offered(tmp_path, n) for n in files]  # type: ignore[misc]
    urls = ("--baseline-url", "http://127.0.0.1:9", "--candidate-url", "http://127.0.0.1:9")
    done = compare(tmp_path, *(one() for one in made), *urls)
    assert 2 == done.returncode
    assert said in done.stderr


def test_a_command_is_split_as_a_shell_would_and_run_by_none() -> None:
    """Nothing in it is a pipe or a variable."""
    assert ["a", "b c", "$X", "|", "d"] == command_of("a 'b c' $X | d", "--baseline-start")
    with pytest.raises(InputError, match="--baseline-start"):
        command_of("", "--baseline-start")
