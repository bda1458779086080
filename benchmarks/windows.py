"""How often the interval over windows is wrong, on simulated windows that are correlated.

Neighbouring windows of live traffic share queues and cache. Here their differences follow an AR(1)
process of a stated lag-1 correlation and a spread of 6 %, the limit is +10 %, and the rule is the
gate's own: means of blocks of neighbouring windows, then the union of Student's t and signed rank.
Beside it stands the same interval with every window taken as independent, which is the mistake
that blocks avoid.

    python -m benchmarks.windows [--evaluations 2000] [--seed 1]
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from math import expm1, log1p, sqrt
from typing import Any

import numpy as np

from analysis.gate.contract import Design
from analysis.gate.predicates.effects import Question, decide

LIMIT, SPREAD = 0.10, 0.06
WINDOWS = (10, 12, 20, 40)
CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.8)


def simulate(
    evaluations: int,
    seed: int,
    windows: int,
    correlation: float,
    effect: float,
    *,
    independent: bool = False,
) -> Counter[str]:
    """Verdicts of a gate of one test; `effect` is a multiple of the limit.

    `independent`: every window by itself, as if it were a pair of driven runs.
    """
    rng = np.random.default_rng([seed, windows, round(correlation * 100), round(effect * 100)])
    design = Design(pairs=windows) if independent else Design(kind="windows", pairs=windows)
    counts: Counter[str] = Counter()
    for _ in range(evaluations):
        values = [effect * log1p(LIMIT) + SPREAD * v for v in _luck(rng, windows, correlation)]
        question = Question("it changed by", values, LIMIT, log1p(LIMIT), expm1)
        counts[decide(question, design, [])["verdict"]] += 1
    return counts


def _luck(rng: np.random.Generator, windows: int, correlation: float) -> list[float]:
    """A stationary AR(1) of spread 1."""
    found = [float(rng.normal())]
    for _ in range(windows - 1):
        found.append(correlation * found[-1] + sqrt(1 - correlation**2) * float(rng.normal()))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options: Any = parser.parse_args(arguments)
    number, seed = options.evaluations, options.seed
    print(
        "| windows | lag-1 correlation | equal sides: pass / fail | at the limit: pass"
        " | the same, windows taken as independent |\n| --- | --- | --- | --- | --- |"
    )
    for windows in WINDOWS:
        for correlation in CORRELATIONS:
            equal = simulate(number, seed, windows, correlation, 0.0)
            wrong = simulate(number, seed, windows, correlation, 1.0)
            naive = simulate(number, seed, windows, correlation, 1.0, independent=True)
            print(
                f"| {windows} | {correlation:g} | {equal['pass'] / number:.3g} /"
                f" {equal['fail'] / number:.3g} | {wrong['pass'] / number:.3g}"
                f" | {naive['pass'] / number:.3g} |"
            )


if __name__ == "__main__":
    main()
