"""What went wrong with a disk or a spool, in the words of the manifest's `problems`."""

import errno

from replay.errors import InputError

# Problems that are the disk's or the spool's: no page that is read again shows them.
TROUBLES = frozenset(
    {
        "disk_full",
        "disk_error",
        "not_written",
        "run_vanished",
        "settle_failed",
        "spool_failed",
        "spool_not_deleted",
    }
)
NOT_WRITTEN = "not written: "  # how the reason of such a gap begins
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def trouble_of(exc: Exception, *, gone: bool = False) -> str:
    """What a failure to write is called; `gone`: the run is no longer there."""
    if isinstance(exc, InputError):
        return "settle_failed"
    cause = exc if isinstance(exc, OSError) else exc.__cause__
    full = isinstance(cause, OSError) and cause.errno in _FULL
    return "run_vanished" if gone else "disk_full" if full else "disk_error"
