"""Which run stands where: the i-th baseline and the i-th candidate are pair i.

Live runs cut into windows are no pairs: then each side has its runs, in the order given.

What the manifests themselves say about side and pair must not contradict the order given; that
would be a mix-up, so it is bad input (`InputError`) and not a verdict.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from analysis.gate.comparability import Comparability, Difference, GateRun, RunValue
from analysis.gate.contract import Design
from analysis.gate.evidence import Row
from replay.errors import InputError
from replay.strict import printable


def place_runs(
    loaded: Mapping[str, Row],
    baseline: Sequence[str],
    candidate: Sequence[str],
    design: Design,
) -> tuple[GateRun, ...]:
    """Rows of `runs` by run id, in report order: pair by pair, the baseline first."""
    runs = [
        placed(loaded[run_id], side, pair)
        for pair, ids in enumerate(zip_longest(baseline, candidate))
        for side, run_id in zip(("baseline", "candidate"), ids, strict=True)
        if run_id is not None
    ]
    for run in runs:
        stated = run.value("comparison.side")
        if stated not in (None, run.side):
            rule = f"says {stated}, but the run was given as {run.side}"
            raise InputError(printable(run.run_id), "comparison.side", rule)
    if not design.windows:
        _check_pairs(runs)
    return tuple(runs)


def placed(row: Row, side: str, pair: int) -> GateRun:
    """Row of `runs` in a place of a comparison."""
    return GateRun(
        run_id=row["run_id"],
        side=side,
        pair=pair,
        manifest=json.loads(row["manifest"]),
        manifest_sha256=row["manifest_sha256"],
        offered=row["offered_requests"],
        workload_sha256=row["offered_workload_sha256"],
        start_us=row["start_us"],
    )


def abba_order(side: str, pair: int) -> int:
    """Place of a run where pairs follow each other and the side that begins changes."""
    return 2 * pair + ((side == "candidate") != (pair % 2 == 1))


def check_counts(baseline: Sequence[str], candidate: Sequence[str], design: Design) -> None:
    """As many baselines as candidates, at least one; of windows at least one of each."""
    if not baseline or not candidate:
        raise InputError("--baseline", "", "and --candidate need at least one run each")
    if not design.windows and len(baseline) != len(candidate):
        rule = "must be as many as --candidate runs, and at least one"
        found = f"{len(baseline)} baseline and {len(candidate)} candidate runs"
        raise InputError("--baseline", "", rule, found)


def refuse_placement(
    design: Design, baseline: Sequence[str], candidate: Sequence[str]
) -> Comparability | None:
    """Refusal that needs no manifest: a run given twice, or more pairs than planned."""
    differing = []
    places = [(r, "baseline") for r in baseline] + [(r, "candidate") for r in candidate]
    for run_id, times in sorted(Counter(r for r, _ in places).items()):
        if times > 1:
            values = tuple(RunValue(r, side, r) for r, side in places if r == run_id)
            differing.append(Difference("run_id", "same_run", values))
    if not design.windows and len(baseline) > design.most_pairs:
        text = f"{len(baseline)} pairs given, {design.most_pairs} planned"
        differing.append(Difference(text, "beyond_plan"))
    return Comparability(None, (), (), tuple(differing)) if differing else None


def _check_pairs(runs: Sequence[GateRun]) -> None:
    stated: dict[int, int] = {}  # pair a manifest names -> pair it was given in
    for run in runs:
        number = run.value("comparison.pair")
        if number is None:
            continue
        other = next(r for r in runs if r.pair == run.pair and r.side != run.side)
        if other.value("comparison.pair") not in (None, number):
            rule = f"says pair {number}, but its partner says {other.value('comparison.pair')}"
            raise InputError(printable(run.run_id), "comparison.pair", rule)
        if stated.setdefault(number, run.pair) != run.pair:
            rule = f"says pair {number}, and so does a run of another pair"
            raise InputError(printable(run.run_id), "comparison.pair", rule)
