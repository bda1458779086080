"""The import directions between the folders, read from the import lines themselves."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("replay", "collectors", "analysis", "conformance", "preempt")
# What a folder may import besides itself; a trailing dot means anything below.
ALLOWED = {
    "replay": (),
    "collectors": (
        "replay.canonical",
        "replay.errors",
        "replay.output",
        "replay.parquet",
        "replay.strict",
        "replay.version",
        "replay.workload",
        "replay.workload_file",
        "replay.workload_frame",
    ),
    "analysis": (
        "collectors.columns",
        "collectors.run",
        "collectors.run_config",
        "replay.canonical",
        "replay.config",
        "replay.errors",
        "replay.events",
        "replay.ledger",
        "replay.limitations",
        "replay.oracle.verify",
        "replay.output",
        "replay.parquet",
        "replay.receipt",
        "replay.requests_table",
        "replay.strict",
        "replay.timing",
        "replay.version",
        "replay.workload",
    ),
    "conformance": ("replay.", "collectors.traces"),
    "preempt": ("replay.", "collectors.", "analysis."),
}
MODULES = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    """Full names of the project's modules that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            submodules = {f"{node.module}.{a.name}" for a in node.names}
            found = {
                n for n in submodules if (ROOT / n.replace(".", "/")).with_suffix(".py").exists()
            }
            names |= found or {node.module or ""}
    return {n for n in names if n.split(".")[0] in FOLDERS}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_its_folder_may(path: Path) -> None:
    """Replay imports neither other folder, collectors the workload contract, analysis contracts."""
    folder = path.relative_to(ROOT).parts[0]
    allowed = ALLOWED[folder]
    wrong = {
        name
        for name in imported(path)
        if name.split(".")[0] != folder
        and not any(name == a or (a.endswith(".") and name.startswith(a)) for a in allowed)
    }
    assert set() == wrong


def test_the_oracle_never_imports_a_scheduler() -> None:
    """Nothing the oracle imports, however far, is a scheduler or its recovery choice."""
    seen: set[str] = set()
    todo = ["replay.oracle.verify"]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            path = (ROOT / name.replace(".", "/")).with_suffix(".py")
            todo += imported(path) if path.exists() else []
    assert {"replay.oracle.lab", "replay.oracle.vllm_v1"} <= seen
    assert set() == seen & {"replay.lab", "replay.recovery", "replay.run"}
    assert [] == [name for name in seen if name.startswith("replay.vllm_v1")]


def test_every_folder_is_checked() -> None:
    """The list of modules is not empty for any folder."""
    assert set(FOLDERS) == {p.relative_to(ROOT).parts[0] for p in MODULES}
