"""The conservation oracle: whether a ledger follows from its workload and configuration.

It reads only a ledger's own files and never the scheduler or its state. `verify_ledger` names
each broken equation with the `seq` of its event; an empty list means everything holds.
"""

import json
from collections.abc import Sequence
from typing import Any

from replay.config import Config
from replay.errors import InputError, describe
from replay.events import (
    CODES,
    NEVER_NULL,
    REQUEST_COLUMNS,
    Event,
    Kind,
    json_lines,
    ledger_header,
)
from replay.ledger import UNKNOWN, Ledger
from replay.limitations import LIMITATIONS
from replay.oracle_lab import ALL_EQUATIONS, EQUATIONS, FLAGS, Violation, walk
from replay.receipt import HASHES, build_receipt, receipt_sha256
from replay.requests_table import request_rows
from replay.workload import Workload

NAMED = "every event names a known kind and a request of the workload"
_CODED = (*CODES, *REQUEST_COLUMNS)
PRESENT = "columns that are never null hold a value"
LABEL = "the header names the policy and the rule that were replayed"
ROWS = "requests.parquet says what the events say"
RECEIPT = "the receipt says what the ledger says"
EXPORT = "events.jsonl says what events.parquet says"
VERIFIED_PROFILES = ("lab",)
_ROW_EQUATIONS = {
    "flagged_wait": FLAGS,
    "flagged_repeat": FLAGS,
    "generated_tokens": EQUATIONS["generated_tokens"],
    "recompute_tokens": EQUATIONS["recompute_tokens"],
    "swap_out_bytes": EQUATIONS["swap_out_bytes"],
    "swap_in_bytes": EQUATIONS["swap_in_bytes"],
}


def conservation(
    workload: Workload, config: Config, events: Sequence[Event]
) -> tuple[list[dict[str, Any]], list[Violation]]:
    """Check events alone: one record per equation, as receipts carry them, and the violations."""
    found = walk(workload, config, events)
    broken = {v.equation for v in found}
    return [{"equation": e, "holds": e not in broken} for e in ALL_EQUATIONS], found


def verify_ledger(ledger: Ledger) -> list[Violation]:
    """Check a ledger's events, and what its other files claim of them.

    A profile that this release does not verify is an `InputError`.
    """
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
    found.extend(label)
    found.extend(_rows(ledger))
    found.extend(_receipt(ledger, checks))
    found.extend(_export(ledger))
    return found


def _unreadable(events: Sequence[Event]) -> list[Violation]:
    found = []
    for seq, event in enumerate(events):
        unknown = [name for name in _CODED if getattr(event, name) == UNKNOWN]
        if unknown:
            found.append(Violation(NAMED, seq, f"found an unknown {', '.join(unknown)}"))
        missing = [name for name in NEVER_NULL if getattr(event, name) is None]
        if missing:
            found.append(Violation(PRESENT, seq, f"found null in {', '.join(missing)}"))
    return found


def _header(ledger: Ledger) -> list[Violation]:
    wanted = ledger_header(ledger.config) | {"limitations": list(LIMITATIONS)}
    wrong = [k for k in wanted if ledger.header is not None and ledger.header.get(k) != wanted[k]]
    engine = ledger.receipt.get("engine")
    if engine != {k: wanted[k] for k in ("profile", "rule")}:
        wrong.append("the receipt's engine")
    first = next((k for k, e in enumerate(ledger.events) if e.kind == Kind.PREEMPT), 0)
    return [Violation(LABEL, first, f"{k} does not fit config.toml") for k in wrong]


def _rows(ledger: Ledger) -> list[Violation]:
    wanted = request_rows(ledger.workload, ledger.events)
    if len(wanted) != len(ledger.requests):
        detail = f"expected {len(wanted)} rows, found {len(ledger.requests)}"
        return [Violation(ROWS, None, detail)]
    last = {e.request_id: seq for seq, e in enumerate(ledger.events)}
    flags = {(e.request_id, Kind(e.kind).name.lower()): k for k, e in enumerate(ledger.events)}
    found = []
    for index, (right, row) in enumerate(zip(wanted, ledger.requests, strict=True)):
        for column, value in right.items():
            if row[column] != value:
                equation = _ROW_EQUATIONS.get(column, ROWS)
                seq = flags.get((index, column.replace("flagged", "flag")), last.get(index))
                detail = f"requests.parquet row {index}: {column} must be {describe(value)}"
                found.append(Violation(equation, seq, f"{detail}, found {describe(row[column])}"))
    return found


def _receipt(ledger: Ledger, checks: Sequence[dict[str, Any]]) -> list[Violation]:
    receipt = ledger.receipt
    try:
        receipt_hash = receipt_sha256(receipt)
    except (ValueError, RecursionError):
        return [Violation(RECEIPT, None, "receipt.json: holds a number that JSON has no form for")]
    wanted = build_receipt(ledger.workload, ledger.config, ledger.events, checks)
    wanted["tool"] = receipt.get("tool")  # another release may have written it
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


def _export(ledger: Ledger) -> list[Violation]:
    if ledger.lines is None:
        return []
    wanted = list(json_lines(ledger.events, ledger.config, ledger.request_ids, LIMITATIONS))
    lines = ledger.lines.splitlines(keepends=True)
    if lines == wanted:
        return []
    same = next(
        (k for k, (a, b) in enumerate(zip(wanted, lines, strict=False)) if a != b),
        min(len(wanted), len(lines)),
    )
    return [Violation(EXPORT, max(same - 1, 0), f"events.jsonl:{same + 1} differs")]
