"""What of the `[design]` table is for windows of live traffic alone: length, split, mix."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.gate.contract import MIN_WINDOWS, MIX_DISTANCE, Design
from analysis.gate.gate_values import fraction
from replay.errors import InputError, describe
from replay.strict import integer

_KEYS = ("window_us", "candidate_fraction", "max_mix_distance")
_WHY = {
    "window_us": "is required for windows: how long each is",
    "candidate_fraction": (
        "is required for windows: the share of all requests that the random split gives to the"
        " candidate"
    ),
}


def parse_windows(raw: Mapping[str, Any], design: Design, place: str) -> Design:
    """The design with what its kind needs; refuses these keys in any other."""
    if not design.windows:
        for key in _KEYS:
            if key in raw:
                raise InputError(place, f"design.{key}", 'is for kind = "windows" only')
        return design
    for key, why in _WHY.items():
        if key not in raw:
            raise InputError(place, f"design.{key}", why, "nothing")
    window_us = integer(raw["window_us"], place, "design.window_us", 1)
    if window_us <= design.follow_up_us:
        rule = (
            f"must be above follow_up_us = {design.follow_up_us}: what a window's requests do"
            " must not reach beyond the next window"
        )
        raise InputError(place, "design.window_us", rule, describe(window_us))
    if design.pairs < MIN_WINDOWS:
        rule = f"must be >= {MIN_WINDOWS} windows: shorter windows, or a longer canary, give more"
        raise InputError(place, "design.pairs", rule, describe(design.pairs))
    distance = raw.get("max_mix_distance", MIX_DISTANCE)
    return replace(
        design,
        window_us=window_us,
        candidate_fraction=fraction(raw["candidate_fraction"], place, "design.candidate_fraction"),
        max_mix_distance=fraction(distance, place, "design.max_mix_distance"),
    )
