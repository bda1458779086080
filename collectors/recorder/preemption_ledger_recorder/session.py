"""One scheduler's recording, from its birth to its end, and everything that can go wrong in it."""

import atexit
import importlib
import json
import logging
import os
import time
from collections.abc import Mapping
from multiprocessing import util
from pathlib import Path
from typing import Any

from preemption_ledger_recorder.facts import COLUMNS, SOURCES, engine_index, facts_of
from preemption_ledger_recorder.files import Parts, check_directory
from preemption_ledger_recorder.notes import Notes
from preemption_ledger_recorder.prefixes import PrefixNumbers
from preemption_ledger_recorder.spool import Spool
from preemption_ledger_recorder.version import __version__

SCHEMA = "preemption-spool/1"
DIRECTORY = "PREEMPTION_LEDGER_SPOOL"
MOST_BYTES = "PREEMPTION_LEDGER_SPOOL_MAX_BYTES"
DEFAULT_MOST_BYTES = 2**30
MOST_ERRORS = 10
_PREFIXES = (2**16, 2**20)  # least and most hashes that are kept in mind

# Below vLLM's own logger, so that its format and level hold.
log = logging.getLogger("vllm.preemption_ledger_recorder")


class Session:
    """Notes and spool of one scheduler; `notes` is None once it is off."""

    def __init__(self, scheduler: Any, environment: Mapping[str, str]) -> None:
        directory = Path(environment[DIRECTORY]).absolute()
        check_directory(directory)
        self.engine, self._pid = engine_index(scheduler), os.getpid()
        self._began = pair()
        self._facts = facts_of(scheduler, release, platform)
        parts = Parts(
            directory,
            f"{self.engine}-{self._pid}-{self._began[0]}",
            self._header,
            most_bytes=most_bytes(environment),
            clock=time.monotonic,
        )
        blocks = self._facts["cache"]["num_gpu_blocks"] or 0
        prefixes = PrefixNumbers(min(max(4 * blocks, _PREFIXES[0]), _PREFIXES[1]))
        self.spool = Spool(parts, prefixes, pair=pair, feature=self._saw)
        self.notes: Notes | None = Notes(scheduler, self.spool.buffer.put, time.monotonic_ns)
        self.spool.start()
        _sessions.append(self)
        atexit.register(self.close)
        # Processes that multiprocessing forks end without running what atexit holds.
        util.Finalize(None, self.close, exitpriority=100)
        log.info("Preemption recorder %s writes to %s", __version__, directory)

    def failed(self, where: str) -> None:
        """Something here raised: it is counted and, if it goes on, recording stops."""
        self.spool.errors += 1
        if self.spool.errors == 1:
            log.warning("Preemption recorder: an error in %s", where, exc_info=True)  # noqa: LOG014
        if self.spool.errors >= MOST_ERRORS:
            self.spool.off = where
            self.notes = None
            log.warning("Preemption recorder: off after %d errors", self.spool.errors)

    def close(self) -> None:
        """Write the end; later notes go nowhere."""
        self.notes = None
        if self._pid != os.getpid():
            return
        try:
            self.spool.close()
        except Exception:  # an engine on its way out is not held up
            log.warning("Preemption recorder: the spool has no proper end", exc_info=True)

    def forked(self) -> None:
        """This is a copy in a child process: the files are the parent's."""
        self.notes = None

    def _saw(self, feature: str) -> None:
        self._facts["features"][feature] = True

    def _header(self, part: int) -> bytes:
        unix_ns, monotonic_ns = self._began if part == 0 else pair()
        header = {
            "schema": SCHEMA,
            "recorder_version": __version__,
            "part": part,
            "engine": self.engine,
            "pid": self._pid,
            "unix_ns": unix_ns,
            "monotonic_ns": monotonic_ns,
            **self._facts,
            "columns": COLUMNS,
            "sources": SOURCES,
        }
        return json.dumps(header, separators=(",", ":")).encode()


_sessions: list[Session] = []


def _forked() -> None:
    for session in _sessions:
        session.forked()
    _sessions.clear()


os.register_at_fork(after_in_child=_forked)


def pair() -> tuple[int, int]:
    """Both clocks at once: wall and monotonic nanoseconds."""
    return time.time_ns(), time.monotonic_ns()


def most_bytes(environment: Mapping[str, str]) -> int:
    """The cap on the whole directory."""
    given = environment.get(MOST_BYTES, "")
    if given.isdecimal() and given.isascii():
        return int(given)
    if given:
        log.warning("%s must be a number of bytes; %d it is", MOST_BYTES, DEFAULT_MOST_BYTES)
    return DEFAULT_MOST_BYTES


def release() -> str:
    """Version of vLLM, as /version gives it."""
    return str(importlib.import_module("vllm").__version__)


def platform() -> Any:
    """What vLLM runs on, as it found out when it started."""
    return importlib.import_module("vllm.platforms").current_platform


def begin(scheduler: Any) -> Session | None:
    """Record this scheduler; None, and a line in the log, where that cannot be."""
    try:
        return Session(scheduler, os.environ)
    except Exception as exc:  # the engine starts whatever is wrong here
        reason = exc.strerror or exc.args[0] if isinstance(exc, OSError) else type(exc).__name__
        log.warning("Preemption recorder is off: %s", reason, exc_info=not isinstance(exc, OSError))
        return None
