"""Every reason a verdict can have: one code for machines, one phrase for people.

Beside the planned list, `statistics_not_available` is for what this version cannot decide, which is
no interval that was looked at, and `sources_disagree` for a table whose rows and events contradict
each other.
"""

INCONCLUSIVE = {
    "interval_spans_limit": "the interval lies on both sides of the limit",
    "too_few_pairs": "too few pairs of runs, or windows, for a statistical verdict",
    "too_few_eligible": "too few requests to show that the limit is kept",
    "no_data": "what the predicate needs was not recorded",
    "censored": "too many requests were cut off by the end of observation",
    "saturated": "the baseline's queue grew throughout the run",
    "different_work": "the two sides did not do the same work",
    "estimators_disagree": "two ways to estimate the effect lead to different verdicts",
    "measure_boundary": "a small change of load moves the verdict: measure there",
    "model_disagrees": "the model is not on the measured side of a limit",
    "not_applicable": "the model reads none of the rates that were to be changed",
    "order_not_balanced": "the runs' order favours one side",
    "modelled_only": "only modelled evidence is there, and it may not decide this",
    "statistics_not_available": "this version does not decide this check",
    "sources_disagree": "two tables of a run contradict each other",
    "unfinished_at_limit": "a request was still running with every allowed preemption used up",
}
FAIL = {
    "progress_erased": "generated tokens were lost",
    "preempted_too_often": "a request was preempted more often than allowed",
    "limit_exceeded": "the whole interval of a statistic lies at or beyond its limit",
    "too_many_failed": "too many requests failed",
    "too_many_censored": "too many requests were cut off unfinished",
    "oracle_violated": "a ledger breaks its conservation equations",
    "rollback_undefined": "the way back is not laid down for everything that is promised",
}
REFUSED = {
    "not_comparable": "the runs differ in more than the declared change",
    "unknown_field": "a field that has to be equal is unknown",
    "same_run": "a run was given more than once",
    "no_requests": "nobody recorded requests in a run: metrics alone name none",
    "imported": "a run is from a file of another tool that does not say what it measured",
    "driver_behind": "a run's load driver fell behind its schedule",
    "more_pairs_than_planned": "more pairs were given than the gate planned",
}
REASONS = {**INCONCLUSIVE, **FAIL, **REFUSED}
