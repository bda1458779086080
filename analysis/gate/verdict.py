"""What a gate comes to: one result per check, one verdict over all of them, and the report's JSON.

Everything here is pure. The verdict of nothing is inconclusive: no data is never a pass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.gate.advice import advice
from analysis.gate.comparability import Comparability
from collectors.columns import STATUSES
from replay.canonical import canonical_json, sha256
from replay.strict import printable

REPORT_SCHEMA = "preemption-gate-report/1"
MOST_IDS = 100

REFUSED, FAIL, INCONCLUSIVE, PASS = "refused", "fail", "inconclusive", "pass"
WORST_FIRST = (REFUSED, FAIL, INCONCLUSIVE, PASS)
EXIT_CODES = {PASS: 0, FAIL: 1, INCONCLUSIVE: 3, REFUSED: 4}


@dataclass(frozen=True, order=True)
class RequestRef:
    """One request of one run."""

    run_id: str
    request_id: str


@dataclass(frozen=True)
class PredicateResult:
    """One check's outcome; (`id`, `evidence`, `statistic`) is unique within a report.

    `baseline` and `candidate` hold the statistic once per run, in pair order, None where unknown.
    `estimate`, `low`, `high` and `limit` are in the statistic's own unit; of a regression they are
    relative changes. `effects` are the pairs' own differences in it; `cap` is where latencies were
    cut off, in microseconds. `p_value` is one-sided, of effects no worse than the limit, and
    `p_holm` adjusts it for the gate's other tests. `pairs_needed` is how many pairs it would take,
    at the spread seen. `why` follows the id in a sentence; `ids` names at most `MOST_IDS` of the
    `ids_total` requests the verdict rests on.
    """

    id: str
    kind: str
    verdict: str
    why: str
    evidence: str = "measured"
    field: str | None = None
    statistic: str | None = None
    slice: str | None = None
    baseline: tuple[float | None, ...] = ()
    candidate: tuple[float | None, ...] = ()
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    method: str | None = None
    effects: tuple[float, ...] = ()
    cap: int | None = None
    p_value: float | None = None
    p_holm: float | None = None
    pairs_needed: int | None = None
    reasons: tuple[str, ...] = ()
    ids: tuple[RequestRef, ...] = ()
    ids_total: int = 0


@dataclass(frozen=True)
class RunSummary:
    """One run of the comparison: its place in it and what became of its requests.

    `configuration_sha256` is the engine's, None where the run does not say; `offered` is None where
    nobody knows it, `eligible` where the end of observation is unknown,
    a status where no row has it and the run's source would not have said so.
    """

    run_id: str
    side: str
    pair: int
    seed: int | None
    order: int | None
    manifest_sha256: str
    configuration_sha256: str | None
    offered: int | None
    eligible: int | None
    ok: int | None
    error: int | None
    aborted: int | None
    censored: int | None
    unsent: int | None
    rejected: int | None

    @property
    def requests(self) -> int:
        """Rows there are, whatever their status."""
        return sum(getattr(self, status) or 0 for status in STATUSES)

    @property
    def failed(self) -> int:
        """Requests that got no complete answer for a reason other than the end of the run."""
        return sum(n or 0 for n in (self.error, self.aborted, self.rejected, self.unsent))


@dataclass(frozen=True)
class SliceSummary:
    """A slice and the eligible requests it has in each run, baselines first, pairs in order."""

    name: str
    where: dict[str, Any]
    eligible: tuple[int | None, ...]


@dataclass(frozen=True)
class GateReport:
    """A gate's answer. `sentence` is for a release owner, `to_json` for machines."""

    gate_name: str
    gate_sha256: str
    design: dict[str, Any]
    comparability: Comparability
    runs: tuple[RunSummary, ...]
    slices: tuple[SliceSummary, ...]
    predicates: tuple[PredicateResult, ...]
    ledgers: tuple[str | None, ...]
    limitations: tuple[str, ...]
    notes: tuple[str, ...] = ()
    windows: dict[str, Any] | None = None
    boundary: dict[str, Any] | None = None
    rollback: dict[str, Any] | None = None
    exit_map: tuple[tuple[str, int], ...] = ()

    @property
    def verdict(self) -> str:
        """Refused, else the worst of the checks."""
        if self.comparability.refused:
            return REFUSED
        return overall(p.verdict for p in self.predicates)

    @property
    def observational(self) -> bool:
        """Whether it rests on live traffic that nobody could offer twice."""
        return bool(self.design.get("kind") == "windows")

    @property
    def stated(self) -> str:
        """The verdict as people have to see it: what is observational says so beside it."""
        return f"{self.verdict} (observational)" if self.observational else self.verdict

    @property
    def pairs(self) -> int:
        """Pairs of runs, or windows, that were judged."""
        return len(self.runs) // 2 if self.windows is None else int(self.windows["judged"])

    @property
    def decisive(self) -> tuple[PredicateResult, ...]:
        """Checks that have the overall verdict."""
        return tuple(p for p in self.predicates if p.verdict == self.verdict)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reason codes behind the verdict, sorted."""
        if self.comparability.refused:
            return self.comparability.reasons
        return tuple(sorted({r for p in self.decisive for r in p.reasons}))

    @property
    def exit_code(self) -> int:
        """What a command ends with, the caller's own mapping included."""
        return dict(self.exit_map).get(self.verdict, EXIT_CODES[self.verdict])

    @property
    def sentence(self) -> str:
        """Verdict and why, in one sentence."""
        if self.comparability.refused:
            return f"{self.stated}: {self.comparability.why}"
        checks = self.decisive
        if not checks:
            return f"{self.stated}: nothing was judged"
        if self.verdict == PASS:
            requests = _count(min(r.requests for r in self.runs), "request")
            hold = f"{self.stated}: {_count(len(checks), 'check')} hold on"
            if self.observational:
                runs = _count(len(self.runs), "run")
                return f"{hold} {_count(self.pairs, 'window')} of {runs}, at least {requests} each"
            return f"{hold} {_count(self.pairs, 'pair')} of runs, at least {requests} each"
        more = f" (and {_count(len(checks) - 1, 'more check')})" if len(checks) > 1 else ""
        return f"{self.stated}: {printable(checks[0].id)} {checks[0].why}{more}"

    @property
    def recommendation(self) -> str | None:
        """What to do next, None where the checks do not say."""
        return advice(self)


