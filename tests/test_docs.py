"""The documentation says what the program does."""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from preempt.main import main
from replay.config import parse_config
from replay.events import Kind, named
from replay.lab import replay_lab
from replay.workload import Request, Workload

ROOT = Path(__file__).parent.parent


def test_the_lab_example_is_what_the_lab_does() -> None:
    """docs/lab.md's table is the ledger of its own configuration."""
    text = (ROOT / "docs" / "lab.md").read_text()
    config = parse_config(tomllib.loads(text.split("```toml")[1].split("```")[0]), "docs/lab.md")
    workload = Workload(tuple(Request(name, 0, 24, 16) for name in "ab"))
    shown = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| \d", line)
    ]
    rows = []
    for event in replay_lab(workload, config):
        row = named(event, ["a", "b"])
        blocks = row["allocated_blocks"] or row["freed_blocks"] or ""
        cells = (row["tick"], row["kind"], row["request_id"], row["generated_tokens"], blocks)
        rows.append([str(cell) for cell in cells])
    assert rows == shown
    assert Kind.PREEMPT.name.lower() in {row[1] for row in shown}


def test_the_readme_opens_with_the_two_commands_ci_runs() -> None:
    """What a newcomer is told to type is what CI types."""
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    commands = re.findall(r"^    (pip install .*)$", readme, re.MULTILINE)
    assert ["pip install . && preempt demo", "pip install '.[test]' && pytest"] == commands
    for command in commands:
        assert command in ci or all(part in ci for part in command.split(" && "))


def test_every_file_the_readme_links_is_there() -> None:
    """No link of the README leads nowhere."""
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    assert [] == [link for link in links if "://" not in link and not (ROOT / link).exists()]


def test_every_dependency_earns_a_line() -> None:
    """docs/dependencies.md names each run-time dependency, and nothing that is not one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=]", d)[0] for d in project["dependencies"]}
    text = (ROOT / "docs" / "dependencies.md").read_text()
    assert wanted == set(re.findall(r"^\| ([a-z0-9-]+) \|", text, re.MULTILINE)) - {"package"}


def test_every_command_of_the_readme_works_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The README can be followed line by line; only the gate ends with a verdict's code."""
    fixtures = ROOT / "fixtures"
    monkeypatch.chdir(tmp_path)
    for name, source in (
        ("AzureLLMInferenceTrace_conv.csv", "traces/azure-2023-conv-head.csv"),
        ("conversation_trace.jsonl", "traces/mooncake-conversation-head.jsonl"),
        ("gate.toml", "gates/blocks-48-to-80.toml"),
    ):
        shutil.copyfile(fixtures / source, name)
    shutil.copytree(fixtures / "runs" / "base-1", "path/to/run")
    shutil.copytree(fixtures / "runs", "runs")
    block = re.compile(r"^    cat > (\S+) <<'TOML'\n(.*?)^    TOML$", re.MULTILINE | re.DOTALL)
    text = (ROOT / "README.md").read_text()
    for name, content in block.findall(text):
        Path(name).write_text(re.sub("^    ", "", content, flags=re.MULTILINE))
    commands = re.findall(r"^    (preempt .*)$", text, re.MULTILINE)
    # Those that need a server are tried with a real one (test_vllm_live.py).
    commands = [command for command in commands if "127.0.0.1" not in command]
    assert len(commands) >= 12
    for command in commands:
        with pytest.raises(SystemExit) as left:
            main(shlex.split(command)[1:])
        wanted = 3 if command.startswith("preempt gate run") else 0
        assert (wanted, command) == (left.value.code, command), capfd.readouterr().err
