"""One replay from start to finish: refuse early, schedule, check, and hand back the ledger."""

from collections.abc import Mapping

from replay.config import Config
from replay.errors import InputError, Unfinished
from replay.events import Kind
from replay.fit import check_limits
from replay.lab import replay_lab
from replay.ledger import Ledger
from replay.oracle import conservation
from replay.receipt import build_receipt, totals
from replay.requests_table import request_rows
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import Workload


def replay(
    workload: Workload, config: Config, place: str = "workload", *, keep_censored: bool = False
) -> Ledger:
    """Replay a workload; the ledger has already been through the conservation oracle.

    Raises `InputError` for what cannot be replayed and `Unfinished` when requests are left at
    `max_ticks` and `keep_censored` is off. A ledger the oracle rejects is a fault of this program.
    """
    if config.engine.profile != "lab":
        rule = "is not replayed by this release yet, only lab is"
        raise InputError(place, f"engine.profile {config.engine.profile}", rule)
    check_limits(workload, config, place)
    events = replay_lab(workload, config)
    left = sum(e.kind == Kind.CENSORED for e in events)
    if left and not keep_censored:
        raise Unfinished(
            f"{place}: {left} of {len(workload)} requests were unfinished at tick"
            f" {config.limits.max_ticks} (limits.max_ticks); nothing was written,"
            " --keep-censored writes them as censored"
        )
    _check_totals(totals(events), place)
    checks, violations = conservation(workload, config, events)
    if violations:
        first = violations[0]
        raise AssertionError(f"seq {first.seq}: {first.equation}: {first.detail}")
    receipt = build_receipt(workload, config, events, checks)
    return Ledger(workload, config, events, request_rows(workload, events), receipt)


def _check_totals(sums: Mapping[str, int | float | None], place: str) -> None:
    for name, value in sums.items():
        if isinstance(value, int) and value > MAX_SAFE_INTEGER:
            raise InputError(place, f"total {name}", "must be within ±(2^53 - 1)", str(value))
