"""Kept results of vLLM's own class: what a checkout without vLLM is checked against."""

import gzip
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from conformance.cases import Case
from conformance.compare import Result, compare
from conformance.exercised import Coverage, cells, exercised
from replay.workload import ENGINE_ARRIVAL

FOLDER = Path(__file__).parent.parent / "fixtures" / "conformance"
CASES, SEED = 400, 2026  # to choose from
LEAST = 400  # preemptions per feature and pair
SIZE = 40_000  # characters of a case that is kept for its features
OVERTAKEN = 8  # cases in which the engine's arrival times decide
_PASSING = ("seconds", "cpu_seconds", "states")


def path_of(release: str) -> Path:
    """File of one release."""
    return FOLDER / f"{release}.jsonl.gz"


def read_expected(release: str) -> list[tuple[Case, Result]]:
    """Cases with vLLM's results."""
    with gzip.open(path_of(release), "rt", encoding="utf-8") as lines:
        return [(pair["case"], pair["result"]) for pair in map(json.loads, lines)]


def write_expected(release: str, pairs: Iterable[tuple[Case, Result]]) -> int:
    """Write the file, the same bytes for the same pairs; its size."""
    text = "".join(
        json.dumps({"case": case, "result": lasting(result)}, separators=(",", ":")) + "\n"
        for case, result in pairs
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    return path_of(release).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def lasting(result: Result) -> Result:
    """A result without what differs between two runs of the same case."""
    return {key: value for key, value in result.items() if key not in _PASSING}


def choose(
    pairs: Iterable[tuple[Case, Result]], features: tuple[str, ...]
) -> list[tuple[Case, Result]]:
    """The first small cases that give every feature and pair enough preemptions.

    Cases in which a victim had been passed over are rare, and all kept.
    """
    coverage, chosen = Coverage(features), []
    for case, result in pairs:
        mine = set(cells(exercised(case, result))) & set(coverage.short_of(LEAST))
        wanted = result["preemptions"] and (mine or result["seen"]["passed_over"])
        if wanted and _is_small(case, result):
            coverage.add(case, result)
            chosen.append((case, result))
    return chosen


def choose_overtaken(pairs: Iterable[tuple[Case, Result]]) -> list[tuple[Case, Result]]:
    """The first small cases that go otherwise by the workload's order than vLLM's class went."""
    decided = (
        (case, result)
        for case, result in pairs
        if _is_small(case, result) and compare(in_workload_order(case), result) is not None
    )
    return list(islice(decided, OVERTAKEN))


def in_workload_order(case: Case) -> Case:
    """The case without its engine's arrival times."""
    rows = [{k: v for k, v in row.items() if k != ENGINE_ARRIVAL} for row in case["requests"]]
    return case | {"requests": rows}


def _is_small(case: Case, result: Result) -> bool:
    return len(json.dumps(case)) + len(json.dumps(result)) <= SIZE
