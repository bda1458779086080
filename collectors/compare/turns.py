"""Who is driven when, and what of it is done: pairs in ABBA order, each whole or driven again."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay.canonical import canonical_json
from replay.errors import InputError, describe
from replay.strict import check_schema, parse_json, read_text, table
from replay.workload import Workload

SCHEMA = "preemption-compare/1"
SIDES = ("baseline", "candidate")
PLAN = "compare.json"


@dataclass(frozen=True)
class Turn:
    """One drive: its place in the order, its pair and side, and which workload it offers."""

    order: int
    pair: int
    side: str
    workload: int

    @property
    def name(self) -> str:
        """Of its run."""
        return f"pair-{self.pair:02}-{self.side}"


def turns(pairs: int, workloads: int) -> tuple[Turn, ...]:
    """Both sides of every pair one after the other, the one that begins changing from pair to pair.

    What drifts with time falls on both sides alike. Pairs take the workloads in turn.
    """
    return tuple(
        Turn(2 * pair + k, pair, side, pair % workloads)
        for pair in range(pairs)
        for k, side in enumerate(SIDES if pair % 2 == 0 else reversed(SIDES))
    )


def check_workloads(workloads: Sequence[Workload], wanted: int, places: Sequence[Path]) -> None:
    """As many different workloads as a gate plans arrival seeds."""
    if len(workloads) != wanted:
        rule = f"must be {wanted}, as many as the gate's design.arrival_seeds"
        raise InputError("WORKLOAD", "", rule, str(len(workloads)))
    seen: dict[str, Path] = {}
    for place, workload in zip(places, workloads, strict=True):
        other = seen.setdefault(workload.sha256, place)
        if other is not place:
            raise InputError(str(place), "", f"must not be the same requests as {other}")


def check_plan(directory: Path, plan: dict[str, Any]) -> None:
    """Write down what is compared, or hold it to what one that goes on had written down."""
    file = directory / PLAN
    if not file.exists():
        if directory.exists() and any(directory.iterdir()):
            rule = f"must be new, empty, or a comparison that goes on ({PLAN})"
            raise InputError(str(directory), "", rule)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = directory / f".{PLAN}"
        temporary.write_bytes(canonical_json({"schema": SCHEMA, **plan}) + b"\n")
        temporary.replace(file)
        return
    found = table(parse_json(read_text(file), str(file)), str(file), "")
    check_schema(found.get("schema"), SCHEMA, str(file))
    for key, value in plan.items():
        if found.get(key) != value:
            rule = "must be what this comparison was begun with; take another --out for another"
            raise InputError(str(file), key, rule, describe(value))


def driving(directory: Path, turn: Turn) -> Path:
    """Where a turn's run grows; it is renamed to the turn's own when nothing speaks against it."""
    return directory / f".{turn.name}.driving"


def done_turns(directory: Path, planned: Sequence[Turn]) -> set[Turn]:
    """Turns of the pairs that are whole; what there is of any other pair is set aside.

    A pair is one stretch of time: where one of its drives was stopped both are driven again.
    """
    done: set[Turn] = set()
    for pair in {turn.pair for turn in planned}:
        both = [turn for turn in planned if turn.pair == pair]
        if all((directory / turn.name).is_dir() for turn in both):
            done.update(both)
            continue
        for turn in both:
            _set_aside(directory / turn.name, turn)
            _set_aside(driving(directory, turn), turn)
    return done


def _set_aside(run: Path, turn: Turn) -> None:
    """Keep what a stopped drive left, under a name that nothing takes for a run of the pair."""
    if not os.path.lexists(run):
        return
    number = 1
    while os.path.lexists(aside := run.with_name(f".{turn.name}.stopped-{number}")):
        number += 1
    run.rename(aside)
