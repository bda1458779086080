"""Few runs against a noise profile: a screen that may fail a change, and never passes one.

Below the pairs that statistics need, the candidate's number is held against the mean of equal runs
by a prediction interval, t(m - 1) * s * sqrt(1/n + 1/m): m runs of the profile, n of the candidate,
one in the common case. Lying beyond the limit as a whole it fails. The baseline's own runs have to
lie within it, or the profile no longer describes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import expm1, sqrt
from typing import Any

from analysis.gate.comparability import Comparability, GateRun, same, show, shown
from analysis.gate.contract import Gate, Predicate
from analysis.gate.noise_profile import Record, question_of, scaled
from analysis.gate.predicates.common import count, percent
from analysis.gate.statistics import rounded
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS, PredicateResult
from replay.errors import InputError
from replay.strict import printable

MISMATCH, MISSING = "noise_profile_mismatch", "no_noise_profile"
NAME = "noise-profile"
_MOST_SHOWN = 5


@dataclass(frozen=True)
class Noise:
    """A profile beside a comparison; `mismatches` name what keeps it from being used at all."""

    record: Record
    mismatches: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """The profile's own hash."""
        return str(self.record["profile_sha256"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the report is told of it."""
        told = f"noise profile {self.sha256} of {count(len(self.record['runs']), 'equal run')}"
        return (f"{told} does not fit: {_some(self.mismatches)}" if self.mismatches else told,)

    def to_json(self) -> dict[str, Any]:
        """What the report says of it."""
        return {
            "profile_sha256": self.sha256,
            "runs": len(self.record["runs"]),
            "matches": not self.mismatches,
            "mismatches": list(self.mismatches),
        }


def beside(profile: Record | None, gate: Gate, compared: Comparability) -> Noise | None:
    """The profile held against a gate and its baseline; `InputError` where the gate takes none."""
    if profile is None:
        return None
    if gate.evidence.noise_profile == "off":
        rule = 'must not be given where evidence.noise_profile is "off", as it is unless set'
        raise InputError("--noise", "", rule)
    today = {name: shown(value) for name, value in compared.equal}
    today |= {change.field: shown(change.baseline) for change in compared.changed}
    found = [
        f"{field['field']} is {show(field['value'])} in the profile and"
        f" {show(today.get(field['field']))} in the baseline"
        for field in profile["equal"]
        if not same(field["value"], today.get(field["field"]))
    ]
    for name in ("warmup_us", "follow_up_us"):
        own, theirs = getattr(gate.design, name), profile["design"][name]
        if own != theirs:
            found.append(f"{name} is {theirs} in the profile and {own} in the gate")
    return Noise(profile, tuple(printable(text, 400) for text in found))


def screened(
    found: Sequence[PredicateResult],
    gate: Gate,
    runs: Sequence[GateRun],
    noise: Noise | None,
    *,
    saturated: bool,
) -> list[PredicateResult]:
    """Results in which too few pairs were all that kept a test open, screened where possible."""
    if noise is None:
        return list(found)
    by_id = {p.id: p for p in gate.predicates}
    results = []
    for result in found:
        predicate = by_id[result.id]
        limit = dict(predicate.tests).get(result.statistic or "")
        if limit is None or result.reasons != ("too_few_pairs",):
            results.append(result)
            continue
        why = "the baseline's queue grew throughout its runs" if saturated else None
        why = why or _unfit(noise, gate, predicate, result, runs)
        if why is None:
            entry = _entry(noise.record, gate, predicate, result)
            results.append(_screen(result, predicate, gate.design.tail, entry or {}))
        else:
            text = f"{result.why}; the noise profile does not screen it: {why}"
            results.append(replace(result, why=text, reasons=(*result.reasons, MISMATCH)))
    return results


def required(gate: Gate, noise: Noise | None) -> PredicateResult | None:
    """The check that a required profile is there and fits; None where none is required."""
    if gate.evidence.noise_profile != "required":
        return None
    missing = [] if noise is None else _missing(noise.record, gate)
    if noise is None:
        verdict, reason = INCONCLUSIVE, MISSING
        why = "is required and was not given: preempt gate noise makes one, --noise takes it"
    elif noise.mismatches or missing:
        verdict, reason = INCONCLUSIVE, MISMATCH
        why = f"does not fit: {_some([*noise.mismatches, *missing])}"
    else:
        verdict, reason = PASS, ""
        why = f"of {count(len(noise.record['runs']), 'equal run')} fits the gate and its baseline"
    reasons = (reason,) if reason else ()
    return PredicateResult(id=NAME, kind="noise_profile", verdict=verdict, why=why, reasons=reasons)


def _missing(record: Record, gate: Gate) -> list[str]:
    """Tests of the gate that the profile has no spread for, in words."""
    return [
        f"it has no spread of {statistic} for {printable(predicate.id)}"
        for predicate in gate.predicates
        for statistic, _ in predicate.tests
        if not (_find(record, question_of(gate, predicate, statistic)) or {}).get("sd")
    ]


def _entry(
    record: Record, gate: Gate, predicate: Predicate, result: PredicateResult
) -> Mapping[str, Any] | None:
    return _find(record, question_of(gate, predicate, result.statistic or ""))


def _find(record: Record, question: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((e for e in record["entries"] if {k: e[k] for k in question} == question), None)


def _unfit(
    noise: Noise,
    gate: Gate,
    predicate: Predicate,
    result: PredicateResult,
    runs: Sequence[GateRun],
) -> str | None:
    """Why the profile cannot screen this test, None where it can."""
    if noise.mismatches:
        return _some(noise.mismatches)
    workload = noise.record["workload_sha256"]
    other = [r for r in runs if r.workload_sha256 != workload]
    if other:
        return f"{printable(other[0].run_id)} replays another workload than the profile's runs"
    entry = _entry(noise.record, gate, predicate, result)
    if entry is None:
        return "it has no entry for this field, statistic, slice, floor and objectives"
    if entry["reason"] is not None:
        return f"its runs have no number here ({entry['reason']})"
    if not entry["sd"]:
        return "its runs do not differ at all, so that it shows no spread"
    own = [scaled(v, predicate.floor_us) for v in result.baseline if v is not None]
    off = abs(sum(own) / len(own) - entry["mean"])
    if off > _half(entry, len(own), gate.design.tail):
        return "the baseline's own runs lie outside of it"
    return None


def _half(entry: Mapping[str, Any], runs: int, tail: float) -> float:
    """Half of the prediction interval for the mean of so many new runs."""
    from scipy.special import stdtrit

    known = len(entry["values"])
    t = float(stdtrit(known - 1, 1 - tail))
    return t * float(entry["sd"]) * sqrt(1 / runs + 1 / known)


def _screen(
    result: PredicateResult, predicate: Predicate, tail: float, entry: Mapping[str, Any]
) -> PredicateResult:
    values = [scaled(v, predicate.floor_us) for v in result.candidate if v is not None]
    half, mean = _half(entry, len(values), tail), sum(values) / len(values)
    at_least = result.statistic == "good_fraction"
    shift = {"good_fraction": mean, "good_drop": entry["mean"] - mean}.get(
        result.statistic or "", mean - entry["mean"]
    )
    unit = expm1 if predicate.floor_us is not None else float
    low, estimate, high = (rounded(unit(v)) for v in (shift - half, shift, shift + half))
    limit = rounded(result.limit or 0.0)
    fails = high < limit if at_least else low >= limit
    known = count(len(entry["values"]), "equal run")
    form = percent if at_least else _change
    words = (
        f"{form(estimate)} ({form(low)} to {form(high)}, {'at least' if at_least else 'limit'}"
        f" {form(limit)}) against {known}"
    )
    bound = percent(1 - tail)
    return replace(
        result,
        verdict=FAIL if fails else INCONCLUSIVE,
        reasons=("limit_exceeded",) if fails else result.reasons,
        why=f"was screened by the noise profile: found {words}"
        if fails
        else f"{result.why}; the noise profile finds {words} and does not fail it",
        estimate=estimate,
        low=low,
        high=high,
        pairs_needed=None if fails else result.pairs_needed,
        method=f"screened by a noise profile: prediction interval of {known}, t with"
        f" {len(entry['values']) - 1} degrees of freedom, each bound one-sided {bound}",
    )


def _change(share: float) -> str:
    return f"{share * 100:+.3g} %"


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_SHOWN
    return "; ".join(texts[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
