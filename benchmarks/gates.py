"""How often the gate's interval rule is wrong or undecided, on simulated differences of pairs.

Only the decision is simulated, not an engine: each pair's difference is a true effect plus luck of
a stated spread (standard deviation of ln(candidate / baseline), limit +10 %): normal, heavy-tailed
(Student's t with 3 degrees of freedom), or normal with one pair in ten five spreads worse and the
others that much better that the mean stays. Goals: equal sides FAIL in at most 1 %, with an exact
95 % upper bound of at most 2 %; a true effect at the limit PASSES in at most 5 %, one of 1.5 times
the limit in at most 1 %.

    python -m benchmarks.gates [--evaluations 2000] [--seed 1]
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log1p
from typing import Any

import numpy as np
from scipy.special import betaincinv

from analysis.gate.contract import Design
from analysis.gate.predicates.effects import Question, decide
from analysis.gate.verdict import overall

LIMIT = 0.10
SPREADS = (0.01, 0.03, 0.06, 0.15, 0.30)
EFFECTS = (0.0, 1.0, 1.5, 2.0)  # true change, as a multiple of the limit
SHAPES = ("normal", "t3", "outlier")
VERDICTS = ("pass", "fail", "inconclusive")
_CONFIDENT = 0.95
_RARE = 0.1


@dataclass(frozen=True)
class Outcomes:
    """What became of so many evaluations."""

    counts: Counter[str]

    def share(self, verdict: str) -> float:
        """Part of the evaluations that ended so."""
        return self.counts[verdict] / self.counts.total()

    def least(self, verdict: str) -> float:
        """Exact one-sided 95 % lower bound of that share."""
        seen, number = self.counts[verdict], self.counts.total()
        return float(betaincinv(seen, number - seen + 1, 1 - _CONFIDENT)) if seen else 0.0

    def bound(self, verdict: str) -> float:
        """Exact one-sided 95 % upper bound of that share."""
        seen, number = self.counts[verdict], self.counts.total()
        return 1.0 if seen == number else float(betaincinv(seen + 1, number - seen, _CONFIDENT))


@dataclass(frozen=True, kw_only=True)
class Cell(Outcomes):
    """One setting of the simulation and what became of it."""

    shape: str
    spread: float
    effect: float
    tests: int


def simulate(
    evaluations: int, seed: int, shape: str, spread: float, effect: float, tests: int = 1
) -> Cell:
    """Verdicts of a gate of so many independent tests, six pairs each."""
    key = [seed, SHAPES.index(shape), round(spread * 1e6), round(effect * 1e6), tests]
    rng = np.random.default_rng(key)
    design = Design()
    counts: Counter[str] = Counter()
    for _ in range(evaluations):
        counts[
            overall(_verdict(_luck(rng, shape, design.pairs), spread, effect) for _ in range(tests))
        ] += 1
    return Cell(counts=counts, shape=shape, spread=spread, effect=effect, tests=tests)


def _verdict(luck: Sequence[float], spread: float, effect: float) -> str:
    values = [effect * log1p(LIMIT) + spread * v for v in luck]
    question = Question("it changed by", values, LIMIT, log1p(LIMIT), expm1)
    verdict: str = decide(question, Design(), [])["verdict"]
    return verdict


def _luck(rng: np.random.Generator, shape: str, pairs: int) -> list[float]:
    """Differences around 0, of spread 1 without the outliers."""
    if shape == "t3":
        return (rng.standard_t(3, pairs) / np.sqrt(3)).tolist()
    luck = rng.normal(size=pairs)
    if shape == "outlier":
        luck += 5 * ((rng.random(pairs) < _RARE) - _RARE)
    found: list[float] = luck.tolist()
    return found


def table(cells: Sequence[Cell]) -> list[str]:
    """Lines of Markdown, one row a cell."""
    lines = [
        "| luck | tests | spread of pairs | true effect | pass | fail | inconclusive"
        " | 95 % bound of the wrong one |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell in cells:
        wrong = "fail" if cell.effect == 0 else "pass"
        shares = " | ".join(f"{cell.share(v):.2%}" for v in VERDICTS)
        lines.append(
            f"| {cell.shape} | {cell.tests} | {cell.spread:.0%} | {cell.effect:g} x limit"
            f" | {shares} | {wrong} <= {cell.bound(wrong):.2%} |"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and which goals it misses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options: Any = parser.parse_args(arguments)
    cells = [
        simulate(options.evaluations, options.seed, shape, spread, effect)
        for shape in SHAPES
        for effect in EFFECTS
        for spread in SPREADS
    ]
    cells += [
        simulate(options.evaluations, options.seed, "normal", spread, 0.0, tests=4)
        for spread in SPREADS
    ]
    print("\n".join(table(cells)))
    print()
    print("\n".join(misses(cells)) or "every goal is kept")


def misses(cells: Sequence[Cell]) -> list[str]:
    """The goals that are not kept, in words.

    A share of passes is missed where its exact lower bound is above the goal: a rule of exactly 5 %
    shows more than 5 % in half of all tables.
    """
    found = []
    for cell in cells:
        name = f"{cell.shape}, {cell.tests} test(s), spread {cell.spread:.0%}"
        if cell.effect == 0 and (cell.share("fail") > 0.01 or cell.bound("fail") > 0.02):  # noqa: PLR2004
            found.append(f"missed G1: {name}: equal sides fail in {cell.share('fail'):.2%}")
        most = {1.0: 0.05, 1.5: 0.01}.get(cell.effect)
        if most is not None and cell.least("pass") > most:
            found.append(
                f"missed G2: {name}: {cell.effect:g} x limit passes in {cell.share('pass'):.2%}"
            )
    return found


if __name__ == "__main__":
    main()
