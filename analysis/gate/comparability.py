"""May these runs be compared at all? The precondition of every predicate; there is no force flag.

Everything outside the declared change has to be known and equal on all runs, and both runs of a
pair have to have been offered the same requests. What differs is named completely, because the
next thing a reader does is to go and make it equal. Unknown is unequal.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.comparable import METRICS_ONLY, WITHOUT_DRIVER
from analysis.gate.contract import CHANGEABLE, HARD_FIELDS
from analysis.latencies import FORMAT, latencies
from replay.canonical import canonical_json, sha256
from replay.strict import printable

FIELDS = (*HARD_FIELDS, *CHANGEABLE)
WORKLOAD = "workload.workload_sha256"
REQUESTS = "measured_requests.request_id"
BEHIND = "driver.behind"
# What is wrong with a field, by a difference's `why`; before the field's name.
LABELS = {
    "differs": "differs",
    "unknown": "unknown",
    "differs_within_side": "differs within a side",
    "same_run": "given more than once",
    "beyond_plan": "beyond the plan",
    "no_requests": "without requests",
    "imported": "imported, and so of an unknown engine",
    "driver_behind": "load driver behind its schedule",
}
_MOST_SHOWN = 3
_IMPORTED = "a file of another tool does not say which engine, device and options it measured"
_PATH = re.compile(r"[/\\~.]|[A-Za-z]:")


@dataclass(frozen=True)
class GateRun:
    """A run in its place: side, pair (from 0), and what it was and was offered.

    `offered`, `workload_sha256` and `start_us` (since 1970) are None where nobody knows. `parts`
    are what of which run is looked at, as (run_id, first, last arrival in us since its start);
    empty stands for the whole run. A window of several runs is one of these, too. Of a live run
    `open_requests` arrived in it and have not ended.
    """

    run_id: str
    side: str
    pair: int
    manifest: Mapping[str, Any]
    manifest_sha256: str
    offered: int | None
    workload_sha256: str | None
    start_us: int | None = None
    parts: tuple[tuple[str, int, int], ...] = ()
    open_requests: int = 0

    def value(self, dotted: str) -> Any:
        """Value of a manifest field, None where unknown; `rule` and `latencies` are derived."""
        from collectors.run import value_at

        if dotted == "latencies":
            return latencies(self.value)
        if dotted == "rule":
            name, version = self.value("engine.name"), self.value("engine.version")
            return None if name is None or version is None else f"{name}-{version}"
        return value_at(self.manifest, dotted)


@dataclass(frozen=True)
class RunValue:
    """What a field is in one run."""

    run_id: str
    side: str
    value: Any


@dataclass(frozen=True)
class Difference:
    """A field that keeps the runs from being compared, with every run's value.

    `why` is differs, unknown, differs_within_side, same_run, beyond_plan, no_requests, imported
    or driver_behind.
    """

    field: str
    why: str
    values: tuple[RunValue, ...] = ()
    pair: int | None = None

    @property
    def text(self) -> str:
        """The field and the values that clash, for one line."""
        if self.why == "same_run":
            return printable(self.values[0].run_id)
        if self.why in ("no_requests", "imported", "driver_behind"):
            return ", ".join(printable(v.run_id) for v in self.values)
        groups: dict[str, list[str]] = {}
        for v in self.values:
            groups.setdefault(show(v.value), []).append(printable(v.run_id))
        shown = "; ".join(f"{value} in {_some(runs)}" for value, runs in groups.items())
        return f"{self.field} ({shown})" if shown else self.field

    @property
    def label(self) -> str:
        """What is wrong with the field, to stand before its text."""
        return LABELS[self.why]


@dataclass(frozen=True)
class Change:
    """A declared change: what it was, what it becomes."""

    field: str
    baseline: Any
    candidate: Any

    @property
    def differs(self) -> bool:
        """Whether the sides really differ in it."""
        return not same(self.baseline, self.candidate)


@dataclass(frozen=True)
class Comparability:
    """Outcome of the precondition; `key` identifies runs that may be pooled as one noise."""

    key: str | None
    equal: tuple[tuple[str, Any], ...]
    changed: tuple[Change, ...]
    differing: tuple[Difference, ...]

    @property
    def refused(self) -> bool:
        """Whether the runs must not be compared."""
        return bool(self.differing)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reason codes of a refusal, sorted."""
        codes = {
            "unknown": "unknown_field",
            "same_run": "same_run",
            "beyond_plan": "more_pairs_than_planned",
            "no_requests": "no_requests",
            "imported": "imported",
            "driver_behind": "driver_behind",
        }
        return tuple(sorted({codes.get(d.why, "not_comparable") for d in self.differing}))

    @property
    def why(self) -> str:
        """The refusal in words."""
        parts = []
        for words, whys in (
            ("a run was given more than once:", ("same_run",)),
            ("more runs than the gate planned:", ("beyond_plan",)),
            (f"no request was recorded ({METRICS_ONLY}):", ("no_requests",)),
            (f"imported ({_IMPORTED}):", ("imported",)),
            ("the load driver fell behind its schedule:", ("driver_behind",)),
            ("the runs differ in more than the declared change:", ("differs",)),
            ("runs of one side differ:", ("differs_within_side",)),
            ("unknown is not equal:", ("unknown",)),
        ):
            found = [d.text for d in self.differing if d.why in whys]
            if found:
                parts.append(f"{words} {_some(found)}")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Plain values; texts as they are shown, so that a report holds no model path."""
        return {
            "key": self.key,
            "equal": [{"field": name, "value": shown(value)} for name, value in self.equal],
            "changed": [
                {
                    "field": c.field,
                    "baseline": shown(c.baseline),
                    "candidate": shown(c.candidate),
                    "differs": c.differs,
                }
                for c in self.changed
            ],
            "differing": [
                asdict(d) | {"values": [asdict(v) | {"value": shown(v.value)} for v in d.values]}
                for d in self.differing
            ],
        }


def compare(
    runs: Sequence[GateRun],
    change_fields: Sequence[str],
    *,
    request_differences: Mapping[int, tuple[int, int]] | None,
) -> Comparability:
    """Judge runs that are already in their places.

    `request_differences` gives per pair how many request ids only the baseline and only the
    candidate has; None where the design asks for no equal requests.
    """
    differing = [*_driver(runs)]
    differing += [d for name in FIELDS if (d := _field(runs, name, name in change_fields))]
    if request_differences is not None:
        for pair, only in sorted(request_differences.items()):
            differing.extend(_pair(runs, pair, only))
    first = {side: next(r for r in runs if r.side == side) for side in ("baseline", "candidate")}
    bad = {d.field for d in differing}
    fixed = [name for name in FIELDS if name not in change_fields]
    equal = tuple((name, runs[0].value(name)) for name in fixed if name not in bad)
    return Comparability(
        key=None if differing else sha256(canonical_json(dict(equal))),
        equal=equal,
        changed=tuple(
            Change(name, first["baseline"].value(name), first["candidate"].value(name))
            for name in change_fields
        ),
        differing=tuple(differing),
    )


def refuse_without_requests(requests: Mapping[str, int], runs: Sequence[GateRun]) -> Comparability:
    """Refusal where nobody recorded requests, empty where every run has some or was offered some.

    Nothing else is looked at: of such a run most fields are unknown, and none of them matters.
    """
    bare = [r for r in runs if r.offered is None and not requests.get(r.run_id)]
    values = tuple(RunValue(r.run_id, r.side, None) for r in bare)
    differing = (Difference(REQUESTS, "no_requests", values),) if bare else ()
    return Comparability(None, (), (), differing)


def refuse_imported(runs: Sequence[GateRun]) -> Comparability:
    """Refusal where a tool's file left the engine unknown, empty where there is no such run.

    Unknown is most of it, and the reader can do nothing about one field of it; whose TTFT
    it is stands beside it, because that would be refused however much was known.
    """
    values = tuple(
        RunValue(r.run_id, r.side, r.value(FORMAT))
        for r in runs
        if r.value(FORMAT) is not None
        and any(_unknown(r, name) for name in FIELDS if name != "latencies")
    )
    if not values:
        return Comparability(None, (), (), ())
    found = [_field(runs, "latencies", declared=False), Difference(FORMAT, "imported", values)]
    return Comparability(None, (), (), tuple(d for d in found if d is not None))


def same(one: Any, other: Any) -> bool:
    """Equal in value and type: true is not 1, but 0 and 0.0 are the same number."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)


