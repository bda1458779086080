"""The `[[predicate]]` tables of a gate file: which kind takes which keys, and their ranges."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from analysis.gate.contract import (
    KINDS,
    LATENCY_FIELDS,
    MAX_STATISTICAL,
    STATISTICS,
    Predicate,
)
from analysis.gate.gate_values import array, at_least_zero, fraction
from replay.errors import InputError, describe
from replay.strict import choice, identifier, integer, only_keys, printable, table

ALWAYS_ON = Predicate(id="no-erased-progress", kind="erased_progress")
# Checks that follow from other parts of a gate; predicates must not take their names.
RESERVED = (
    "steady",
    "boundary",
    "rollback-defined",
    "request-mix",
    "noise-profile",
    "selftest",
)
_MAX_REGRESSION = 10.0

_KEYS: Mapping[str, tuple[str, ...]] = {
    "erased_progress": (),
    "repeated_preemption": ("max_preemptions",),
    "regression": ("field", "statistic", "slice", "max_regression", "floor_us"),
    "goodput": ("slice", "slo", "min_fraction", "max_drop"),
    "failures": ("max_failed_fraction", "max_censored_fraction", "max_increase"),
}
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "repeated_preemption": ("max_preemptions",),
    "regression": ("field", "statistic", "max_regression"),
    "goodput": ("slo",),
}
# Limits a predicate judges by; a rollback rule sets its own of the same names.
LIMITS: Mapping[str, tuple[str, ...]] = {
    "erased_progress": (),
    "repeated_preemption": ("max_preemptions",),
    "regression": ("max_regression",),
    "goodput": ("min_fraction", "max_drop"),
    "failures": ("max_failed_fraction", "max_censored_fraction", "max_increase"),
}


def parse_predicates(raw: Any, slices: set[str], place: str) -> tuple[Predicate, ...]:
    """Predicates in file order; `erased_progress` comes first where the file leaves it out."""
    found = [
        _predicate(value, slices, place, f"predicate[{k}]")
        for k, value in enumerate(array(raw, place, "predicate"))
    ]
    kinds = [p.kind for p in found]
    if "erased_progress" not in kinds:
        found.insert(0, ALWAYS_ON)
    ids: set[str] = set()
    for k, predicate in enumerate(found):
        if predicate.id in ids:
            where = f"predicate[{k - len(found) + len(kinds)}].id"
            raise InputError(place, where, "must be unique", describe(predicate.id))
        ids.add(predicate.id)
    if kinds.count("erased_progress") > 1:
        raise InputError(place, "predicate", "must hold erased_progress once", "more")
    statistical = sum(p.statistical for p in found)
    if statistical > MAX_STATISTICAL:
        rule = f"must hold at most {MAX_STATISTICAL} statistical predicates"
        raise InputError(place, "predicate", rule, str(statistical))
    return tuple(found)


def parse_limit(name: str, value: Any, place: str, field: str) -> float:
    """One limit, whichever predicate or rollback rule sets it."""
    limit: float = _LIMIT_CHECKS[name](value, place, field)
    return limit


def _predicate(raw: Any, slices: set[str], place: str, where: str) -> Predicate:
    for key in ("id", "kind"):
        if key not in table(raw, place, where):
            raise InputError(place, f"{where}.{key}", "is required", "nothing")
    kind = choice(raw["kind"], place, f"{where}.kind", KINDS)
    name = identifier(raw["id"], place, f"{where}.id")
    if name in RESERVED or (name == ALWAYS_ON.id and kind != ALWAYS_ON.kind):
        raise InputError(place, f"{where}.id", f"must not be {name}, the gate's own check")
    if kind == "erased_progress" and set(raw) != {"id", "kind"}:
        rule = "is always judged in full and takes no key but id and kind"
        raise InputError(place, f"{where}: erased_progress", rule, f"{len(raw)} keys")
    only_keys(raw, ("id", "kind", *_KEYS[kind]), f"{place}: {where} ({kind})", quote=True)
    for key in _REQUIRED.get(kind, ()):
        if key not in raw:
            raise InputError(place, f"{where}.{key}", "is required", "nothing")
    limits = LIMITS[kind]
    if limits and not any(key in raw for key in limits):
        raise InputError(place, where, f"must set {' or '.join(limits)}", "none of them")
    values = {k: _CHECKS[k](v, place, f"{where}.{k}") for k, v in raw.items() if k in _KEYS[kind]}
    if "slice" in values and values["slice"] not in slices:
        known = ", ".join(printable(s) for s in sorted(slices)) or "none is defined"
        rule = f"must name a slice of this gate ({known})"
        raise InputError(place, f"{where}.slice", rule, describe(values["slice"]))
    if kind == "regression":
        values.setdefault("floor_us", 0)
    return Predicate(id=name, kind=kind, **values)


def _slo(value: Any, place: str, field: str) -> tuple[tuple[str, int], ...]:
    only_keys(table(value, place, field), LATENCY_FIELDS, f"{place}: {field}", quote=True)
    if not value:
        raise InputError(place, field, "must set at least one objective", "none")
    return tuple((k, integer(v, place, f"{field}.{k}", 1)) for k, v in sorted(value.items()))


_LIMIT_CHECKS: Mapping[str, Callable[[Any, str, str], Any]] = {
    "max_preemptions": integer,
    "max_regression": partial(at_least_zero, most=_MAX_REGRESSION),
    "min_fraction": fraction,
    "max_drop": fraction,
    "max_failed_fraction": fraction,
    "max_censored_fraction": fraction,
    "max_increase": fraction,
}
_CHECKS: Mapping[str, Callable[[Any, str, str], Any]] = {
    **_LIMIT_CHECKS,
    "field": partial(choice, options=LATENCY_FIELDS),
    "statistic": partial(choice, options=STATISTICS),
    "slice": identifier,
    "floor_us": integer,
    "slo": _slo,
}
