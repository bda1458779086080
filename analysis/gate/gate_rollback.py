"""The `[rollback]` table of a gate file: where to go back to, and on which of the predicates."""

import re
from collections.abc import Sequence
from typing import Any

from analysis.gate.contract import Predicate, Rollback, RollbackRule
from analysis.gate.gate_predicates import LIMITS, parse_limit
from analysis.gate.gate_values import array
from replay.errors import InputError, describe
from replay.strict import choice, identifier, integer, only_keys, printable, table

_KEYS = ("to", "window_us", "when")


def parse_rollback(raw: Any, predicates: Sequence[Predicate], place: str) -> Rollback:
    """Rollback of a gate whose predicates are known."""
    only_keys(table(raw, place, "rollback"), _KEYS, f"{place}: rollback", quote=True)
    for key in _KEYS:
        if key not in raw:
            raise InputError(place, f"rollback.{key}", "is required", "nothing")
    to = raw["to"]
    if to != "baseline" and not (isinstance(to, str) and re.fullmatch("[0-9a-f]{64}", to)):
        rule = "must be baseline or a configuration's SHA-256"
        raise InputError(place, "rollback.to", rule, describe(to))
    by_id = {p.id: p for p in predicates}
    rules = array(raw["when"], place, "rollback.when", least=1)
    return Rollback(
        to=to,
        window_us=integer(raw["window_us"], place, "rollback.window_us", 1),
        when=tuple(_rule(r, by_id, place, f"rollback.when[{k}]") for k, r in enumerate(rules)),
    )


def _rule(raw: Any, by_id: dict[str, Predicate], place: str, where: str) -> RollbackRule:
    for key in ("predicate", "action"):
        if key not in table(raw, place, where):
            raise InputError(place, f"{where}.{key}", "is required", "nothing")
    name = identifier(raw["predicate"], place, f"{where}.predicate")
    if name not in by_id:
        known = ", ".join(printable(p) for p in by_id)
        rule = f"must be the id of a predicate of this gate ({known})"
        raise InputError(place, f"{where}.predicate", rule, describe(name))
    limits = LIMITS[by_id[name].kind]
    only_keys(raw, ("predicate", "action", *limits), f"{place}: {where}", quote=True)
    found = tuple(
        (key, parse_limit(key, raw[key], place, f"{where}.{key}")) for key in limits if key in raw
    )
    if limits and not found:
        raise InputError(place, where, f"must set {' or '.join(limits)}", "none of them")
    return RollbackRule(
        predicate=name,
        action=choice(raw["action"], place, f"{where}.action", ("revert",)),
        limits=found,
    )
