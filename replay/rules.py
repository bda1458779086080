"""Whose scheduler decides: the releases of vLLM that were checked, and how they differ.

A rule is named after the release it was checked against, event for event, by driving that
release's own scheduler class. How checked releases decide differently is a flag of `Rule`; which
options a release has, checked or not, is `OPTIONS`. Facts about vLLM grow old: `overdue` says when
they have to be looked at again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, TypeAlias

from replay.errors import InputError, describe

if TYPE_CHECKING:
    from replay.config import Config

FACTS_DUE = date(2027, 1, 25)
Release: TypeAlias = tuple[int, ...]
_NUMBER = "(0|[1-9][0-9]{0,5})"
_NAME = re.compile(rf"vllm-{_NUMBER}\.{_NUMBER}\.{_NUMBER}")


class FactsOverdue(UserWarning):
    """Facts about vLLM were not looked at again in time; nothing is wrong yet."""


@dataclass(frozen=True)
class Rule:
    """One checked release and how it decides.

    `full_isl`: admission can ask for the room of the whole sequence. `watermark`: admission can
    keep blocks free. `threshold_spares_lone_request`: `long_prefill_token_threshold` does not cap
    a request that is alone in the engine. `nameless_blocks_first`: freed blocks that cannot be
    found by content go to the front of the free list. `victim_before_moves_index`: a victim that
    stands before the requester moves the running pass back even if it was not in the batch.
    """

    name: str
    release: Release
    checked_on: date
    full_isl: bool
    watermark: bool
    threshold_spares_lone_request: bool
    nameless_blocks_first: bool
    victim_before_moves_index: bool

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Engine keys whose default depends on the release, with this release's."""
        return defaults_of(self.release)


CHECKED = {
    rule.name: rule
    for rule in (
        Rule(
            name="vllm-0.17.1",
            release=(0, 17, 1),
            checked_on=date(2026, 11, 30),
            full_isl=False,
            watermark=False,
            threshold_spares_lone_request=False,
            nameless_blocks_first=False,
            victim_before_moves_index=False,
        ),
        Rule(
            name="vllm-0.32.0",
            release=(0, 32, 0),
            checked_on=date(2026, 11, 30),
            full_isl=True,
            watermark=True,
            threshold_spares_lone_request=True,
            nameless_blocks_first=True,
            victim_before_moves_index=True,
        ),
    )
}


@dataclass(frozen=True)
class Option:
    """An engine key that not every release has: since which, and what those before it mean."""

    since: Release
    without: bool | float | str


OPTIONS: Mapping[str, Option] = {
    "scheduling_policy": Option((0, 9, 2), "fcfs"),
    "async_scheduling": Option((0, 10, 0), without=False),
    "scheduler_reserve_full_isl": Option((0, 19, 0), without=False),
    "watermark": Option((0, 24, 0), 0.0),
}
_ASYNC_BY_DEFAULT: Release = (0, 14, 0)


def rule_of(config: "Config") -> Rule:
    """The checked rule that a vllm-v1 configuration replays by."""
    return CHECKED[config.assumed_from or config.engine.rule]


def release_of(name: str) -> Release | None:
    """Numbers of `vllm-X.Y.Z`; None for a name of another form."""
    found = _NAME.fullmatch(name)
    return None if found is None else tuple(map(int, found.groups()))


def defaults_of(release: Release) -> Mapping[str, Any]:
    """Defaults of the engine keys whose default depends on the release."""
    return {
        "scheduler_reserve_full_isl": "scheduler_reserve_full_isl" in options_of(release),
        "watermark": 0.0,
        "async_scheduling": release >= _ASYNC_BY_DEFAULT,
    }


def options_of(release: Release) -> frozenset[str]:
    """Which of the keys of `OPTIONS` a release has."""
    return frozenset(key for key, option in OPTIONS.items() if release >= option.since)


def lacking(name: str) -> frozenset[str]:
    """Which of the keys of `OPTIONS` the release of this name does not have."""
    release = release_of(name)
    return frozenset() if release is None else frozenset(OPTIONS) - options_of(release)


def check_option(name: str, key: str, value: object, place: str) -> None:
    """Refuse an option that the release lacks, unless the value is all that release can do."""
    if key not in lacking(name) or value == OPTIONS[key].without:
        return
    since = ".".join(map(str, OPTIONS[key].since))
    rule = f"is not in {name} (vLLM has it from {since})"
    raise InputError(place, f"engine.{key}", rule, describe(value))


def assumed_rule(name: str, place: str, *, assume: bool) -> str | None:
    """Name of the checked rule that stands in for an unchecked one; None if `name` is checked.

    Without `assume` an unchecked release is an `InputError` that names the checked ones next to it.
    """
    release = release_of(name)
    if name in CHECKED or release is None:
        return None
    ordered = sorted(CHECKED.values(), key=lambda rule: rule.release)
    below = [rule for rule in ordered if rule.release <= release][-1:]
    above = [rule for rule in ordered if rule.release > release][:1]
    # One below that lacks an option of this release could not replay it at its own defaults.
    alike = below and options_of(below[0].release) == options_of(release)
    stand_in = below[0] if below and (alike or not above) else above[0]
    if assume:
        return stand_in.name
    nearest = ", ".join(rule.name for rule in (*below, *above))
    raise InputError(
        place,
        "engine.rule",
        f"must be a checked release (nearest: {nearest};"
        f" --assume-rule replays it as {stand_in.name}, labelled as assumed)",
        name,
    )


def overdue(today: date) -> str | None:
    """What to do about facts that are due; None until `FACTS_DUE` has passed."""
    if today <= FACTS_DUE:
        return None
    return (
        f"the facts about vLLM in replay/rules.py were to be looked at again by {FACTS_DUE}:"
        " run the conformance suite against the newest release, then move FACTS_DUE"
    )
