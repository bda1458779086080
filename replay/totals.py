"""What a ledger comes to: sums over its events, exact however large (SPEC §7).

Both profiles count *stays* on the running list: what was computed between an admission and the
event that ends it.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from replay.config import Config
from replay.events import COLUMN, NULL, Kind, Recovery, Rows

_OPENS = (Kind.ADMIT, Kind.RESUME)
_Column: TypeAlias = NDArray[np.int64]


def totals(rows: Rows, config: Config) -> dict[str, Any]:
    """Sums over a ledger whose every event names a known kind and request.

    `charged_tokens` is what preempt events charged, `replayed_tokens` what finished replays did;
    `executed_tokens` counts what the ledger shows as computed: in the lab prefilled, replayed and
    generated tokens, in vllm-v1 positions. `recompute_tax_frac` is the part of them that had been
    computed before (None if nothing was executed).
    """
    kinds = _column(rows, "kind")
    last = rows[_last_of_each(rows[:, COLUMN["request_id"]])]
    preempts, recoveries = rows[kinds == Kind.PREEMPT], rows[kinds == Kind.RECOVERED]
    by = recoveries[:, COLUMN["recovery"]]
    generated = exact_sum(last, "generated_tokens")
    if config.engine.profile == "lab":
        executed, recomputed = _lab_work(rows)
        executed += generated
    else:
        executed, recomputed = _engine_work(rows, config.policy.kv_bytes_per_token)
    return {
        "requests": len(last),
        "pressure_events": _pressure_events(preempts),
        "preemptions": len(preempts),
        "freed_blocks": exact_sum(preempts, "freed_blocks"),
        "charged_tokens": exact_sum(preempts, "recompute_tokens"),
        "replayed_tokens": exact_sum(recoveries[by == Recovery.RECOMPUTE], "recompute_tokens"),
        "swap_out_bytes": exact_sum(rows[kinds == Kind.SWAPPED_OUT], "swap_out_bytes"),
        "swap_in_bytes": exact_sum(recoveries[by != Recovery.RECOMPUTE], "swap_in_bytes"),
        "queue_ticks": exact_sum(last, "queue_ticks"),
        "completions": int((kinds == Kind.COMPLETE).sum()),
        "censored": int((kinds == Kind.CENSORED).sum()),
        "generated_tokens": generated,
        "executed_tokens": executed,
        "recompute_tax_frac": recomputed / executed if executed else None,
    }


def exact_sum(rows: Rows, column: str) -> int:
    """Sum of a column without its nulls, right where 64 bits would overflow."""
    return _exact(_or_zero(rows[:, COLUMN[column]]))


def _exact(values: _Column) -> int:
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _or_zero(values: _Column) -> _Column:
    return np.where(values == NULL, 0, values)


def _column(rows: Rows, name: str) -> _Column:
    """One column on its own: reading it in place would touch every row's memory each time."""
    return np.ascontiguousarray(rows[:, COLUMN[name]])


def _last_of_each(requests: _Column) -> _Column:
    last = np.full(int(requests.max(initial=-1)) + 1, -1)
    last[requests] = np.arange(len(requests))
    return last[last >= 0]


def _pressure_events(preempts: Rows) -> int:
    """Shortages of blocks: the tick and the requester name one, whoever made room for it."""
    ticks, requesters = preempts[:, COLUMN["tick"]], preempts[:, COLUMN["requester_id"]]
    order = np.lexsort((requesters, ticks))
    new = (np.diff(ticks[order]) != 0) | (np.diff(requesters[order]) != 0)
    return int(new.sum()) + (len(preempts) > 0)


def _by_request(chosen: NDArray[np.bool_], requests: _Column) -> _Column:
    """Places of the chosen events, each request's together and in order."""
    places = np.flatnonzero(chosen)
    return places[np.argsort(requests[places], kind="stable")]


def _stays(kinds: _Column, requests: _Column) -> tuple[_Column, _Column]:
    """Places of admissions, and of the events right after them in the same request."""
    opens = _is_one_of(kinds, _OPENS)
    at = np.flatnonzero(opens[:-1] & ~opens[1:] & (requests[1:] == requests[:-1]))
    return at, at + 1


def _is_one_of(kinds: _Column, wanted: tuple[Kind, ...]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.logical_or.reduce([kinds == kind for kind in wanted])
    return found


def _lab_work(rows: Rows) -> tuple[int, int]:
    """Tokens prefilled or replayed, and those replayed: work left at admission and after it."""
    requests, kinds, work = (_column(rows, c) for c in ("request_id", "kind", "work_left_tokens"))
    restores = _is_one_of(kinds, _OPENS) & (work == NULL)
    counts = _is_one_of(kinds, (*_OPENS, Kind.PREEMPT, Kind.RECOVERED, Kind.FIRST_TOKEN))
    order = _by_request(counts & ~restores, requests)
    start, end = _stays(kinds[order], requests[order])
    left = _or_zero(work[order])
    done = left[start] - left[end]
    return _exact(done), _exact(done[kinds[order][start] == Kind.RESUME])


def _engine_work(rows: Rows, kv_bytes_per_token: int) -> tuple[int, int]:
    """Positions computed, and those below the furthest that the same request had lost before.

    A stay starts at what its admission found computed. One that is censored counts what its
    delivered tokens prove. A completion after the preemption (of a token in flight) ends none.
    """
    requests, kinds = _column(rows, "request_id"), _column(rows, "kind")
    stays = _is_one_of(kinds, (*_OPENS, Kind.PREEMPT, Kind.COMPLETE, Kind.CENSORED))
    order = _by_request(stays, requests)
    requests, kinds = requests[order], kinds[order]
    start, end = _stays(kinds, requests)
    first, last = order[start], order[end]
    context = rows[first, COLUMN["context_tokens"]]
    left_bytes = rows[first, COLUMN["work_left_bytes"]]
    cached = context - _or_zero(rows[first, COLUMN["work_left_tokens"]])
    found = np.where(left_bytes == NULL, cached, left_bytes // kv_bytes_per_token)
    lost = _or_zero(rows[order, COLUMN["recompute_tokens"]])
    kept = _or_zero(rows[last, COLUMN["swap_in_bytes"]]) // kv_bytes_per_token
    swapped = rows[last, COLUMN["recovery"]] == Recovery.SWAP
    reached = rows[last, COLUMN["context_tokens"]]
    proved = np.where(reached > context, reached - 1, found)
    preempted = kinds[end] == Kind.PREEMPT
    computed = np.where(preempted, np.where(swapped, kept, lost[end]), proved)
    furthest = _running_max(lost, requests)[start]
    done = np.maximum(computed - found, 0)
    again = np.maximum(np.minimum(computed, furthest) - found, 0)
    return _exact(done), _exact(again)


def _running_max(values: _Column, groups: _Column) -> _Column:
    """Greatest value so far within runs of equal groups, by doubling the reach."""
    greatest, reach = values.copy(), 1
    while (same := groups[reach:] == groups[:-reach]).any():
        before = np.where(same, greatest[:-reach], greatest[reach:])
        greatest[reach:] = np.maximum(greatest[reach:], before)
        reach *= 2
    return greatest
