"""One replay from start to finish: refuse early, schedule, check, and hand back the ledger."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from replay.config import Config
from replay.errors import InputError, Unfinished
from replay.events import COLUMN, Kind, Rows, to_rows
from replay.fit import check_limits
from replay.lab import replay_lab
from replay.ledger import Ledger
from replay.oracle.verify import conservation
from replay.receipt import build_receipt
from replay.requests_table import CHARGES, request_table
from replay.strict import MAX_SAFE_INTEGER
from replay.timed_steps import TimedSteps
from replay.totals import exact_sum, totals
from replay.vllm_v1.columns import columns_of
from replay.vllm_v1.simulation import Notice, Outcome, Progress, Simulation
from replay.workload import Workload

if TYPE_CHECKING:
    import polars as pl

_WORTH_COMPILING = 100  # requests from which machine code pays for whoever replays many times


def replay(
    workload: Workload,
    config: Config,
    place: str = "workload",
    *,
    keep_censored: bool = False,
    progress: Progress | None = None,
    notice: Notice | None = None,
) -> Ledger:
    """Replay a workload; the ledger has already been through the conservation oracle.

    `progress` hears now and then how many requests are done, and of how many; `notice` what else
    takes long.
    Raises `InputError` for what cannot be replayed and `Unfinished` when requests are left at
    `max_ticks` and `keep_censored` is off. A ledger the oracle rejects is a fault of this program.
    """
    check_limits(workload, config, place)
    rows, why, steps = _SCHEDULERS[config.engine.profile](workload, config, progress, notice)
    sums = totals(rows, config)
    left = len(workload) - sums["completions"]
    if left and not (keep_censored and left == sums["censored"]):
        raise Unfinished(
            f"{place}: {left} of {len(workload)} requests were unfinished at {why};"
            " nothing was written"
            + (", --keep-censored writes them as censored" if sums["censored"] else "")
        )
    _check_events(rows, place)
    _check_totals(sums | _charges(rows), place)
    checks, violations = conservation(workload, config, rows)
    if violations:
        first = violations[0]
        raise AssertionError(f"seq {first.seq}: {first.equation}: {first.detail}")
    receipt = build_receipt(workload, config, rows, checks, sums, steps)
    table = request_table(workload, rows, timed=config.timing is not None)
    return Ledger(workload, config, rows, table, receipt)


def request_outcomes(workload: Workload, config: Config, place: str = "workload") -> "pl.DataFrame":
    """Rows of `requests.parquet` alone, for whoever replays one workload many times.

    No event is kept and the oracle is not asked, which takes most of a replay's time: what it says
    of the ledger of the same inputs is what these rows rest on. Requests left at `max_ticks` are
    censored. Raises `InputError` for what cannot be replayed and `Unfinished` where requests are
    left that no row can say anything about.
    """
    check_limits(workload, config, place)
    rows, why, _ = _SCHEDULERS[config.engine.profile](
        workload, config, None, None, again=len(workload) >= _WORTH_COMPILING
    )
    table = request_table(workload, rows, timed=config.timing is not None)
    if left := int(table["status"].null_count()):
        raise Unfinished(f"{place}: {left} of {len(workload)} requests were unfinished at {why}")
    return table


# Rows, where the replay ends if requests are left, and what timed steps came to.
_Scheduled = tuple[Rows, str, TimedSteps | None]


def _lab(
    workload: Workload,
    config: Config,
    progress: Progress | None,
    _notice: Notice | None,
    *,
    again: bool = False,
) -> _Scheduled:
    del again  # there is no machine code of the lab
    rows = to_rows(replay_lab(workload, config))
    if progress is not None:
        progress(len(workload), len(workload))
    return rows, _end_of_ticks(config), None


def _vllm_v1(
    workload: Workload,
    config: Config,
    progress: Progress | None,
    notice: Notice | None,
    *,
    again: bool = False,
) -> _Scheduled:
    """One of many replays (`again`) takes machine code, however short it is."""
    interpreted = False if again else None
    simulation = Simulation(columns_of(workload), config, interpreted=interpreted, notice=notice)
    rows = np.concatenate([*simulation.run(progress), *simulation.censor()])
    why = simulation.why_unfinished()
    if simulation.outcome is Outcome.NO_PROGRESS:
        return rows, f"tick {rows[-1, COLUMN['tick']]}: {why}", None
    why = _end_of_ticks(config) + (f": {why}" if why else "")
    return rows, why, simulation.timed_steps()


def _end_of_ticks(config: Config) -> str:
    return f"tick {config.limits.max_ticks} (limits.max_ticks)"


_Scheduler = Callable[..., _Scheduled]
_SCHEDULERS: Mapping[str, _Scheduler] = {"lab": _lab, "vllm-v1": _vllm_v1}


def _charges(rows: Rows) -> dict[str, int]:
    preempts = rows[rows[:, COLUMN["kind"]] == Kind.PREEMPT]
    return {f"charged {name}": exact_sum(preempts, name) for name in CHARGES}


def _check_events(rows: Rows, place: str) -> None:
    """Refuse rates and sizes whose products no reader could hold; times are checked before."""
    most = rows.max(axis=0)
    for name, column in COLUMN.items():
        if most[column] > MAX_SAFE_INTEGER:
            rule = "must be within 2^53 - 1 in every event"
            raise InputError(place, f"{name} at the rates of [policy]", rule, str(most[column]))


def _check_totals(sums: Mapping[str, int | float | None], place: str) -> None:
    for name, value in sums.items():
        if isinstance(value, int) and value > MAX_SAFE_INTEGER:
            raise InputError(place, f"total {name}", "must be within ±(2^53 - 1)", str(value))