def shown(value: Any) -> Any:
    """A manifest value fit for a report: of a path only its last name, and a mark to tell it."""
    if isinstance(value, str) and _PATH.match(value):
        name = re.split(r"[/\\]", value.rstrip("/\\"))[-1]
        return f"…/{printable(name)} (path {sha256(value.encode())[:8]})"
    return value


def show(value: Any) -> str:
    """A value in a sentence."""
    value = shown(value)
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    return printable(str(value), 80)


def _field(runs: Sequence[GateRun], name: str, declared: bool) -> Difference | None:
    values = tuple(RunValue(r.run_id, r.side, r.value(name)) for r in runs)
    if any(_unknown(r, name) for r in runs):
        return Difference(name, "unknown", values)
    for side in ("baseline", "candidate"):
        if not _all_same([v.value for v in values if v.side == side]):
            return Difference(name, "differs_within_side", values)
    if not declared and not _all_same([v.value for v in values]):
        return Difference(name, "differs", values)
    return None


def _driver(runs: Sequence[GateRun]) -> list[Difference]:
    """Runs whose load was not offered as their workload says, or nobody knows whether it was."""
    driven = [r for r in runs if r.manifest.get("driver") is not None]
    found = []
    for why, answer in (("driver_behind", True), ("unknown", None)):
        values = tuple(
            RunValue(r.run_id, r.side, answer) for r in driven if r.value(BEHIND) is answer
        )
        if values:
            found.append(Difference(BEHIND, why, values))
    return found


def _unknown(run: GateRun, name: str) -> bool:
    """Whether nobody knows the field; null is an answer where a CPU has no driver."""
    if name == "device.driver" and run.value("device.kind") in WITHOUT_DRIVER:
        return False
    return run.value(name) is None


def _pair(runs: Sequence[GateRun], pair: int, only: tuple[int, int]) -> list[Difference]:
    members = [r for r in runs if r.pair == pair]
    values = tuple(RunValue(r.run_id, r.side, r.workload_sha256) for r in members)
    found = []
    if any(v.value is None for v in values):
        found.append(Difference(WORKLOAD, "unknown", values, pair))
    elif not _all_same([v.value for v in values]):
        found.append(Difference(WORKLOAD, "differs", values, pair))
    if any(only):
        counts = zip(members, only, strict=True)
        found.append(
            Difference(
                REQUESTS,
                "differs",
                tuple(RunValue(r.run_id, r.side, f"{n} ids of its own") for r, n in counts),
                pair,
            )
        )
    return found


def _all_same(values: Sequence[Any]) -> bool:
    return all(same(values[0], v) for v in values)


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_SHOWN
    return ", ".join(texts[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
