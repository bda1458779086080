"""The command itself: what it lists, how it helps, and how it ends when something goes wrong."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest

from preempt.commands.progress import Progress, progress_shown
from preempt.main import COMMANDS, cli, main
from replay.errors import ReplayError
from replay.version import __version__
from replay.victims import VICTIMS
from replay.workload_file import read_workload

CHECKOUT = Path(__file__).resolve().parent.parent
ESCAPE = "\x1b[31m"
RECORDS = [
    {"request_id": f"é☃-{k}", "arrival_us": 0, "prompt_tokens": 60, "output_tokens": 3}
    for k in range(3)
]
CONFIG = (
    '[engine]\nprofile = "lab"\ncapacity_blocks = 12\n'
    "[fairness]\nmax_queue_ticks = 0\n"  # so that the receipt names requests
)


@dataclass(frozen=True)
class Ended:
    """How a run of the command ended."""

    code: object
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line an error is."""
        assert self.err.endswith("\n")
        assert self.err[:-1].isprintable(), self.err
        return self.err[:-1]


Run = Callable[..., Ended]


@pytest.fixture(name="run")
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        return Ended(left.value.code, *capfd.readouterr())

    return run


@pytest.fixture(name="inputs")
def _inputs(tmp_path: Path) -> tuple[str, ...]:
    """Arguments of a replay that succeeds, but for --out."""
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    (tmp_path / "c.toml").write_text(CONFIG)
    return ("replay", "w.jsonl", "--config", "c.toml", "--out")


