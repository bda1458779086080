"""The rollback rules of a gate on the newest window of a live run: a trigger, not a verdict.

One window is no statistic over pairs. A rule that holds in it is a reason to go back and look, and
one that does not hold is no pass.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun, compare
from analysis.gate.contract import Gate, Rollback
from analysis.gate.evidence import loaded_runs
from analysis.gate.pairing import check_counts, place_runs, refuse_placement
from analysis.gate.validity import Objection
from analysis.gate.watch_answers import HOLDS, UNKNOWN, Answer
from analysis.gate.watch_rules import answers
from analysis.gate.watch_window import Window, newest
from replay.errors import InputError
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

SCHEMA = "preemption-gate-watch/1"
TRIGGER = "a trigger, not a verdict: one window, no statistics over pairs"
_NOTHING = Objection("no_requests", "no request of the candidate is recorded")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Watched:
    """What the rules came to. `nothing`: why no rule could be looked at, else None."""

    gate_name: str
    rollback: Rollback
    to_sha256: str | None
    window: Window | None
    nothing: Objection | None
    answers: tuple[Answer, ...]
    notes: tuple[str, ...]

    @property
    def holding(self) -> tuple[Answer, ...]:
        """Rules that hold."""
        return tuple(a for a in self.answers if a.state == HOLDS)

    @property
    def action(self) -> str | None:
        """What the first rule that holds asks for; None where none does."""
        return self.holding[0].action if self.holding else None

    @property
    def exit_code(self) -> int:
        """1 a rule holds, 0 none does, 3 nobody can tell."""
        if self.holding:
            return 1
        unknown = self.nothing is not None or any(a.state == UNKNOWN for a in self.answers)
        return 3 if unknown or not self.answers else 0

    @property
    def sentence(self) -> str:
        """What to do, and why, in one line."""
        if self.holding:
            first, more = self.holding[0], len(self.holding) - 1
            known = f" (configuration {self.to_sha256})" if self.to_sha256 else ""
            others = f" (and {more} more)" if more else ""
            why = f"{printable(first.predicate)} holds: {first.why}{others}"
            return f"{first.action} to {self.rollback.to}{known}: {why}"
        if self.nothing is not None:
            return f"{UNKNOWN}: {self.nothing.why}"
        unknown = [a for a in self.answers if a.state == UNKNOWN]
        if unknown:
            first, more = unknown[0], len(unknown) - 1
            others = f" (and {more} more)" if more else ""
            return f"{UNKNOWN}: {printable(first.predicate)}: {first.why}{others}"
        return f"no rule holds in this window ({len(self.answers)} looked at)"


def watch(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    baseline_ids: Sequence[str],
    candidate_ids: Sequence[str],
    now_us: int,
    most_age_us: int | None = None,
) -> Watched:
    """The rules on the newest whole window; `now_us` is microseconds since 1970.

    The newest record may be `most_age_us` old, by default a window. `InputError` where the gate has
    no rules, a run is not there, or the candidate's start is unknown.
    """
    rollback = gate.rollback
    if rollback is None:
        raise InputError(f"gate {printable(gate.name)}", "rollback", "is required to watch a run")
    runs = _runs(db, gate, baseline_ids, candidate_ids)
    age = rollback.window_us if most_age_us is None else most_age_us
    window = newest(db, runs, gate.design, rollback.window_us, now_us, age)
    nothing = _NOTHING if window is None else window.nothing
    found: list[Answer] = []
    notes: list[str] = []
    if window is not None and nothing is None:
        compared = compare(runs, gate.change_fields, request_differences=None)
        incomparable = None
        if compared.refused:
            reason = compared.reasons[0]
            incomparable = Objection(reason, f"the sides are not compared: {compared.why}")
        found = answers(db, gate, window, runs, incomparable)
        notes = _notes(window)
    return Watched(
        gate_name=gate.name,
        rollback=rollback,
        to_sha256=_configuration(rollback, runs),
        window=window,
        nothing=nothing,
        answers=tuple(found),
        notes=tuple(notes),
    )


def watched_json(found: Watched) -> dict[str, Any]:
    """`preemption-gate-watch/1`: JSON values; moments are UTC, absent is null."""
    window = found.window
    return {
        "schema": SCHEMA,
        "gate": found.gate_name,
        "trigger": TRIGGER,
        "exit_code": found.exit_code,
        "action": found.action,
        "to": {"name": found.rollback.to, "configuration_sha256": found.to_sha256},
        "sentence": found.sentence,
        "reason": None if found.nothing is None else found.nothing.reason,
        "window": None
        if window is None
        else {
            "from": moment(window.from_us),
            "until": moment(window.until_us),
            "window_us": found.rollback.window_us,
            "age_us": window.age_us,
            "baseline": "whole run" if window.whole_baseline else "same window",
            "unfinished": {
                "baseline": window.baseline.open_requests,
                "candidate": window.candidate.open_requests,
            },
        },
        "rules": [asdict(a) for a in found.answers],
        "notes": list(found.notes),
    }


def moment(unix_us: int) -> str:
    """A moment as people read it, in UTC."""
    return (_EPOCH + timedelta(microseconds=unix_us)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _runs(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    baseline_ids: Sequence[str],
    candidate_ids: Sequence[str],
) -> tuple[GateRun, ...]:
    design = replace(gate.design, kind="windows")  # live runs of each side, and no pairs
    check_counts(baseline_ids, candidate_ids, design)
    loaded = loaded_runs(db, [*baseline_ids, *candidate_ids])
    if (refusal := refuse_placement(design, baseline_ids, candidate_ids)) is not None:
        raise InputError("--candidate", "", f"must be runs of their own ({refusal.why})")
    return place_runs(loaded, baseline_ids, candidate_ids, design)


def _configuration(rollback: Rollback, runs: Sequence[GateRun]) -> str | None:
    if rollback.to != "baseline":
        return rollback.to
    found = {r.value("configuration_sha256") for r in runs if r.side == "baseline"}
    return found.pop() if len(found) == 1 else None


def _notes(window: Window) -> list[str]:
    notes = []
    if window.whole_baseline:
        notes.append("the baseline had ended before this window: its whole run is compared with")
    notes += [
        f"{unit.open_requests} requests of {unit.run_id} have not ended: they count as taking the"
        " whole follow-up"
        for unit in (window.baseline, window.candidate)
        if unit.open_requests
    ]
    return notes
