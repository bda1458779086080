"""The conservation oracle: whether a ledger follows from its workload and configuration.

It reads only a ledger's own files and never the scheduler or its state. `verify_ledger` derives
every event again and names each broken equation with the `seq` of its event; an empty list means
everything holds. `conservation` is what a replay does on each ledger it makes: the same in the
lab, and in vllm-v1 the part that whole columns show, which costs next to nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from replay.config import Config
from replay.errors import InputError, describe
from replay.events import (
    CODES,
    COLUMN,
    NEVER_NULL,
    NULL,
    REQUEST_COLUMNS,
    UNKNOWN,
    Kind,
    Rows,
    export_header,
    json_lines,
    to_events,
)
from replay.ledger import AnyLedger, Ledger
from replay.oracle.equations import check_rows, coverage
from replay.oracle.lab import LAB
from replay.oracle.lab import walk as walk_lab
from replay.oracle.names import EQUATIONS as VLLM
from replay.oracle.vllm_v1 import walk as walk_vllm
from replay.oracle.walk import Equations, EventProgress, EventsOf, Violation
from replay.receipt import HASHES, unsealed_receipt
from replay.requests_table import STATUSES, request_table, table_differences
from replay.timed_steps import TimedSteps, may_be_steps
from replay.workload import Workload

if TYPE_CHECKING:
    from replay.workload_columns import AnyWorkload

Violations: TypeAlias = list[Violation]
Walk: TypeAlias = Callable[[], tuple[Violations, TimedSteps | None]]
NAMED = "every event names a known kind and a request of the workload"
_CODED = (*CODES, *REQUEST_COLUMNS)
PRESENT = "columns that are never null hold a value"
LABEL = "the header names the policy and the rule that were replayed"
ROWS = "requests.parquet says what the events say"
RECEIPT = "the receipt says what the ledger says"
EXPORT = "events.jsonl says what events.parquet says"
# What each profile's events have to satisfy.
EQUATIONS: Mapping[str, Equations] = {"lab": LAB, "vllm-v1": VLLM}
VERIFIED_PROFILES = tuple(EQUATIONS)
_FLAG_COLUMNS = {"flagged_wait": Kind.FLAG_WAIT, "flagged_repeat": Kind.FLAG_REPEAT}
_SUMMED = ("generated_tokens", "recompute_tokens", "swap_out_bytes", "swap_in_bytes")


def conservation(
    workload: "AnyWorkload", config: Config, rows: Rows
) -> tuple[list[dict[str, Any]], list[Violation]]:
    """Check events as a replay does: one record per equation, as receipts carry them.

    Gives the violations besides. A vllm-v1 record says whether all that its equation asks for was
    `checked`, `complete`, or only what columns can show of it, `partial`; an equation that has no
    record waits for `verify_ledger`. Every event must name a known kind and request, and a lab
    workload must be one of objects.
    """
    if config.engine.profile == "lab":
        if not isinstance(workload, Workload):
            raise TypeError(type(workload))
        found = walk_lab(workload, config, to_events(rows))
        broken = {v.equation for v in found}
        return [{"equation": e, "holds": e not in broken} for e in LAB.all], found
    found = check_rows(workload, config, rows)
    broken = {v.equation for v in found}
    return [
        {"checked": how, "equation": e, "holds": e not in broken}
        for e, how in coverage(config).items()
    ], found


def verify_ledger(ledger: Ledger, progress: EventProgress | None = None) -> Violations:
    """Check a ledger's events, and what its other files claim of them.

    `progress` hears now and then how many events are derived again, and of how many (the lab's few
    are done at once). A profile that this release does not verify is an `InputError`.
    """

    def walked() -> tuple[list[Violation], TimedSteps | None]:
        return walk_vllm(ledger.workload, ledger.config, EventsOf(ledger.events), progress)

    return _verify(ledger, walked)


def verify_columns(ledger: AnyLedger) -> Violations:
    """What of `verify_ledger` needs no event derived again, for a vllm-v1 ledger.

    Its hashes and files, and the part of its equations that whole columns show (`coverage`). What
    the steps of a timed replay came to is taken as the receipt says it, if it can be.
    """
    return _verify(ledger, None)


def _verify(ledger: AnyLedger, walk: Walk | None) -> list[Violation]:
    label = _header(ledger)
    if (profile := ledger.config.engine.profile) not in VERIFIED_PROFILES:
        if label:
            return label
        rule = f"must be one of {', '.join(VERIFIED_PROFILES)} to be verified by this release"
        raise InputError("config.toml", "engine.profile", rule, profile)
    unreadable = list(_unreadable(ledger.events))
    if unreadable:
        return unreadable
    checks, found = conservation(ledger.workload, ledger.config, ledger.events)
    steps = None
    if profile != "lab" and walk is not None:
        found, steps = walk()
    found.extend(label)
    found.extend(_rows(ledger))
    found.extend(_receipt(ledger, checks, steps, walked=walk is not None))
    found.extend(_export(ledger))
    return found


def _unreadable(rows: Rows) -> list[Violation]:
    found: list[tuple[int, Violation]] = []
    for equation, names, code, what in (
        (NAMED, _CODED, UNKNOWN, "an unknown"),
        (PRESENT, NEVER_NULL, NULL, "null in"),
    ):
        wrong = np.zeros(len(rows), bool)
        for name in names:
            wrong |= rows[:, COLUMN[name]] == code
        for seq in np.flatnonzero(wrong).tolist():
            which = ", ".join(name for name in names if rows[seq, COLUMN[name]] == code)
            found.append((seq, Violation(equation, seq, f"found {what} {which}")))
    return [violation for _, violation in sorted(found, key=itemgetter(0))]


def _header(ledger: AnyLedger) -> list[Violation]:
    wanted = export_header(ledger.config)
    wrong = [k for k in wanted if ledger.header is not None and ledger.header.get(k) != wanted[k]]
    engine = ledger.receipt.get("engine")
    if engine != {k: wanted[k] for k in ("profile", "rule")}:
        wrong.append("the receipt's engine")
    preempts = np.flatnonzero(ledger.events[:, COLUMN["kind"]] == Kind.PREEMPT)
    first = int(preempts[0]) if len(preempts) else 0
    return [Violation(LABEL, first, f"{k} does not fit config.toml") for k in wrong]


def _rows(ledger: AnyLedger) -> list[Violation]:
    timed = ledger.config.timing is not None
    wanted = request_table(ledger.workload, ledger.events, timed=timed)
    if wanted.height != ledger.requests.height:
        detail = f"expected {wanted.height} rows, found {ledger.requests.height}"
        return [Violation(ROWS, None, detail)]
    differences = list(table_differences(wanted, ledger.requests))
    if not differences:
        return []
    who, kinds = (ledger.events[:, COLUMN[name]].tolist() for name in ("request_id", "kind"))
    last = {request: seq for seq, request in enumerate(who)}
    flags = {key: seq for seq, key in enumerate(zip(who, kinds, strict=True))}
    found = []
    equations = EQUATIONS[ledger.config.engine.profile]
    for index, column, value, got in differences:
        flag = _FLAG_COLUMNS.get(column)
        equation = equations.columns[column] if column in _SUMMED else ROWS
        equation = equation if flag is None else equations.surplus[flag]
        seq = flags.get((index, flag), last.get(index))
        detail = f"requests.parquet row {index}: {column} must be {_shown(column, value)}"
        if column == "status":
            detail += f" (one of {', '.join(STATUSES)})"
        found.append(Violation(equation, seq, f"{detail}, found {_shown(column, got)}"))
    return found


def _shown(column: str, value: object) -> str:
    """A status by its name if it is one of ours; of other text only its length."""
    return str(value) if column == "status" and value in STATUSES else describe(value)


def _receipt(
    ledger: AnyLedger, checks: Sequence[dict[str, Any]], steps: TimedSteps | None, *, walked: bool
) -> list[Violation]:
    receipt = ledger.receipt
    try:
        receipt_hash = ledger.receipt_sha256
    except (ValueError, RecursionError):
        return [Violation(RECEIPT, None, "receipt.json: holds a number that JSON has no form for")]
    config = ledger.config
    wanted = unsealed_receipt(
        ledger.workload,
        config,
        ledger.events,
        checks,
        timed_steps=steps,
        known_event_sha256=ledger.event_sha256,
    )
    wanted["tool"] = receipt.get("tool")  # another release may have written it
    if not walked and "timing" in wanted and isinstance(receipt.get("timing"), dict):
        told = receipt["timing"].get("steps")  # no event says it
        wanted["timing"]["steps"] = told if may_be_steps(told, config.calibration) else ...
    wanted["receipt_sha256"] = receipt_hash
    found = []
    for key in sorted(wanted.keys() | receipt.keys()):
        if _text(wanted.get(key, ...)) != _text(receipt.get(key, ...)):
            name = key if key in wanted else "an unknown key"
            equation = f"hash: {key}" if key in HASHES else RECEIPT
            found.append(Violation(equation, None, f"receipt.json: {name} does not fit"))
    return found


def _text(value: object) -> str:
    """JSON text, in which 1, 1.0 and true are not the same."""
    return json.dumps(value, sort_keys=True, default=repr)


def _export(ledger: AnyLedger) -> list[Violation]:
    if ledger.lines is None:
        return []
    wanted = list(json_lines(ledger.events, ledger.config, ledger.request_ids))
    lines = ledger.lines.splitlines(keepends=True)
    if lines == wanted:
        return []
    same = next(
        (k for k, (a, b) in enumerate(zip(wanted, lines, strict=False)) if a != b),
        min(len(wanted), len(lines)),
    )
    return [Violation(EXPORT, max(same - 1, 0), f"events.jsonl:{same + 1} differs")]