def overall(verdicts: Iterable[str]) -> str:
    """Worst of several verdicts; inconclusive for none at all."""
    found = set(verdicts) or {INCONCLUSIVE}
    return next(v for v in WORST_FIRST if v in found)


def report_json(report: GateReport) -> dict[str, Any]:
    """`preemption-gate-report/1`: JSON values without a clock, hashed by `report_sha256`."""
    body: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "gate": {"name": report.gate_name, "sha256": report.gate_sha256},
        "verdict": report.verdict,
        "observational": report.observational,
        "sentence": report.sentence,
        "reasons": list(report.reasons),
        "recommendation": report.recommendation,
        "design": report.design,
        "windows": report.windows,
        "comparability": report.comparability.to_json(),
        "runs": [asdict(r) for r in report.runs],
        "slices": [asdict(s) for s in report.slices],
        "predicates": [asdict(p) for p in report.predicates],
        "boundary": report.boundary,
        "rollback": report.rollback,
        "modelled": {"receipt_sha256": list(report.ledgers)},
        "notes": list(report.notes),
        "limitations": list(report.limitations),
        "exit_code": report.exit_code,
        "exit_map": dict(report.exit_map),
    }
    plain = {key: _plain(value) for key, value in body.items()}
    return plain | {"report_sha256": sha256(canonical_json(plain))}


def _plain(value: Any) -> Any:
    """Tuples as lists, so that a report is the same value before and after a round trip."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
