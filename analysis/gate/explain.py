"""A gate in plain words: what it will judge, how many runs it takes, what they could decide.

For the person who reviews a gate file before anyone spends GPU hours on its runs.
"""

from math import ceil

from analysis.gate.contract import Gate, Predicate, Slice
from analysis.gate.power import power
from analysis.gate.predicates.common import count, exact, percent
from replay.strict import printable

_SCREEN = (
    " With too few pairs it screens latencies and shares: it can fail a change, and never pass one."
)


def explain(gate: Gate) -> list[str]:
    """Paragraphs, one string each; an empty string is a blank line."""
    design = gate.design
    changed = ", ".join(gate.change_fields) or "nothing (an A/A comparison)"
    lines = [
        f"Gate {printable(gate.name)}",
        "",
        f"Changes: {changed}. Everything else must be known and equal on all runs, or the gate"
        " refuses.",
        *(_slice(part) for part in gate.slices),
        "",
        "It passes only if all of these hold:",
    ]
    for predicate in gate.predicates:
        how = _how(gate, predicate)
        lines.append(f"  - {printable(predicate.id)} ({how}): {_WORDS[predicate.kind](predicate)}")
    statistical = any(p.statistical for p in gate.predicates)
    if statistical:
        able = "not decided by this version" if design.kind == "windows" else "over runs"
        lines.append(f"  - steady ({able}): the baseline's queue does not keep growing")
    if gate.boundary is not None:
        rates = ", ".join(gate.boundary.rates)
        lines.append(
            f"  - boundary (not decided by this version): the verdict stays when {rates} change"
        )
    if gate.rollback is not None:
        lines.append(
            f"  - rollback-defined (deterministic): back to {gate.rollback.to} on"
            f" {count(len(gate.rollback.when), 'rule')}, one for each promise about latencies"
        )
    lines += ["", *_needs(gate), ""]
    if table := power(gate):
        lines += [
            f"What {count(design.pairs, 'pair')} could decide, by the spread (standard deviation)"
            " of the pairs' differences; figures are of the estimate:",
            *table,
            "",
        ]
    lines += [*_able(gate), *_hindrances(gate)]
    lines.append(f"sha256 {gate.sha256}")
    return lines


def _how(gate: Gate, predicate: Predicate) -> str:
    """Whether a predicate takes one run or pairs, or is not decided at all."""
    if not predicate.statistical:
        return "deterministic"
    return "not decided by this version" if gate.design.kind == "windows" else "over pairs"


def _able(gate: Gate) -> list[str]:
    """Whether this version can bring the gate to a pass."""
    windows = gate.design.kind == "windows"
    if windows or gate.boundary:
        return ["Today this gate can fail or refuse, but not pass: parts of it stay inconclusive."]
    return ["Today this gate can be decided completely."]


def _hindrances(gate: Gate) -> list[str]:
    """What of the plan itself keeps statistics from deciding."""
    design, lines = gate.design, []
    statistical = any(p.statistical for p in gate.predicates)
    if statistical and design.pairs < design.least_pairs:
        lines.append(
            f"With {count(design.pairs, 'planned pair')} statistics decide nothing: they need"
            f" {design.least_pairs}."
        )
    if any(p.kind == "regression" for p in gate.predicates) and not design.follow_up_us:
        lines.append(
            "With design.follow_up_us at 0 no latency is decided: set it to how long a request is"
            " followed."
        )
    return lines


def _needs(gate: Gate) -> list[str]:
    design = gate.design
    looks = f", {design.looks} looks" if design.looks > 1 else ""
    of_what = "windows" if design.kind == "windows" else "runs"
    lines = [
        f"Runs: {count(design.pairs, 'pair')} of {of_what} planned"
        f" ({2 * design.pairs} runs{looks}), over"
        f" {count(design.arrival_seeds, 'distinct workload')}; one pair is enough for the"
        f" deterministic checks, statistics need at least {design.least_pairs}."
    ]
    limits = [
        limit
        for p in gate.predicates
        for limit in (p.max_failed_fraction, p.max_censored_fraction)
        if limit is not None
    ]
    if limits:
        least = ceil(3 / exact(min(limits)))
        lines.append(
            f"Requests: at least {least} in every candidate run, to show a share of"
            f" {percent(min(limits))}."
        )
    lines.append(
        {
            "required": "Noise profile: required (--noise; preempt gate noise makes one)."
            f"{_SCREEN}",
            "optional": f"Noise profile: may be given (--noise).{_SCREEN}",
            "off": "Noise profile: none is taken.",
        }[gate.evidence.noise_profile]
    )
    lines.append(
        {
            "required": "Ledgers: at least one modelled ledger of these requests (--ledger).",
            "optional": "Ledgers: modelled ledgers may be added (--ledger) and are checked.",
            "off": "Ledgers: none are taken.",
        }[gate.evidence.modelled]
    )
    return lines


def _slice(part: Slice) -> str:
    conditions = []
    for c in part.where:
        if c.any_of is not None:
            conditions.append(f"{c.column} is one of {count(len(c.any_of), 'name')}")
        low = "" if c.min is None else f"{c.min} <= "
        high = "" if c.max is None else f" <= {c.max}"
        if low or high:
            conditions.append(f"{low}{c.column}{high}")
    return f"Slice {printable(part.name)}: requests with {' and '.join(conditions)}."


def _of(predicate: Predicate) -> str:
    return f" of slice {printable(predicate.slice)}" if predicate.slice else ""


def _erased(_: Predicate) -> str:
    return "no generated token is ever lost, on either side."


def _repeated(predicate: Predicate) -> str:
    times = count(predicate.max_preemptions or 0, "time")
    return f"no candidate request is preempted more than {times}."


def _regression(predicate: Predicate) -> str:
    floor = f" (after adding {predicate.floor_us} us to both)" if predicate.floor_us else ""
    return (
        f"{predicate.statistic} of {predicate.field}{_of(predicate)} is at most"
        f" {percent(predicate.max_regression or 0)} worse than the baseline's{floor}."
    )


def _goodput(predicate: Predicate) -> str:
    slo = " and ".join(f"{name} <= {value}" for name, value in predicate.slo or ())
    parts = []
    if predicate.min_fraction is not None:
        parts.append(f"at least {percent(predicate.min_fraction)} of offered requests meet {slo}")
    if predicate.max_drop is not None:
        parts.append(
            f"the share that meets {slo} drops by at most {percent(predicate.max_drop)} of requests"
        )
    return f"{'; '.join(parts)}{_of(predicate)}."


def _failures(predicate: Predicate) -> str:
    parts = [
        f"at most {percent(limit)} of offered requests {what}"
        for limit, what in (
            (predicate.max_failed_fraction, "fail in a candidate run"),
            (predicate.max_censored_fraction, "are cut off unfinished in a candidate run"),
            (predicate.max_increase, "more than on the baseline fail (over pairs)"),
        )
        if limit is not None
    ]
    return f"{'; '.join(parts)}."


_WORDS = {
    "erased_progress": _erased,
    "repeated_preemption": _repeated,
    "regression": _regression,
    "goodput": _goodput,
    "failures": _failures,
}
