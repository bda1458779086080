"""The `vllm-v1` scheduler compiled to machine code, where that pays and works.

The compiled code is the interpreted code: numba reads the same functions. Compiling takes seconds,
so it is kept on disk, beside the installed package or in the user's cache, whichever can be
written; where neither can, or numba is missing, everything still runs.
"""

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from replay import recovery
from replay.vllm_v1 import clock, jump, passes, pool, progress, queue, rows, step, victim
from replay.vllm_v1.state import State

_MODULES = (recovery, pool, queue, rows, victim, passes, clock, jump, progress, step)
_ENTRIES = ("advance", "censor")
Advance = Callable[[State, int], int]


def compiled(state: State) -> Advance | None:
    """`step.advance` as machine code for such states, or None where numba is missing."""
    try:
        return _tried(state, keep=True)
    except ImportError:
        return None
    except (OSError, EOFError, pickle.PickleError):  # what was kept is damaged, or the disk full
        return _tried(state, keep=False)


def can_be_kept() -> bool:
    """Whether machine code, once compiled, is there for the next process."""
    return _directory() is not None


def is_kept() -> bool:
    """Whether machine code is there already, so that nothing has to be compiled."""
    directory = _directory()
    # The index that numba writes for a function, of this Python: others may share the directory.
    index = f"step.advance-*.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    return directory is not None and any(Path(directory).rglob(index))


def _tried(state: State, *, keep: bool) -> Advance:
    advance = _machine_code(keep=keep)
    advance(state, 0)  # compiles or loads, and takes no step
    return advance


@cache
def _machine_code(*, keep: bool) -> Advance:
    from numba import njit
    from numba.extending import register_jitable

    options = _options(njit)
    for module in _MODULES:
        for function in _functions(module):
            if function.__name__ not in _ENTRIES:
                # A call hands over every array; a row is long and written from many places.
                register_jitable(forceinline=module is not rows, **options)(function)
    with _cache_directory() as writable:
        advance: Advance = njit(cache=keep and writable, **options)(step.advance)
    return advance


def _options(njit: Any) -> dict[str, Any]:
    """Without reference counts: no array is made or dropped inside, and counting takes time."""
    options = {"error_model": "numpy"}
    try:
        njit(_nrt=False)
    except (KeyError, TypeError):  # a numba without this option
        return options
    return options | {"_nrt": False}


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in vars(module).values():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield value


@contextmanager
def _cache_directory() -> Iterator[bool]:
    """Let numba keep its code where it can."""
    from numba.core import config

    numba_config: Any = config
    before = numba_config.CACHE_DIR
    directory = _directory()
    if directory:
        numba_config.CACHE_DIR = directory
    try:
        yield directory is not None
    finally:
        numba_config.CACHE_DIR = before


@cache
def _directory() -> str | None:
    """Directory for machine code, made where need be: the user's choice, or one per sources.

    numba looks only at the file of the function it is given, so the name carries the others.
    """
    files = [__file__, *(str(module.__file__) for module in _MODULES)]
    sources = b"".join(Path(file).read_bytes() for file in files)
    name = hashlib.sha256(sources).hexdigest()[:16]
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return chosen or next((d for d in map(_made, _places(name)) if d), None)


def _places(name: str) -> Iterator[Path]:
    yield Path(__file__).parent / "__pycache__" / f"compiled-{name}"
    root = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    yield Path(root) / "preemption-ledger" / f"compiled-{name}"


def _made(directory: Path) -> str | None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(directory) if os.access(directory, os.W_OK | os.X_OK) else None
