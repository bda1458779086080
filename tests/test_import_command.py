"""`preempt import` has a subcommand for each format, with the options that format has."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from collectors.results import FORMATS as RESULTS
from collectors.traces import FORMATS as TRACES
from preempt.commands.importing import import_command
from preempt.main import cli
from replay.workload import Request, Workload
from replay.workload_file import read_workload, write_workload

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures" / "traces"
MOONCAKE = FIXTURES / "mooncake-conversation-head.jsonl"
EVERY = pytest.mark.parametrize("name", [*TRACES, "run", *RESULTS])
EXAMPLES = {
    "mooncake": MOONCAKE,
    "bailian": FIXTURES / "bailian-thinking-row.jsonl",
    "timed-trace": FIXTURES / "timed-trace-head.jsonl",
}


def run_import(*arguments: object, **settings: Any) -> Result:
    """`preempt import` with these arguments."""
    words = ["import", *(str(a) for a in arguments)]
    return CliRunner().invoke(cli, words, prog_name="preempt", **settings)


def help_of(*words: str) -> str:
    """A help page as a terminal of 80 columns shows it."""
    return run_import(*words, "--help", env={"COLUMNS": "80"}).output


def options_of(name: str) -> set[str]:
    """Long names of a format's options."""
    command = import_command.commands[name]
    return {
        o for p in command.params if isinstance(p, click.Option) for o in p.opts if o[:2] == "--"
    }


@pytest.mark.parametrize("words", [(), *((name,) for name in [*TRACES, "run", *RESULTS])])
def test_a_help_page_fits_a_narrow_terminal(words: tuple[str, ...]) -> None:
    """No line is wider than 80 columns, at 80."""
    assert 80 >= max(map(len, help_of(*words).splitlines()))


def test_the_list_of_formats_shows_each_with_its_mark() -> None:
    """In two sections, and what they have in common once."""
    traces, results = help_of().split("Public traces and runs:")[1].split("Result files")
    for formats, section in ((TRACES, traces), (RESULTS, results)):
        told = " ".join(section.split())
        for name, form in formats.items():
            assert f"{name} {form.line}" in told
    assert " run a measured run" in " ".join(traces.split())
    marked = {n for n, one in TRACES.items() if "from published rows" in one.line}
    assert {"azure", "burstgpt", "bailian"} == marked


@EVERY
def test_a_page_has_the_format_s_own_example_and_mark(name: str) -> None:
    """And its own only."""
    told = " ".join(help_of(name).split())
    assert {name} == {part.split()[0] for part in told.split("preempt import ")[1:]} - {"--help"}
    form = {**TRACES, **RESULTS}.get(name)
    if form is not None:
        assert f"{form.line}." in told
        assert ("Where the mark says so" in told) == bool(form.origin)


@EVERY
def test_a_format_has_the_options_that_mean_something_for_it(name: str) -> None:
    """Of --block-tokens, --run, --index, --arrivals and --engine."""
    own = {"--block-tokens", "--run", "--index", "--arrivals", "--engine"}
    wanted = {"--block-tokens"} if name in EXAMPLES else set()
    wanted |= {"--run", "--index"} if name in RESULTS else set()
    wanted |= {"--arrivals", "--engine"} if name == "run" else set()
    assert wanted == options_of(name) & own
    assert {"--output", "--start", "--count", "--max-requests", "--force"} <= options_of(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_chunk_a_page_names_is_the_one_its_reader_takes(name: str) -> None:
    """Whoever leaves --block-tokens out gets what the help says."""
    found = TRACES[name].read(EXAMPLES[name])
    assert TRACES[name].block_tokens == found.batches.head.prefix_block_tokens


def test_an_unknown_format_is_told_which_there_are() -> None:
    """Exit code 2."""
    result = run_import("bogus", "t.csv", "-o", "w.json")
    assert 2 == result.exit_code
    assert f"FORMAT is one of {', '.join([*TRACES, 'run', *RESULTS])}." in result.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["aiperf", "--help"], ["bogus"]], ids=" ".join)
def test_help_on_formats_waits_for_no_reader(tmp_path: Path, arguments: list[str]) -> None:
    """Nor for polars."""
    code = (
        "import sys\nfrom preempt.main import main\n"
        "try: main(['import', *sys.argv[1:]])\nexcept SystemExit: pass\n"
        "heavy = ('polars', 'duckdb', 'numpy', 'jsonschema', 'collectors.traces.azure',"
        " 'collectors.results.aiperf')\n"
        "print('heavy:', *[name for name in heavy if name in sys.modules])"
    )
    out = subprocess.check_output(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert "heavy:" == out.splitlines()[-1].strip()


def test_options_may_stand_on_either_side_of_the_file(tmp_path: Path) -> None:
    """As they could when the format was an argument."""
    for k, words in enumerate(
        (
            ("mooncake", MOONCAKE, "-o", tmp_path / "0.json", "--start", 1, "--count", 8),
            ("mooncake", "--count", 8, "-o", tmp_path / "1.json", "--start", 1, MOONCAKE),
        )
    ):
        assert 0 == run_import(*words).exit_code
        assert 8 == len(read_workload(tmp_path / f"{k}.json"))


@pytest.mark.parametrize("name", ["azure", "mooncake", "guidellm"])
def test_a_pipe_with_a_name_is_told_of_standard_input(tmp_path: Path, name: str) -> None:
    """It is not waited for, and nothing is written."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = run_import(name, pipe, "-o", tmp_path / "w.json")
    rule = "must be a file, or - with the pipe as standard input, got a pipe or a device"
    assert f"{pipe}: {rule}" == str(result.exception)
    assert [pipe] == list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
@pytest.mark.parametrize("quiet", [False, True])
def test_a_form_without_room_for_the_licence_is_told(
    tmp_path: Path, suffix: str, quiet: bool
) -> None:
    """JSON Lines hold no provenance; nothing is said with --quiet."""
    out = tmp_path / f"w{suffix}"
    result = run_import("mooncake", MOONCAKE, "-o", out, *(["-q"] if quiet else []))
    told = "left out: provenance, with the source's licence and attribution" in result.stderr
    assert (suffix == ".jsonl" and not quiet) == told
    assert (suffix != ".jsonl") == ((read_workload(out).provenance or {}) != {})


@pytest.mark.parametrize(
    ("provenance", "told"),
    [
        ({"license": "CC-BY-4.0"}, True),
        ({"shaped": [{"tool": "merge", "of": [{}, {"license": "Apache-2.0"}]}]}, True),
        ({"license": "the measurer's own"}, False),
        ({"license": 7, "shaped": 5}, False),
        ({}, False),
    ],
    ids=str,
)
def test_the_workload_tools_tell_it_too(
    tmp_path: Path, provenance: dict[str, Any], told: bool
) -> None:
    """Of what was merged as well, and never by the text of a strange file."""
    path, out = tmp_path / "w.json", tmp_path / "out.jsonl"
    requests = (Request("a", 0, 4, 4), Request("b", 9, 4, 4))
    write_workload(Workload(requests, None, None, provenance), path, ".json")
    words = ["workload", "scale", str(path), "--time", "2", "-o", str(out), "--json"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert told == json.loads(result.stdout)["license_left_out"]
    assert told == ("left out: provenance" in result.stderr)
    assert "Apache" not in result.stderr
