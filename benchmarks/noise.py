"""How often one candidate run fails by a noise profile, on simulated luck.

A simulation of the rule (`analysis.gate.screen`), not of an engine: ten equal runs, one baseline
and one candidate, whose logarithms are normal with one spread.

    python -m benchmarks.noise
"""

import sys
from math import exp, log1p

import numpy as np

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Gate
from analysis.gate.gate_file import parse_gate
from analysis.gate.noise_profile import question_of
from analysis.gate.predicates.effects import too_few_pairs
from analysis.gate.screen import Noise, screened
from analysis.gate.verdict import INCONCLUSIVE, PredicateResult

EVALUATIONS, RUNS, LIMIT = 5_000, 10, 0.1
SPREADS, EFFECTS = (0.01, 0.03, 0.06, 0.15, 0.3), (0.0, 1.0, 1.5, 2.0)
LATENCY = {
    "id": "ttft",
    "kind": "regression",
    "field": "ttft_us",
    "statistic": "p95",
    "max_regression": LIMIT,
}


def main() -> None:
    """Print per cent of fails, a row a spread; no candidate ever passes."""
    raw = {"schema": "preemption-gate/1", "name": "noise", "change": {"fields": []}}
    gate = parse_gate(raw | {"predicate": [LATENCY]}, "benchmark")
    columns = " | ".join(f"{effect:g} x limit" if effect else "none" for effect in EFFECTS)
    sys.stdout.write(f"| spread | {columns} |\n| --- |{' --- |' * len(EFFECTS)}\n")
    for spread in SPREADS:
        fails = " | ".join(f"{100 * _fails(gate, spread, effect):.3g}" for effect in EFFECTS)
        sys.stdout.write(f"| {100 * spread:g} % | {fails} |\n")


def _fails(gate: Gate, spread: float, effect: float) -> float:
    """Share of evaluations that fail at a true effect, in multiples of the limit."""
    rng = np.random.default_rng((int(1000 * spread), int(10 * effect)))
    predicate = gate.predicate("ttft")
    run = GateRun("r", "candidate", 0, {}, "", None, "w")
    found = 0
    for luck in rng.normal(0, spread, (EVALUATIONS, RUNS + 2)):
        *known, base, cand = luck.tolist()
        entry = question_of(gate, predicate, "p95") | {
            "values": known,
            "mean": sum(known) / RUNS,
            "sd": float(np.std(known, ddof=1)),
            "reason": None,
        }
        noise = Noise({"workload_sha256": "w", "entries": [entry]}, ())
        objection = too_few_pairs(1, gate.design)
        result = PredicateResult(
            id="ttft",
            kind="regression",
            verdict=INCONCLUSIVE,
            why="",
            statistic="p95",
            baseline=(exp(base),),
            candidate=(exp(cand + log1p(effect * LIMIT)),),
            limit=LIMIT,
            reasons=() if objection is None else (objection.reason,),
        )
        (screen,) = screened([result], gate, [run], noise, saturated=False)
        found += screen.verdict == "fail"
    return found / EVALUATIONS


if __name__ == "__main__":
    main()
