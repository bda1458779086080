"""What to do about a verdict that is neither a pass nor a fail, in one phrase."""

from typing import TYPE_CHECKING

from analysis.gate.statistics import MOST_PAIRS

if TYPE_CHECKING:
    from analysis.gate.verdict import GateReport

# What to do about a refusal; the first reason that applies comes first.
_AFTER_REFUSAL = (
    ("same_run", "give every run once"),
    (
        "more_pairs_than_planned",
        "judge the planned pairs, or plan more in a new gate and run those",
    ),
    ("no_requests", "record requests on both sides and run again"),
    (
        "imported",
        "measure both sides with preempt collect drive or the recorder: imported runs are for"
        " preempt report and sql",
    ),
    (
        "driver_behind",
        "run again with a client that keeps up: server and driver on different cores, or another"
        " --speed on both sides",
    ),
    ("unknown_field", "record what is unknown: a run with it missing cannot be compared"),
    ("not_comparable", "make the runs equal in everything but the declared change and run again"),
)
# What to do about what stays open, where more pairs would not help.
_AFTER_INCONCLUSIVE = (
    (
        "measure_boundary",
        "drive both sides at the rates that the boundary names (preempt collect drive --speed) and"
        " judge again with boundary.measured",
    ),
    ("model_disagrees", "give ledgers of a model that fits these runs (preempt calibrate)"),
    ("not_applicable", "name a rate that the model reads under boundary.rates"),
    ("order_not_balanced", "make the runs again in ABBA order, the two of a pair back to back"),
    ("saturated", "measure at a load that the baseline keeps up with"),
    ("censored", "observe longer: raise follow_up_us, and drain at least that long"),
    ("too_few_eligible", "run longer, so that every run has enough eligible requests"),
    ("no_data", "record what is missing on both sides and run again"),
    (
        "different_work",
        "make both sides do the same work: a split that is random by request, or equal lengths",
    ),
)
_OPEN = ("interval_spans_limit", "estimators_disagree", "too_few_pairs")


def advice(report: "GateReport") -> str | None:
    """The next step, None where the checks do not say."""
    if report.comparability.refused:
        return next(text for reason, text in _AFTER_REFUSAL if reason in report.reasons)
    if report.verdict != "inconclusive":
        return None
    found = [_more_pairs(report), *_other_remedies(report), _not_decided(report)]
    return "; ".join(text for text in found if text) or None


def _other_remedies(report: "GateReport") -> list[str]:
    return [text for reason, text in _AFTER_INCONCLUSIVE if reason in report.reasons]


def _more_pairs(report: "GateReport") -> str | None:
    """How many more pairs it takes, by the spread of those there are."""
    waiting = [p for p in report.decisive if set(p.reasons) & set(_OPEN)]
    if not waiting:
        return None
    given, least = report.pairs, int(report.design["least_pairs"])
    if given >= least and any(p.pairs_needed is None for p in waiting):
        return (
            f"not even {MOST_PAIRS} {'windows' if report.observational else 'pairs'} would decide"
            " this at the spread seen: the effect stands at its limit"
        )
    needed = max(least, *(p.pairs_needed or least for p in waiting))
    if report.observational:
        return _longer(report, max(1, needed - given))
    if given < least:
        text = f"run {_pairs(least - given)} for statistics to decide anything"
        more = f", {needed - given} to decide this at the spread seen" if needed > least else ""
        return text + more
    needed = max(p.pairs_needed or 0 for p in waiting) - given
    text = f"to decide this, run {_pairs(max(1, needed))} (from the observed spread)"
    if given + needed > report.design["pairs"] * report.design["looks"]:
        text += "; that is beyond this gate's plan, so plan a new gate and run all of its pairs"
    return text


def _longer(report: "GateReport", more: int) -> str:
    """The same of windows: there is one traffic, and it can only be watched longer."""
    seconds = int(report.design["window_us"]) / 1_000_000
    windows = f"{more} more window{'s' * (more != 1)}"
    text = f"leave the split as it is for {windows} of {seconds:g} s, and judge again"
    if report.pairs + more > report.design["pairs"] * report.design["looks"]:
        text += "; that is beyond this gate's plan, so plan a new gate for windows yet to come"
    return text


def _not_decided(report: "GateReport") -> str | None:
    if "statistics_not_available" not in report.reasons:
        return None
    return "decide on the other checks: more runs would not change this verdict in this version"


def _pairs(number: int) -> str:
    return f"{number} more pair{'s' * (number != 1)}"
