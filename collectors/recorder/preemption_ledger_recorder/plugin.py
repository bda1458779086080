"""What vLLM calls in each of its processes: it makes the engine core use the watched scheduler.

Nothing happens unless `PREEMPTION_LEDGER_SPOOL` names a directory. The one thing that changes in
vLLM is what `SchedulerConfig.get_scheduler_cls` returns, and that is a subclass of what it would
have returned.
"""

import functools
import importlib
import os
from typing import Any

from preemption_ledger_recorder.session import DIRECTORY, log

_classes: dict[type, type] = {}


def register() -> None:
    """Entry point in `vllm.general_plugins`; may be called any number of times."""
    if not os.environ.get(DIRECTORY):
        return
    try:
        watch(importlib.import_module("vllm.config").SchedulerConfig)
    except Exception:  # noqa: BLE001 (vLLM starts whatever is wrong here)
        log.warning("Preemption recorder is off: this vLLM is not known", exc_info=True)


def watch(config: Any) -> None:
    """Wrap `get_scheduler_cls` of the configuration class, once."""
    original = config.get_scheduler_cls
    if getattr(original, "preemption_ledger_watches", False):
        return

    @functools.wraps(original)
    def get_scheduler_cls(self: Any, *args: Any, **kwargs: Any) -> Any:
        return recorded_class(original(self, *args, **kwargs))

    get_scheduler_cls.preemption_ledger_watches = True  # type: ignore[attr-defined]
    config.get_scheduler_cls = get_scheduler_cls


def recorded_class(base: type) -> type:
    """The watched subclass, the same for the same class; the class itself if that cannot be."""
    if base not in _classes:
        try:
            from preemption_ledger_recorder.scheduler import lacking, recorded

            missing = lacking(base)
            if missing:
                log.warning("Preemption recorder is off: %s has no %s", base, ", ".join(missing))
            _classes[base] = base if missing else recorded(base)
        except Exception:  # noqa: BLE001
            log.warning("Preemption recorder is off", exc_info=True)
            _classes[base] = base
    return _classes[base]
