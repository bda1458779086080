"""The engine side of `test_recorder_vllm.py`: vLLM's scheduler class under the recorder, no model.

No test itself: `test_recorder_vllm.py` runs it in a vLLM environment, where only the standard
library, the recorder and the conformance suite's driver are importable. It reads
cases of the conformance suite as JSON lines on standard input, drives each through the watched
subclass of `Scheduler` or `AsyncScheduler` with the suite's own driver, leaves a spool per case
under the directory given as its argument, and writes what the suite saw, a line per case.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "collectors" / "recorder")]

CLASSES = ("scheduler.Scheduler", "async_scheduler.AsyncScheduler")


def watch_classes() -> None:
    """Put the watched subclasses where the driver looks for a scheduler class."""
    found = [name.split(".") for name in CLASSES]
    recorded_class = importlib.import_module("preemption_ledger_recorder.plugin").recorded_class
    modules = [importlib.import_module(f"vllm.v1.core.sched.{module}") for module, _ in found]
    watched = [recorded_class(getattr(m, n)) for m, (_, n) in zip(modules, found, strict=True)]
    for module, (_, name), made in zip(modules, found, watched, strict=True):
        setattr(module, name, made)


def main() -> None:
    """Answer every case on standard input."""
    engine: Any = importlib.import_module("conformance.engine")
    answers = engine._private_stdout()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    rig = engine.Rig()
    watch_classes()
    for number, line in enumerate(sys.stdin):
        os.environ["PREEMPTION_LEDGER_SPOOL"] = str(Path(sys.argv[1]) / str(number))
        case = json.loads(line)
        run = engine.Run(rig, case)
        list(run.go(None))
        run.scheduler.shutdown()
        answers.write(json.dumps(run.result(case["name"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
