"""What all runs take of the disk, and which ended ones go for it. Runs being written never do.

Only directories that this service names are looked at, and a run goes only under its own lock: a
reader of the whole never finds half of one.
"""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from collectors.scrape.pages import page_parts
from collectors.service.settings import Settings
from collectors.writer import RunWriter
from replay.errors import InputError, OutputExists, ReplayError

_RUN = re.compile(
    r"(?:run|[0-9a-f.h]+_[0-9]{1,5}(?:_[0-9a-f]{16})?|v6-[0-9a-f]{32}_[0-9]{1,5}"
    r"(?:_[0-9a-f]{16})?)(?:-[0-9]{1,6})?"
)
_GOING = ".going-"


@dataclass(frozen=True)
class Ended:
    """A run nobody writes, with its bytes and when it last changed."""

    path: Path
    size_bytes: int
    changed_ns: int


@dataclass(frozen=True)
class Tidied:
    """Bytes that are left, the runs that went, and where each run being written begins now."""

    left_bytes: int
    gone: list[Path]
    freed_bytes: int
    first_parts: dict[Path, int]


def prepare(settings: Settings) -> None:
    """Make the output directory, private, and finish deletions that were interrupted."""
    output = settings.collect.output
    try:
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise OutputExists(f"{output}: cannot be created: {exc.strerror}") from exc
    sweep(output, [target.name for target in settings.targets])


def tidy(settings: Settings, written: set[Path], now_ns: int) -> Tidied:
    """Let ended runs go by the rules; runs in `written` stay."""
    collect = settings.collect
    runs = runs_of(collect.output, [target.name for target in settings.targets])
    still = sum(size_of(run) for run in runs if run in written)
    over = [ended(run) for run in runs if run not in written]
    gone = [
        one
        for one in to_go(over, still, collect.keep_age_us, collect.keep_bytes, now_ns)
        if delete(one.path)
    ]
    freed = sum(one.size_bytes for one in gone)
    left = still + sum(one.size_bytes for one in over) - freed
    first = {run: first for run in runs if run in written and (first := _first_part(run))}
    return Tidied(left, [one.path for one in gone], freed, first)


def _first_part(run: Path) -> int | None:
    try:
        return min((part.number for part in page_parts(run) if part.number is not None), default=0)
    except InputError:
        return None


def runs_of(output: Path, targets: Iterable[str]) -> list[Path]:
    """Run directories of these targets."""
    found = []
    for target in targets:
        folder = output / target
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            named = _RUN.fullmatch(entry.name) and not entry.is_symlink()
            if named and (entry / "manifest.json").is_file():
                found.append(entry)
    return found


def size_of(run: Path) -> int:
    """Bytes of all files of a run."""
    return sum(entry.lstat().st_size for entry in _files(run))


def ended(run: Path) -> Ended:
    """How large and how old a run is."""
    files = [entry.lstat() for entry in _files(run)]
    changed_ns = max((stat.st_mtime_ns for stat in files), default=0)
    return Ended(run, sum(stat.st_size for stat in files), changed_ns)


def to_go(
    found: Iterable[Ended],
    written_bytes: int,
    age_us: int | None,
    most_bytes: int | None,
    now_ns: int,
) -> list[Ended]:
    """Ended runs that are too old, or the oldest of too many bytes; `written_bytes` stay. Pure."""
    left, gone = sorted(found, key=lambda one: one.changed_ns), []
    total = written_bytes + sum(one.size_bytes for one in left)
    for one in left:
        too_old = age_us is not None and now_ns - one.changed_ns > age_us * 1000
        too_much = most_bytes is not None and total > most_bytes
        if too_old or too_much:
            gone.append(one)
            total -= one.size_bytes
    return gone


def delete(run: Path) -> bool:
    """Take a run away unless somebody writes it; first its name, so that none is seen in part."""
    try:
        with RunWriter.resume(run):
            going = run.with_name(f"{_GOING}{run.name}")
            shutil.rmtree(going, ignore_errors=True)
            run.rename(going)
    except (ReplayError, OSError):
        return False
    shutil.rmtree(going, ignore_errors=True)
    return True


def sweep(output: Path, targets: Iterable[str]) -> None:
    """Finish what a kill interrupted."""
    for target in targets:
        for left in (output / target).glob(f"{_GOING}*"):
            shutil.rmtree(left, ignore_errors=True)


def _files(run: Path) -> list[Path]:
    return [entry for entry in run.rglob("*") if entry.is_file() and not entry.is_symlink()]
