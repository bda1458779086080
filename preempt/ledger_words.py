"""What a ledger says in the project's own words, for the privacy check (SPEC §7)."""

import re
from dataclasses import fields
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collectors.sanitize.words import Vocabulary

_RULE = re.compile(r"lab-1|vllm-[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}")
_WHAT_IF = re.compile(
    r"What-if: recovery (?:swap|adaptive); no current vLLM release swaps at preemption\."
    r"|What-if: victim rule [a-z-]{1,40} instead of the engine's own\."
    r"|Rule vllm-[0-9.]{1,20} was not checked; it is assumed to decide as vllm-[0-9.]{1,20}\."
)
_BLOCK_MODELS = (
    "ceil(context_tokens / block_size)",
    "ceil(computed_tokens / block_size), shared blocks once",
)
_RECEIPT = (
    *("tool", "version", "numbers", "engine", "profile", "rule", "policy", "recovery", "victim"),
    *("victim_rule", "tie_rule", "blocks", "model", "block_size_tokens", "rates", "limits"),
    *("totals", "censored", "charged_tokens", "completions", "executed_tokens", "freed_blocks"),
    *("generated_tokens", "preemptions", "pressure_events", "queue_ticks", "recompute_tax_frac"),
    *("replayed_tokens", "requests", "swap_in_bytes", "swap_out_bytes", "conservation"),
    *("equation", "holds", "checked", "fairness", "flagged_wait", "flagged_repeat"),
    *("limitations", "what_ifs", "timing", "columns", "calibration"),
)


def ledger_words() -> "Vocabulary":
    """Vocabulary of a ledger's directory."""
    from analysis.comparable import DURATION_FIELDS
    from collectors.sanitize.words import Vocabulary, among, is_pseudonymous, matching
    from replay import config, events, receipt, requests_table, timed_steps, timing
    from replay.limitations import LIMITATIONS
    from replay.oracle.names import TIMED_EQUATIONS
    from replay.oracle.verify import EQUATIONS
    from replay.victims import VICTIMS

    tables = (
        *(config.Engine, config.Policy, config.Fairness, config.Limits),
        *(timing.Timing, timing.Calibration, timed_steps.TimedSteps, timed_steps.Greatest),
    )
    kinds = [kind.name.lower() for kind in events.Kind]
    recoveries = (among(*config.RECOVERIES),)
    told = product(EQUATIONS, VICTIMS, ("fcfs", "priority"))
    checked = (*EQUATIONS.values(), TIMED_EQUATIONS)
    equations = [one for profile in checked for one in profile.all]
    hashes = (matching(re.compile(r"[0-9a-f]{64}")),)
    names = {
        *events.COLUMNS,
        *requests_table.COLUMNS,
        *requests_table.TIMED_COLUMNS,
        *timing.QUANTILES,
        *DURATION_FIELDS,
        *_RECEIPT,
        *receipt.HASHES,
        *(field.name for table in tables for field in fields(table)),
    }
    return Vocabulary(
        frozenset(names),
        {
            "kind": (among(*kinds),),
            "status": (among(*requests_table.STATUSES),),
            "source": (among(*timing.SOURCES),),
            "requester_id": (is_pseudonymous,),
            "recovery": recoveries,
            "recovery_reason": (among(*(one.name.lower() for one in events.Reason)),),
            "profile": (among(*EQUATIONS),),
            **dict.fromkeys(("rule", "version"), (matching(_RULE),)),
            "victim": (among(*VICTIMS),),
            "victim_rule": (among(*(receipt.victim_rule(*one) for one in told)),),
            "tie_rule": (among(receipt.TIE_RULE),),
            "model": (among(*_BLOCK_MODELS),),
            "equation": (among(*equations),),
            "checked": (among("complete", "partial"),),
            "limitations": (among(*LIMITATIONS),),
            "what_ifs": (matching(_WHAT_IF),),
            "columns": (among(*events.COLUMNS),),
            "numbers": (among("modelled"),),
            "name": (among("preemption-ledger"),),
            "schema": (among(events.SCHEMA, receipt.SCHEMA),),
            **dict.fromkeys(receipt.HASHES, hashes),
        },
    )
