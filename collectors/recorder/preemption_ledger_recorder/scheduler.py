"""A subclass of whatever scheduler class an engine uses: it does the same, and notes are taken.

Each method calls the one it overrides, hands on its arguments and its result, and lets its errors
pass. What the notes themselves raise goes no further than here.
"""

import functools
import sys
import types
from typing import Any

from preemption_ledger_recorder.session import Session, begin

# What a class must have to be watched; attributes of instances are looked for when one is made.
NEEDED = (
    "add_request",
    "schedule",
    "update_from_output",
    "_preempt_request",
    "_free_request",
    "finish_requests",
    "shutdown",
)


def lacking(base: type) -> list[str]:
    """What a scheduler class would need to be watched and does not have."""
    return [name for name in NEEDED if not callable(getattr(base, name, None))]


def recorded(base: type) -> type:
    """The subclass of `base` that records; `base` itself if it does already."""
    if issubclass(base, Watching):
        return base
    name = f"Recorded{base.__name__}"

    @functools.wraps(base.__init__)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        Watching.__init__(self, *args, **kwargs)

    made: type = types.new_class(name, (Watching, base))
    made.__module__, made.__doc__ = __name__, base.__doc__
    made.__init__ = init  # type: ignore[misc]
    return made


class Watching:
    """Stands before a scheduler class in the order of bases; `super()` is that class."""

    _preemption_ledger: Session | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._preemption_ledger = begin(self)

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """As the scheduler's, and noted."""
        scheduler: Any = super()
        session = self._preemption_ledger
        if session is None or session.notes is None:
            return scheduler.add_request(request, *args, **kwargs)
        known = _holds(self, request)
        result = scheduler.add_request(request, *args, **kwargs)
        try:
            session.notes.arrived(request, known)
        except Exception:  # noqa: BLE001
            session.failed("add_request")
        return result

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """As the scheduler's, and noted."""
        scheduler: Any = super()
        session = self._preemption_ledger
        if session is None or session.notes is None:
            return scheduler.schedule(*args, **kwargs)
        session.notes.schedule_begins()
        output = scheduler.schedule(*args, **kwargs)
        try:
            if session.notes is not None:
                session.notes.scheduled(self, output)
        except Exception:  # noqa: BLE001
            session.failed("schedule")
        return output

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        scheduler: Any = super()
        session = self._preemption_ledger
        if session is None or session.notes is None:
            return scheduler._preempt_request(request, *args, **kwargs)  # noqa: SLF001
        before = None
        try:
            before = session.notes.before_preemption(request)
        except Exception:  # noqa: BLE001
            session.failed("before _preempt_request")
        result = scheduler._preempt_request(request, *args, **kwargs)  # noqa: SLF001
        try:
            if before is not None and session.notes is not None:
                session.notes.preempted(self, request, before)
        except Exception:  # noqa: BLE001
            session.failed("_preempt_request")
        return result

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """As the scheduler's, and noted."""
        scheduler: Any = super()
        session = self._preemption_ledger
        if session is None or session.notes is None:
            return scheduler.update_from_output(scheduler_output, *args, **kwargs)
        try:
            session.notes.update_begins(scheduler_output)
        except Exception:  # noqa: BLE001
            session.failed("before update_from_output")
        result = scheduler.update_from_output(scheduler_output, *args, **kwargs)
        try:
            if session.notes is not None:
                session.notes.updated()
        except Exception:  # noqa: BLE001
            session.failed("update_from_output")
        return result

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        scheduler: Any = super()
        result = scheduler._free_request(request, *args, **kwargs)  # noqa: SLF001
        session = self._preemption_ledger
        if session is not None and session.notes is not None:
            try:
                session.notes.finished(request)
            except Exception:  # noqa: BLE001
                session.failed("_free_request")
        return result

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """As the scheduler's; an engine that is told to stop may be killed right after."""
        scheduler: Any = super()
        result = scheduler.finish_requests(*args, **kwargs)
        everything = (*args, *kwargs.values(), None)[0] is None
        if everything and self._preemption_ledger is not None and _engine_stops():
            self._preemption_ledger.close()
        return result

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:
        """As the scheduler's; then the spool ends."""
        scheduler: Any = super()
        try:
            return scheduler.shutdown(*args, **kwargs)
        finally:
            if self._preemption_ledger is not None:
                self._preemption_ledger.close()


def _engine_stops() -> bool:
    """Whether `finish_requests` was called by the engine's shutdown and not by a pause.

    With its default time-out of 0 the API server sends the engine core SIGKILL behind SIGTERM,
    long before the core would shut its scheduler down, so this is the last call there is.
    """
    return sys._getframe(2).f_code.co_name == "_handle_shutdown"  # noqa: SLF001


def _holds(scheduler: Any, request: Any) -> bool:
    """Whether a request only continues one that is there."""
    try:
        return request.request_id in scheduler.requests
    except Exception:  # noqa: BLE001
        return False
