"""Reading a gate file (`preemption-gate/1`, TOML): strict, because a gate decides about production.

An unknown key, an outcome column in a slice, a change of something that must never change, a limit
out of range: each is an `InputError` with the key and the rule. A key that is ignored would be a
gate that looks stricter than it is.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.gate.contract import (
    ARRIVAL,
    CHANGEABLE,
    HARD_FIELDS,
    SCHEMA,
    SLICE_COLUMNS,
    WINDOWS,
    Boundary,
    Condition,
    Design,
    Evidence,
    Gate,
    Slice,
)
from analysis.gate.gate_predicates import parse_predicates
from analysis.gate.gate_rollback import parse_rollback
from analysis.gate.gate_values import array, fraction, names, number
from analysis.gate.gate_windows import parse_windows
from replay.errors import InputError, describe
from replay.strict import (
    MAX_SAFE_INTEGER,
    boolean,
    check_schema,
    choice,
    identifier,
    integer,
    only_keys,
    printable,
    read_toml,
    table,
)

_TABLES = (
    "schema",
    "name",
    "change",
    "design",
    "evidence",
    "slices",
    "predicate",
    "boundary",
    "rollback",
)
_RATES = (ARRIVAL, "prefill_tokens_per_tick", "transfer_bytes_per_tick")
_PRESENCE = ("required", "optional", "off")
_MOST_PAIRS = 1000
_MOST_SLICES = 64


def read_gate(path: Path) -> Gate:
    """Gate of a TOML file."""
    return parse_gate(read_toml(path), printable(str(path), 200))


def parse_gate(raw: Mapping[str, Any], place: str) -> Gate:
    """Gate of parsed TOML tables; `place` begins every message."""
    check_schema(raw.get("schema"), SCHEMA, place)
    only_keys(raw, _TABLES, place, quote=True)
    for key in ("name", "change"):
        if key not in raw:
            raise InputError(place, key, "is required", "nothing")
    slices = _slices(raw.get("slices", {}), place)
    predicates = parse_predicates(raw.get("predicate", []), {s.name for s in slices}, place)
    evidence = _evidence(raw.get("evidence", {}), place)
    if "boundary" in raw and evidence.modelled == "off":
        rule = 'must not be "off" where there is a [boundary], which is replayed from ledgers'
        raise InputError(place, "evidence.modelled", rule)
    return Gate(
        name=identifier(raw["name"], place, "name"),
        change_fields=_change(raw["change"], place),
        design=_design(raw.get("design", {}), place),
        evidence=evidence,
        slices=slices,
        predicates=predicates,
        boundary=_boundary(raw["boundary"], place) if "boundary" in raw else None,
        rollback=parse_rollback(raw["rollback"], predicates, place) if "rollback" in raw else None,
    )


def _change(raw: Any, place: str) -> tuple[str, ...]:
    only_keys(table(raw, place, "change"), ("fields",), f"{place}: change", quote=True)
    if "fields" not in raw:
        raise InputError(place, "change.fields", "is required", "nothing")
    fields = names(raw["fields"], place, "change.fields")
    for name in fields:
        if name in CHANGEABLE:
            continue
        if name not in HARD_FIELDS:
            only_keys([name], CHANGEABLE, f"{place}: change.fields", quote=True)
        rule = f"must not name {name}: a gate compares runs that are equal in it"
        raise InputError(place, "change.fields", f"{rule} (may name {', '.join(CHANGEABLE)})")
    return fields


def _design(raw: Any, place: str) -> Design:
    known = Design()
    only_keys(table(raw, place, "design"), vars(known), f"{place}: design", quote=True)

    def whole(key: str, least: int, most: int = MAX_SAFE_INTEGER) -> int:
        value = integer(raw.get(key, getattr(known, key)), place, f"design.{key}", least)
        if value > most:
            raise InputError(place, f"design.{key}", f"must be <= {most}", describe(value))
        return value

    kind = choice(raw.get("kind", known.kind), place, "design.kind", ("driven", "windows"))
    if kind == "windows":
        raw = {"pairs": WINDOWS} | raw
    design = Design(
        kind=kind,
        pairs=whole("pairs", 1, _MOST_PAIRS),
        looks=whole("looks", 1, 2),
        arrival_seeds=whole("arrival_seeds", 1),
        order=choice(raw.get("order", known.order), place, "design.order", ("ABBA",)),
        warmup_us=whole("warmup_us", 0),
        follow_up_us=whole("follow_up_us", 0),
        confidence=fraction(raw.get("confidence", known.confidence), place, "design.confidence"),
    )
    if design.confidence < (least := 0.8):
        found = describe(design.confidence)
        raise InputError(place, "design.confidence", f"must be >= {least}", found)
    if design.arrival_seeds > design.most_pairs:
        rule = f"must be <= {design.most_pairs}, the planned pairs"
        raise InputError(place, "design.arrival_seeds", rule, describe(design.arrival_seeds))
    return parse_windows(raw, design, place)


def _evidence(raw: Any, place: str) -> Evidence:
    known = vars(Evidence())
    only_keys(table(raw, place, "evidence"), known, f"{place}: evidence", quote=True)
    return Evidence(
        **{k: choice(raw.get(k, v), place, f"evidence.{k}", _PRESENCE) for k, v in known.items()}
    )


def _slices(raw: Any, place: str) -> tuple[Slice, ...]:
    if len(table(raw, place, "slices")) > _MOST_SLICES:
        raise InputError(place, "slices", f"must be at most {_MOST_SLICES}", describe(raw))
    return tuple(_slice(name, value, place) for name, value in raw.items())


def _slice(name: str, raw: Any, place: str) -> Slice:
    where = f"slices.{printable(name)}"
    identifier(name, place, where)
    only_keys(table(raw, place, where), ("where", "min_eligible"), f"{place}: {where}", quote=True)
    conditions = table(raw.get("where"), place, f"{where}.where")
    if not conditions:
        raise InputError(place, f"{where}.where", "must name at least one workload column", "none")
    if {"output_tokens", "max_tokens"} <= set(conditions):
        rule = "must not name output_tokens and max_tokens both: they are the same column"
        raise InputError(place, f"{where}.where", rule)
    eligible = raw.get("min_eligible")
    return Slice(
        name=name,
        where=tuple(_condition(c, v, place, f"{where}.where") for c, v in conditions.items()),
        min_eligible=None
        if eligible is None
        else integer(eligible, place, f"{where}.min_eligible", 1),
    )


def _condition(column: str, raw: Any, place: str, where: str) -> Condition:
    if column not in SLICE_COLUMNS:
        known = ", ".join(SLICE_COLUMNS)
        rule = "must use workload columns only, so that no outcome chooses who is judged"
        raise InputError(place, f"{where}.{printable(column)}", f"{rule} (known: {known})")
    key = f"{where}.{column}"
    bounds = table(raw, place, key)
    kinds = ("any_of",) if column == "tenant" else ("min", "max")
    only_keys(bounds, kinds, f"{place}: {key}", quote=True)
    if not bounds:
        raise InputError(place, key, f"must set {' or '.join(kinds)}", "none")
    if column == "tenant":
        return Condition(column, any_of=names(bounds["any_of"], place, f"{key}.any_of", least=1))
    low, high = (
        None if k not in bounds else integer(bounds[k], place, f"{key}.{k}", -MAX_SAFE_INTEGER)
        for k in kinds
    )
    if low is not None and high is not None and low > high:
        raise InputError(place, f"{key}.min", f"must be <= max = {high}", describe(low))
    return Condition(column, low, high)


def _boundary(raw: Any, place: str) -> Boundary:
    keys = ("rates", "steps", "measured")
    only_keys(table(raw, place, "boundary"), keys, f"{place}: boundary", quote=True)
    for key in ("rates", "steps"):
        if key not in raw:
            raise InputError(place, f"boundary.{key}", "is required", "nothing")
    rates = names(raw["rates"], place, "boundary.rates", least=1)
    for rate in rates:
        choice(rate, place, "boundary.rates", _RATES)
    measured = boolean(raw.get("measured", False), place, "boundary.measured")
    if measured and ARRIVAL not in rates:
        rule = "must be false where boundary.rates has no arrival: no other rate can be driven"
        raise InputError(place, "boundary.measured", rule)
    steps = _steps(array(raw["steps"], place, "boundary.steps", least=1), place)
    return Boundary(rates=rates, steps=steps, measured=measured)


def _steps(raw: Iterable[Any], place: str) -> tuple[float, ...]:
    steps = tuple(number(v, place, f"boundary.steps[{k}]") for k, v in enumerate(raw))
    for k, step in enumerate(steps):
        if not 0.1 <= step <= 10 or math.isclose(step, 1) or step in steps[:k]:  # noqa: PLR2004
            rule = "must be a multiplier from 0.1 to 10, not 1, and not twice the same"
            raise InputError(place, f"boundary.steps[{k}]", rule, describe(step))
    return steps
