"""Modelled ledgers as evidence: whose requests they model, and what the oracle says of them.

They stand beside the measured evidence and never decide a measured predicate.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Evidence
from analysis.gate.evidence import rows, run_ids
from analysis.gate.predicates.erased_progress import LedgerCheck
from replay.errors import InputError

if TYPE_CHECKING:
    import duckdb

    from replay.ledger import Ledger


def check_ledgers(
    db: "duckdb.DuckDBPyConnection",
    ledgers: Sequence["Ledger"],
    runs: Sequence[GateRun],
    evidence: Evidence,
) -> tuple[LedgerCheck, ...]:
    """What the oracle says about each ledger, sorted so that the order of options does not show.

    A gate that says `modelled = "off"` takes none.
    """
    if ledgers and evidence.modelled == "off":
        raise InputError("--ledger", "", 'must not be given where evidence.modelled is "off"')
    found = [_check(db, ledger, runs) for ledger in ledgers]
    return tuple(sorted(found, key=lambda c: (c.receipt_sha256 or "", c.source, c.violations)))


def _check(
    db: "duckdb.DuckDBPyConnection", ledger: "Ledger", runs: Sequence[GateRun]
) -> LedgerCheck:
    from replay.oracle.verify import verify_ledger

    engine, requests = ledger.config.engine, ledger.workload.requests
    covered = rows(
        db,
        "ledger_requests",
        run_ids=run_ids(runs),
        request_ids=[r.request_id for r in requests],
        prompt_tokens=[r.prompt_tokens for r in requests],
    )
    return LedgerCheck(
        source=f"{engine.profile} {engine.rule}",
        receipt_sha256=_identity(ledger),
        requests=len(requests),
        of_requests=max((row["requests"] for row in covered), default=None),
        violations=tuple(
            f"{v.equation} (seq {v.seq})" if v.seq is not None else v.equation
            for v in verify_ledger(ledger)
        ),
    )


def _identity(ledger: "Ledger") -> str | None:
    """Hash of the receipt as it is, not as it claims; None where it has no canonical form."""
    from replay.receipt import receipt_sha256

    try:
        return receipt_sha256(ledger.receipt)
    except ValueError:
        return None
