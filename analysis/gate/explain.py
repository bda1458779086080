"""A gate in plain words: what it will judge, how many runs it takes, what they could decide.

For the person who reviews a gate file before anyone spends GPU hours on its runs.
"""

from math import ceil

from analysis.gate.boundary.words import boundary_needs, boundary_words, stays_open
from analysis.gate.contract import Design, Gate, Predicate, Slice
from analysis.gate.power import power
from analysis.gate.predicates.common import count, exact, least_to_show, percent
from analysis.gate.predicates.request_mix import by_chance
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
        lines.append("  - steady (over runs): the baseline's queue does not keep growing")
    if design.windows:
        lines += _mix(design)
    if gate.boundary is not None:
        lines.append(f"  - boundary (modelled replays): {boundary_words(gate)}")
    if gate.rollback is not None:
        lines.append(
            f"  - rollback-defined (deterministic): back to {gate.rollback.to} on"
            f" {count(len(gate.rollback.when), 'rule')}, one for each promise about latencies"
        )
    lines += ["", *_needs(gate), ""]
    unit = "window" if design.windows else "pair"
    independent = ", if neighbouring ones were independent" if design.windows else ""
    if table := power(gate):
        lines += [
            f"What {count(design.pairs, unit)} could decide, by the spread (standard deviation)"
            f" of the {unit}s' differences{independent}; figures are of the estimate:",
            *table,
            "",
        ]
    lines += [*_able(gate), *_hindrances(gate)]
    lines.append(f"sha256 {gate.sha256}")
    return lines


def _how(gate: Gate, predicate: Predicate) -> str:
    """Whether a predicate takes one run, or pairs or windows."""
    if not predicate.statistical:
        return "deterministic"
    return "over windows" if gate.design.windows else "over pairs"


def _mix(design: Design) -> list[str]:
    """What both sides of a split have to have in common."""
    share, distance = design.candidate_fraction or 0.0, design.max_mix_distance or 0.0
    enough = ceil(by_chance(1, 1) ** 2 / distance**2)
    return [
        f"  - request-mix (over windows): the candidate gets {percent(share)} of all requests, as"
        " the split declares; in every window prompt and output lengths of the two sides are at"
        f" most {distance:g} apart (Kolmogorov-Smirnov; {enough} requests a window and side are"
        " seldom further apart by chance)"
    ]


def _able(gate: Gate) -> list[str]:
    """Whether this version can bring the gate to a pass."""
    if stays_open(gate):
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
    lines = (
        _windows(design, looks)
        if design.windows
        else [
            f"Runs: {count(design.pairs, 'pair')} of runs planned"
            f" ({2 * design.pairs} runs{looks}), over"
            f" {count(design.arrival_seeds, 'distinct workload')}; one pair is enough for the"
            f" deterministic checks, statistics need at least {design.least_pairs}."
        ]
    )
    limits = [
        limit
        for p in gate.predicates
        for limit in (p.max_failed_fraction, p.max_censored_fraction)
        if limit is not None
    ]
    if limits:
        least = least_to_show(exact(min(limits)))
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
    return lines + boundary_needs(gate)


def _windows(design: Design, looks: str) -> list[str]:
    """What to collect for windows of live traffic."""
    width_us = design.window_us or 0
    minutes = design.pairs * width_us / 60_000_000
    block = design.block(design.pairs)
    return [
        f"Runs: one or more of each side, collected over the same time behind a random split;"
        f" windows of {width_us / 1_000_000:g} s, {design.pairs} of them{looks}, so {minutes:.3g}"
        f" minutes after the warm-up and {design.follow_up_us / 1_000_000:g} s of follow-up."
        f" Statistics need at least {design.least_pairs}; later windows than planned are not"
        f" looked at. {block} neighbouring windows count as one. Whatever comes out is"
        " observational."
    ]


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
