"""One vLLM process that answers cases: `engine.py` started in vLLM's own environment."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from conformance.cases import Case
from replay.errors import ReplayError

ENGINE = Path(__file__).with_name("engine.py")
_QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}


class EngineDied(ReplayError):
    """The vLLM process ended before it answered; the message holds the end of what it printed."""

    exit_code = 70


class Engine:
    """Answers cases, one after the other, for as long as the `with` block lasts.

    `python` is an interpreter that has vLLM; nothing is written beside it: byte code and vLLM's
    own caches go to `cache`, which makes the second start take seconds instead of a minute.
    """

    def __init__(self, python: Path, cache: Path) -> None:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        # -I: neither this folder nor the project's environment is importable in there.
        self._process = subprocess.Popen(  # noqa: S603 (our own file, the given interpreter)
            [python, "-I", "-X", f"pycache_prefix={cache / 'bytecode'}", ENGINE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env=os.environ | _QUIET | {"VLLM_CACHE_ROOT": str(cache / "vllm")},
        )

        self._stdin = cast("IO[str]", self._process.stdin)
        self._stdout = cast("IO[str]", self._process.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        self._log.close()

    def answer(self, case: Case) -> dict[str, Any]:
        """The result of vLLM's scheduler for one case (`engine.ROWS`)."""
        try:
            self._stdin.write(json.dumps(case) + "\n")
            self._stdin.flush()
            line = self._stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise EngineDied(f"vLLM ended before it answered case {case['name']}: {self._said()}")
        result: dict[str, Any] = json.loads(line)
        return result

    def _said(self) -> str:
        self._process.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        return " | ".join(lines[-3:]) or f"exit code {self._process.returncode}, nothing printed"
