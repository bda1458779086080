"""Where a collector's runs lie: OUT, and beside it OUT-2, OUT-3, … for later configurations."""

import re
from pathlib import Path


def latest_run(out: Path) -> Path | None:
    """The last run that was made for `out`, if there is one."""
    numbers = _numbers(out)
    return _path(out, max(numbers)) if numbers else None


def next_run(out: Path, after: Path | None) -> Path:
    """Where the next one goes; never where `after` was, even if that is gone by now."""
    used = [*_numbers(out), 0]
    if after is not None:
        used.append(1 if after.name == out.name else int(after.name.rpartition("-")[2]))
    return _path(out, max(used) + 1)


def _numbers(out: Path) -> list[int]:
    pattern = re.compile(re.escape(out.name) + r"-([1-9][0-9]{0,5})")
    found = [1] if out.is_dir() or out.exists() else []
    for entry in out.parent.iterdir() if out.parent.is_dir() else ():
        match = pattern.fullmatch(entry.name)
        if match and int(match[1]) > 1 and (entry / "manifest.json").exists():
            found.append(int(match[1]))
    return found


def _path(out: Path, number: int) -> Path:
    return out if number == 1 else out.with_name(f"{out.name}-{number}")
