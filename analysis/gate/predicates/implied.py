"""Checks that follow from a gate as a whole and have no `[[predicate]]` table of their own.

P6 rollback_defined, P7 steady, P8 boundary, the request mix of windows and a required noise
profile. None is decided by this version, so where a gate asks for one it is inconclusive.
"""

from analysis.gate.contract import Gate
from analysis.gate.predicates.not_yet import not_available
from analysis.gate.verdict import PredicateResult


def judge(gate: Gate) -> list[PredicateResult]:
    """Results in a fixed order, each only where the gate asks for it."""
    asked = (
        ("request-mix", "request_mix", "measured", gate.design.kind == "windows"),
        ("noise-profile", "noise_profile", "measured", gate.evidence.noise_profile == "required"),
        ("steady", "steady", "measured", any(p.statistical for p in gate.predicates)),
        ("boundary", "boundary", "modelled", gate.boundary is not None),
        ("rollback-defined", "rollback_defined", "measured", gate.rollback is not None),
    )
    return [not_available(name, kind, evidence) for name, kind, evidence, wanted in asked if wanted]
