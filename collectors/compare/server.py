"""A server that a command starts, for one drive: its log is kept, and it ends with the drive."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from replay.errors import InputError
from replay.strict import printable

_LOOK_S = 0.5
_END_S = 60.0
_LAST_WORDS_BYTES = 2000
Answers = Callable[[], bool]


def command_of(text: str, option: str) -> list[str]:
    """Words of a command as a shell would split them; no shell runs it."""
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise InputError(option, "", "must be a command with its quotes closed") from exc
    if not words:
        raise InputError(option, "", "must be a command", "nothing")
    return words


@contextmanager
def started(
    command: Sequence[str],
    option: str,
    environ: Mapping[str, str],
    log: Path,
    answers: Answers,
    ready_s: float,
) -> Iterator[None]:
    """The server, from its first answer to the end of the block; then it and its children end.

    `answers` says whether it does. A server that ends before, or takes longer than `ready_s`, is
    an `InputError` with its last words; so is one that answers before ours was started. Messages
    name the `option` and not the command, which may hold a key.
    """
    if answers():
        rule = "must be free: a server answers there before ours is started"
        raise InputError("--url", "", rule)
    with open(log, "ab", opener=_private) as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command, and no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environ},
                start_new_session=True,
            )
        except OSError as exc:
            rule = f"must be a command that can be started: {exc.strerror}"
            raise InputError(option, "", rule) from exc
        try:
            _wait(process, option, log, answers, ready_s)
            yield
        finally:
            _end(process)


def _wait(
    process: "subprocess.Popen[bytes]",
    option: str,
    log: Path,
    answers: Answers,
    ready_s: float,
) -> None:
    deadline = time.monotonic() + ready_s
    while not answers():
        if process.poll() is not None:
            rule = f"ended before it answered, with {process.returncode}{_last_words(log)}"
            raise InputError(option, "", rule)
        if time.monotonic() >= deadline:
            rule = f"did not answer within {ready_s:.0f} s (--ready){_last_words(log)}"
            raise InputError(option, "", rule)
        time.sleep(_LOOK_S)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End it and whoever it started: politely, then by force."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(log: Path) -> str:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_WORDS_BYTES))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return f"; its last line in {log}: {printable(lines[-1], 200)}"
    return f"; nothing in {log}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