def spawn(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "preempt", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def shell(cwd: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which $PREEMPT is the command."""
    return subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=cwd,
        env=os.environ
        | {"PYTHONPATH": str(CHECKOUT), "PREEMPT": f"{shlex.quote(sys.executable)} -m preempt"},
        capture_output=True,
        text=True,
        check=False,
    )


Install = Callable[[Callable[[], Any]], None]


@pytest.fixture(name="install")
def _install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make `preempt boom` call a function."""

    def install(function: Callable[[], Any]) -> None:
        module = types.ModuleType("boom_for_tests")
        module.command = click.command("boom")(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(COMMANDS, "boom", (f"{module.__name__}:command", "Only in tests."))

    return install


def fail_with(error: BaseException) -> Callable[[], None]:
    """Build a command that fails."""

    def fail() -> None:
        raise error

    return fail


# Help


def load(name: str) -> click.Command:
    """Import a command; a module that does not exist is a failure."""
    module, attribute = COMMANDS[name][0].split(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


def walk(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and everything below it, by its words."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from walk((*path, name), child)


def below(name: str) -> list[tuple[str, click.Command]]:
    """What a listed name offers, itself included."""
    return list(walk((name,), load(name)))


def help_of(command: click.Command) -> str:
    """Help text as its author wrote it."""
    return (command.help or "") + "\n" + (command.epilog or "")


def examples(command: click.Command) -> list[str]:
    """Lines of the help text that are commands."""
    lines = (line.strip() for line in help_of(command).splitlines())
    return [line for line in lines if re.match(r"preempt [a-z]+ ", line)]


LISTED = pytest.mark.parametrize("name", list(COMMANDS))


def test_help_lists_every_command_with_its_line(run: Run) -> None:
    """In the order of COMMANDS, and says how to begin."""
    ended = run("--help")
    assert (0, "") == (ended.code, ended.err)
    section = ended.out.split("Commands:\n")[1]
    lines = takewhile(str.strip, section.splitlines())
    listed = [tuple(line.strip().split(maxsplit=1)) for line in lines]
    assert [(name, line) for name, (_, line) in COMMANDS.items()] == listed
    assert "preempt demo" in ended.out


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["bogus"], [], ["replay", "--help"], ["fidelity", "--help"]],
    ids=" ".join,
)
def test_the_list_of_commands_waits_for_no_heavy_library(
    tmp_path: Path, arguments: list[str]
) -> None:
    """Importing any of them costs more than everything else together."""
    code = (
        "import sys\nfrom preempt.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "heavy = ('polars', 'duckdb', 'numpy', 'numba', 'scipy', 'rich', 'jsonschema', 'requests',"
        " 'collectors', 'analysis')\n"
        "print('heavy:', *[name for name in heavy if name in sys.modules])"
    )
    out = subprocess.check_output(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert "heavy:" == out.splitlines()[-1].strip()


@LISTED
def test_every_command_has_help(run: Run, name: str) -> None:
    """Exit code 0, nothing on standard error."""
    for words, command in below(name):
        ended = run(*words.split(), "--help")
        assert (0, "") == (ended.code, ended.err), words
        assert ended.out.startswith(f"Usage: preempt {words} "), words
        assert command.help, words


def test_every_command_knows_the_short_spelling_of_help(tmp_path: Path) -> None:
    """In a process of its own, because click keeps the spellings of a command's first caller."""
    code = (
        "import sys\nfrom preempt.main import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    try: main([name, '-h'])\n"
        "    except SystemExit as left: assert left.code == 0, name\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.DEVNULL,
        check=True,
    )


@LISTED
def test_every_command_that_needs_something_shows_an_example_of_itself(name: str) -> None:
    """Whoever can do without arguments needs none; a group's commands have their own."""
    for words, command in below(name):
        if isinstance(command, click.Group) or not any(p.required for p in command.params):
            continue
        own = [line for line in examples(command) if line.startswith(f"preempt {words} ")]
        assert own, words


@LISTED
def test_every_example_is_a_command_line_that_parses(name: str) -> None:
    """A renamed option would be found here."""
    parent = click.Context(cli, info_name="preempt", **cli.context_settings)
    for words, command in below(name):
        for line in examples(command):
            tokens = list(takewhile(lambda t: t not in {"|", "<", ">"}, shlex.split(line)))[1:]
            target: click.Command = load(tokens[0])
            while isinstance(target, click.Group):
                tokens = tokens[1:]
                target = target.commands[tokens[0]]
            target.make_context(words, tokens[1:], parent=parent)


@LISTED
def test_every_option_has_help(name: str) -> None:
    """And every option that takes a value says what kind."""
    for words, command in below(name):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{words} {parameter.opts}"


@LISTED
def test_the_line_in_the_list_speaks_of_the_same_thing_as_the_command(name: str) -> None:
    """At least one word of meaning in common; a short sentence."""
    line = COMMANDS[name][1]
    assert re.fullmatch(r"[A-Z][^.]{5,58}\.", line)
    stems = [
        {word[:5] for word in re.findall(r"[a-z]{4,}", text.lower())}
        for text in (line, load(name).get_short_help_str(limit=1000))
    ]
    assert stems[0] & stems[1]


def test_version_is_the_package_s(run: Run) -> None:
    """On standard output, with the name."""
    assert Ended(0, f"preempt, version {__version__}\n", "") == run("--version")


# Usage errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["--bogus"], "No such option"),
        ([f"bog{ESCAPE}us"], "No such command 'bog\\x1b[31mus'"),
        ([f"--bog{ESCAPE}us"], "No such option"),
        (["replay"], "Missing argument 'WORKLOAD'"),
        (["replay", "w.jsonl"], "Missing option '--out'"),
        (["replay", "w.jsonl", "--config"], "requires an argument"),
        (["replay", "w.jsonl", "--out", "o", "--arrivals", "ticks"], "'--arrivals'"),
        (
            ["import", "azure", "a.csv", "-o", "w.json", "--engine", "0"],
            "No such option '--engine'",
        ),
        (
            ["import", "bogus", "a.csv", "-o", "w.json"],
            "FORMAT is one of azure, burstgpt, mooncake",
        ),
        (["replay", "a", "b", "--config", "c", "--out", "o"], "unexpected extra argument"),
        (["verify"], "Missing argument 'DIR...'"),
        (["gate", "bogus"], "No such command 'bogus'"),
    ],
    ids=lambda value: ascii(" ".join(value)) if isinstance(value, list) else "",
)
def test_a_usage_error_is_one_line_that_names_the_help(
    run: Run, arguments: list[str], message: str
) -> None:
    """Exit code 2, and nothing on standard output."""
    ended = run(*arguments)
    assert (2, "") == (ended.code, ended.out)
    assert ended.line.startswith("preempt: ")
    assert message in ended.line
    assert re.search(r" See: preempt( [a-z]+)* --help$", ended.line)


@pytest.mark.parametrize("arguments", [[], ["gate"]], ids=["preempt", "preempt gate"])
def test_a_bare_group_is_a_usage_error_that_can_be_read(run: Run, arguments: list[str]) -> None:
    """One short line, or the help as it is laid out; never the help squeezed into one line."""
    ended = run(*arguments)
    assert 2 == ended.code
    assert all(len(line) <= 100 for line in (ended.out + ended.err).splitlines())


# What else can happen


class Interrupted:
    """Whose class is being made when Ctrl-C comes, as within an import."""

    def __set_name__(self, *_: object) -> None:
        raise KeyboardInterrupt


class Leaving:
    """Gets a signal while it is taken away, where Python forgets what the handler raises."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


def lose(number: signal.Signals) -> None:
    """Lose a signal, and work on."""
    Leaving(number)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(0.01)


def made_of(cause: BaseException) -> Exception:
    """An error that a library made of another."""
    error = RuntimeError("what became of it")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "happen",
    [
        fail_with(KeyboardInterrupt()),
        fail_with(click.Abort()),
        lambda: signal.raise_signal(signal.SIGINT),
        lambda: type("Made", (), {"part": Interrupted()}),
        fail_with(made_of(KeyboardInterrupt())),
        lambda: lose(signal.SIGINT),
    ],
    ids=["KeyboardInterrupt", "Abort", "SIGINT", "class", "cause", "lost"],
)
def test_an_interruption_ends_with_130(
    run: Run, install: Install, happen: Callable[[], None]
) -> None:
    """In one line."""
    install(happen)
    ended = run("boom")
    assert (130, "") == (ended.code, ended.out)
    assert "preempt: interrupted\n" == ended.err.lstrip("\n")  # click ends the line that shows ^C


def test_a_termination_that_python_forgot_comes_again(run: Run, install: Install) -> None:
    """It ends the command as one that was heard."""
    install(lambda: lose(signal.SIGTERM))
    assert 128 + signal.SIGTERM == run("boom").code


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("S3CRET"),
        AssertionError("S3CRET"),
        KeyError("S3CRET"),
        RecursionError("S3CRET"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_unexpected_exception_ends_with_70_in_one_line(
    run: Run, install: Install, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Its kind and place, but not its text, which may hold a value of the input."""
    monkeypatch.delenv("PREEMPT_DEBUG", raising=False)
    install(fail_with(error))
    ended = run("boom")
    assert (70, "") == (ended.code, ended.out)
    place = rf"internal error, {type(error).__name__} at test_cli\.py:[0-9]+"
    assert re.match(f"preempt: {place}; PREEMPT_DEBUG=1 shows more", ended.line)
    assert "S3CRET" not in ended.err


def test_preempt_debug_shows_the_traceback(
    run: Run, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only when it is asked for."""
    monkeypatch.setenv("PREEMPT_DEBUG", "1")
    install(fail_with(RuntimeError("the reason")))
    ended = run("boom")
    assert 70 == ended.code
    assert ended.err.startswith("Traceback (most recent call last):\n")
    assert "RuntimeError: the reason" in ended.err
    assert "preempt: internal error, RuntimeError" in ended.err.splitlines()[-1]


class Incomparable(ReplayError):
    """An error that carries its own exit code."""

    exit_code = 4


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (Incomparable("other engine"), 4, "preempt: other engine"),
        (ReplayError("bad"), 2, "preempt: bad"),
        (PermissionError(13, "Permission denied", "f"), 2, "preempt: f: Permission denied"),
        (OSError(28, "No space left on device"), 2, "preempt: No space left on device"),
        (OSError("no number"), 2, "preempt: no number"),
    ],
    ids=["own exit code", "default exit code", "OSError with a file", "OSError", "bare OSError"],
)
def test_an_expected_error_is_its_message_and_its_code(
    run: Run, install: Install, error: Exception, code: int, line: str
) -> None:
    """Without a word about this program."""
    install(fail_with(error))
    assert Ended(code, "", line + "\n") == run("boom")


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_a_command_ends_with_the_code_it_chooses(run: Run, install: Install, code: int) -> None:
    """A verdict is no error."""
    install(lambda: click.get_current_context().exit(code))
    assert Ended(code, "", "") == run("boom")


@pytest.mark.parametrize(
    "text",
    [
        f"a{ESCAPE}b",
        "a\nb",
        "a\r\nb",
        "a\tb",
        "a\x00b",
        "a\x85b",
        "a\u2028b",
        "a\u202eb",
        "a\udcffb",
    ],
    ids=ascii,
)
def test_a_message_is_one_printable_line_whatever_is_in_it(
    run: Run, install: Install, text: str
) -> None:
    """Neither escape sequences nor line ends nor reversed text reach a terminal."""
    install(fail_with(ReplayError(text)))
    ended = run("boom")
    assert re.fullmatch(r"preempt: a.{1,8}b", ended.line)


def test_a_message_is_cut_before_it_fills_the_screen(run: Run, install: Install) -> None:
    """A name of a megabyte costs a few lines."""
    install(fail_with(ReplayError("x" * 2**20)))
    assert 5000 > len(run("boom").line)


# Real processes and their streams


def test_a_reader_that_had_enough_is_no_error(tmp_path: Path) -> None:
    """As with `| head`: no traceback, no message, and not an internal error."""
    found = shell(tmp_path, "$PREEMPT --help | true; echo ${PIPESTATUS[0]}")
    assert "" == found.stderr
    assert found.stdout.strip() in {"0", "141"}


def test_a_failed_check_is_not_lost_in_a_closed_pipe(
    tmp_path: Path, run: Run, inputs: tuple[str, ...]
) -> None:
    """`set -o pipefail; preempt verify … | head` must not turn green."""
    assert 0 == run(*inputs, "out", "--quiet").code
    (tmp_path / "out" / "events.jsonl").write_text("{}\n")
    assert 1 == run("verify", "out").code
    found = shell(tmp_path, "$PREEMPT verify --json out 2>&1 | true; echo ${PIPESTATUS[0]}")
    assert found.stdout.strip() in {"1", "141"}


@pytest.mark.parametrize("arguments", ["verify missing", "bogus", "replay", ""])
def test_an_error_nobody_reads_keeps_its_meaning(tmp_path: Path, arguments: str) -> None:
    """Bad input is not a failed check because standard error was closed."""
    found = shell(tmp_path, f"$PREEMPT {arguments} 2>&1 | true; echo ${{PIPESTATUS[0]}}")
    assert found.stdout.strip() in {"2", "141"}


def test_a_full_disk_is_an_error_of_one_line(tmp_path: Path) -> None:
    """Output that was not written is not a success."""
    found = shell(tmp_path, "$PREEMPT --help > /dev/full")
    assert (2, "preempt: No space left on device\n") == (found.returncode, found.stderr)


@pytest.mark.parametrize("options", ["", "--json"])
def test_a_closed_standard_output_changes_no_verdict(
    tmp_path: Path, run: Run, inputs: tuple[str, ...], options: str
) -> None:
    """Daemons close it; the exit code is what they look at."""
    assert 0 == run(*inputs, "out", "--quiet").code
    found = shell(tmp_path, f"$PREEMPT verify out {options} >&-")
    assert 0 == found.returncode, found.stderr


def test_the_same_bytes_are_written_in_every_locale(
    tmp_path: Path, run: Run, inputs: tuple[str, ...]
) -> None:
    """Also where the locale cannot spell the ids."""
    assert 0 == run(*inputs, "out", "--quiet").code
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    found = spawn(tmp_path, *inputs, "c", **plain)
    assert 0 == found.returncode, found.stderr
    for path in sorted((tmp_path / "out").iterdir()):
        assert path.read_bytes() == (tmp_path / "c" / path.name).read_bytes(), path.name


def test_json_needs_no_unicode_terminal(tmp_path: Path, inputs: tuple[str, ...]) -> None:
    """JSON can spell every id in ASCII."""
    found = spawn(tmp_path, *inputs, "out", "--json", PYTHONIOENCODING="ascii")
    assert 0 == found.returncode, found.stderr
    assert "é☃-1" in json.loads(found.stdout)["fairness"]["flagged_wait"]


@pytest.mark.parametrize("name", ["o\x1b]0;t\x07", "o\n2", "o\udcff", "o\u202e"], ids=ascii)
def test_any_path_can_be_written_verified_and_shown(
    tmp_path: Path, run: Run, inputs: tuple[str, ...], name: str
) -> None:
    """A name is data: it reaches the terminal escaped, and JSON as JSON."""
    for arguments in ([*inputs, name], ["verify", name]):
        ended = run(*arguments)
        assert 0 == ended.code, ended.err
        assert all(line.isprintable() for line in ended.err.split("\n")), ended.err
        assert name not in ended.err
    ended = run("verify", "--json", name)
    assert {name: []} == json.loads(ended.out)["violations"]
    shutil.rmtree(tmp_path / name)


def test_json_is_alone_on_standard_output_and_quiet_is_quiet(
    run: Run, inputs: tuple[str, ...]
) -> None:
    """A script reads one and a person the other."""
    ended = run(*inputs, "a", "--json")
    assert ("", "preemption-receipt/1") == (ended.err, json.loads(ended.out)["schema"])
    assert Ended(0, "", "") == run(*inputs, "b", "--quiet")
    ended = run(*inputs, "c")
    assert ("", 0) == (ended.out, ended.code)
    assert "preempt verify -- c" in ended.err


def test_the_program_is_called_preempt_everywhere() -> None:
    """Also when it is started as a module."""
    assert cli.name in {"cli", "preempt"}
    assert spawn(CHECKOUT, "--help").stdout.startswith("Usage: preempt ")


def test_a_reader_that_had_enough_of_a_table_is_no_failed_check(tmp_path: Path) -> None:
    """Tables answer a closed pipe like every other output, and never as a failed check."""
    gate = Path(__file__).parent.parent / "fixtures" / "gates" / "blocks-48-to-80.toml"
    found = shell(tmp_path, f"$PREEMPT gate explain {gate} | true; echo ${{PIPESTATUS[0]}}")
    assert found.stdout.strip() in {"0", "141"}


def test_a_closed_standard_input_is_an_empty_one(tmp_path: Path) -> None:
    """A service without input gets one line, not an internal error."""
    found = shell(tmp_path, "$PREEMPT import azure - -o w.jsonl <&-; echo $?")
    assert ("2\n", 1) == (found.stdout, len(found.stderr.splitlines()))


# Replays of vLLM's own scheduler


VLLM_CONFIG = """[engine]
profile = "vllm-v1"
rule = "vllm-0.32.0"
capacity_blocks = 12
max_num_batched_tokens = 64
max_model_len = 96
[fairness]
max_queue_ticks = 0
"""


@pytest.fixture(name="vllm")
def _vllm(tmp_path: Path, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments of a replay by vLLM's rules that succeeds, but for --out."""
    (tmp_path / "c.toml").write_text(VLLM_CONFIG)
    return inputs


def test_help_names_every_victim_rule_and_vllm_s_own_keys() -> None:
    """What the configuration takes can be read off."""
    command = load("replay")
    options = {p.name: p for p in command.params if isinstance(p, click.Option)}
    assert all(name in (options["victim"].help or "") for name in VICTIMS)
    for line in ('rule = "vllm-0.32.0"', "watermark = 0.0", "async_scheduling = true"):
        assert line in (command.help or "")


def test_only_the_lab_writes_json_lines_unless_asked(
    tmp_path: Path, run: Run, inputs: tuple[str, ...]
) -> None:
    """Large ledgers have no second copy that nobody asked for."""
    written = {}
    for profile, config in (("lab", CONFIG), ("vllm-v1", VLLM_CONFIG)):
        (tmp_path / "c.toml").write_text(config)
        for option in ("", "--jsonl", "--no-jsonl"):
            out = f"{profile}{option}"
            assert 0 == run(*inputs, out, *option.split(), "--quiet").code
            written[out] = (tmp_path / out / "events.jsonl").exists()
    expected = {"lab": True, "vllm-v1": False}
    expected |= {f"{p}{o}": o == "--jsonl" for p in expected for o in ("--jsonl", "--no-jsonl")}
    assert expected == written


def test_the_summary_says_what_is_a_what_if_and_what_recomputing_costs(
    run: Run, vllm: tuple[str, ...]
) -> None:
    """Plainly, in words; vLLM's own policy is no what-if."""
    ended = run(*vllm, "own")
    assert (0, "") == (ended.code, ended.out)
    assert "What-if" not in ended.err
    assert "rates" not in ended.err
    assert re.search(r"^recompute tax: \d+\.\d\d% of \d+ executed tokens$", ended.err, re.MULTILINE)
    ended = run(*vllm, "other", "--recovery", "swap", "--victim", "least-computed")
    assert "recovery swap, victim by least-computed: 3 requests" in ended.err
    assert "rates per tick: 16 tokens prefilled, 8192 bytes moved; 512 bytes of KV" in ended.err
    assert "these rates are defaults, not this engine's" in ended.err
    assert "What-if: recovery swap" in ended.err
    assert "What-if: victim rule least-computed" in ended.err


def test_an_assumed_rule_is_said_and_the_ledger_still_verifies(
    tmp_path: Path, run: Run, vllm: tuple[str, ...]
) -> None:
    """Without the flag it is refused, with the nearest checked releases."""
    (tmp_path / "c.toml").write_text(VLLM_CONFIG.replace("0.32.0", "0.31.0"))
    ended = run(*vllm, "out")
    assert 2 == ended.code
    assert "--assume-rule replays it as vllm-0.32.0" in ended.line
    ended = run(*vllm, "out", "--assume-rule")
    assert 0 == ended.code, ended.err
    assert "vllm-0.31.0" in ended.err.splitlines()[0]
    assert "assumed to decide as vllm-0.32.0" in ended.err
    assert 0 == run("verify", "out").code


# Collected runs


RUNS = CHECKOUT / "fixtures" / "runs"


@pytest.fixture(name="collected")
def _collected(tmp_path: Path) -> Path:
    """A run of the first dozen requests of a recorded one."""
    path = Path(shutil.copytree(RUNS / "cand-80", tmp_path / "collected"))
    (path / "offered.jsonl").unlink()
    shutil.rmtree(path / "steps")
    for table in ("requests", "events"):
        part = path / table / "part-00000.parquet"
        kept = pl.read_parquet(part).filter(pl.col("request_id") < "az0012")
        kept.write_parquet(part, metadata={"schema": "preemption-run/1"})
    return path


def test_a_run_is_replayed_as_its_engine_was_from_its_own_steps(
    tmp_path: Path, run: Run, collected: Path
) -> None:
    """No configuration and no import by hand; what was taken from where is said."""
    ended = run("replay", str(collected), "--out", "out")
    assert (0, "") == (ended.code, ended.out), ended.err
    assert "arrivals in the engine's own steps" in ended.err.splitlines()[0]
    written = (tmp_path / "out" / "config.toml").read_text()
    for line in ("capacity_blocks = 79", "block_size = 32", "tick_us = 1", "max_model_len = 960"):
        assert line in written
    workload = read_workload(tmp_path / "out" / "workload.parquet")
    assert run("import", "run", str(collected), "--arrivals", "steps", "-o", "w.json").code == 0
    assert read_workload(tmp_path / "w.json") == workload
    assert 12 == len(workload)
    assert (workload.provenance or {})["arrivals"] == "steps"


def test_a_configuration_replaces_the_run_s_own(tmp_path: Path, run: Run, collected: Path) -> None:
    """Steps are counted one by one; the clock's times go with any tick, and with the lab."""
    arguments = ("replay", str(collected), "--config", "c.toml", "--quiet", "--out")
    engine = VLLM_CONFIG.replace("= 96", "= 960").replace("= 12", "= 90")
    (tmp_path / "c.toml").write_text(engine)
    assert 0 == run(*arguments, "steps").code
    (tmp_path / "c.toml").write_text(engine.replace("[fairness]", "tick_us = 20000\n[fairness]"))
    ended = run(*arguments, "refused")
    assert (2, "") == (ended.code, ended.out)
    assert "c.toml: engine.tick_us must be 1 where arrivals are steps (--arrivals time" in ended.err
    assert 0 == run(*arguments, "clock", "--arrivals", "time").code
    (tmp_path / "c.toml").write_text(engine + "[timing]\nstep_ns = 5\n")
    assert 0 == run(*arguments, "timed").code
    assert "--arrivals steps" in run(*arguments, "both", "--arrivals", "steps").err
    lab = CONFIG.replace("capacity_blocks = 12", "capacity_blocks = 900\ntick_us = 20000")
    (tmp_path / "c.toml").write_text(lab)
    assert 0 == run(*arguments, "lab").code
    arrivals = {
        name: [r.arrival_us for r in read_workload(tmp_path / name / "workload.parquet").requests]
        for name in ("steps", "clock", "timed", "lab")
    }
    assert arrivals["lab"] == arrivals["clock"] == arrivals["timed"] != arrivals["steps"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--arrivals", "time"], "engine.tick_us is in no manifest"),
        (["--engine", "3"], "engine must be one of 0 (--engine chooses), got 3"),
        (["--victim", "other"], "policy.victim must be one of rule, least-computed"),
        (["--config", "missing.toml"], "missing.toml: cannot be read"),
    ],
    ids=["time", "engine", "victim", "config"],
)
def test_what_does_not_go_with_a_run_is_refused(
    run: Run, collected: Path, options: list[str], message: str
) -> None:
    """In one line, before anything is replayed."""
    ended = run("replay", str(collected), "--out", "out", *options)
    assert (2, "") == (ended.code, ended.out)
    assert message in ended.line


def test_what_goes_with_a_run_only_needs_one(run: Run, inputs: tuple[str, ...]) -> None:
    """A workload file has its own arrivals, and no configuration."""
    for option in (("--arrivals", "steps"), ("--engine", "0")):
        ended = run(*inputs, "out", *option)
        assert "w.jsonl: must be a run directory for --arrivals and --engine" in ended.line
    ended = run("replay", "w.jsonl", "--out", "out")
    assert (2, "") == (ended.code, ended.out)
    assert "w.jsonl: --config is required" in ended.line


def test_a_run_directory_without_a_manifest_is_none(tmp_path: Path, run: Run) -> None:
    """A ledger is not a run, and says what it lacks."""
    (tmp_path / "some").mkdir()
    ended = run("replay", "some", "--out", "out")
    assert "preempt: some: manifest.json is required, got nothing" == ended.line


# Progress


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


def test_progress_is_shown_at_a_terminal_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The phase, then how many requests are done; after it has ended nothing is drawn."""
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    # The timer's work is done here, also where this takes longer.
    monkeypatch.setattr("preempt.commands.progress.DELAY_SECONDS", 3600.0)
    with progress_shown(quiet=False) as progress:
        progress.phase("reading\x1b[31m [red]w.jsonl")
        assert "" == seen.getvalue()
        progress._show()  # what the timer does
        assert "reading\\x1b[31m [red]w.jsonl" in seen.getvalue()
        tell = progress.requests("replaying")
        assert tell is not None
        tell(1234, 5000)
        assert progress._bar is not None
        progress._bar.refresh()
        assert "replaying: 1,234 of 5,000 requests" in seen.getvalue()
        compare = progress.events("verifying")
        assert compare is not None
        compare(512, 84_000)
        progress._bar.refresh()
        assert "verifying: 512 of 84,000 events" in seen.getvalue()
    drawn = seen.getvalue()
    tell(5000, 5000)
    progress._show()
    assert drawn == seen.getvalue()


@pytest.mark.parametrize(("terminal", "quiet"), [(False, False), (True, True), (False, True)])
def test_progress_is_silent_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool
) -> None:
    """No timer, and a replay has nobody to tell."""
    seen = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", seen)
    with progress_shown(quiet=quiet) as progress:
        progress.phase("reading")
        assert progress.requests("replaying") is None
        assert progress.events("verifying") is None
        assert not progress._timer.is_alive()
        progress._show()
    assert "" == seen.getvalue()


def test_a_report_says_which_ledger_it_checks(
    run: Run, inputs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading and checking take nearly all of its time."""
    assert 0 == run(*inputs, "ledger", "--quiet").code
    said: list[str] = []
    monkeypatch.setattr(Progress, "phase", lambda _, text: said.append(text))
    assert 0 == run("report", "ledger", "--out", "report", "--quiet").code
    assert ["checking ledger", "writing the report"] == said


def test_progress_ends_with_what_it_is_shown_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when that fails."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown: list[Progress] = []

    def fail() -> None:
        with progress_shown(quiet=False) as progress:
            shown.append(progress)
            raise ReplayError("no")

    with pytest.raises(ReplayError):
        fail()
    shown[0]._timer.join()
    assert not shown[0]._timer.is_alive()
