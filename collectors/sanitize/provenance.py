"""What a shareable workload says of its origin: our own words and numbers, none of the file's text.

A licence that asks for attribution still gets it: what the importers themselves say of a public
trace is found by its title and said again.
"""

import re
from collections.abc import Mapping
from typing import Any

from collectors import results, traces
from collectors.sanitize.options import Blur
from collectors.traces.result import Source
from replay.strict import MAX_SAFE_INTEGER

REASONS = (
    *("no_prompt", "no_output", "failed", "aborted", "censored", "unsent", "rejected"),
    *("no_arrival", "no_request_row", "no_send_time", "not_in_file"),
)
OTHER = "other"  # a reason in words that are not ours
TOOLS = ("slice", "scale", "merge", "tile")
_NUMBERS = ("start", "count", "from_us", "until_us", "times", "period_us")
_TRUTHS = ("renumbered", "same_prefixes")
_FACTORS = ("time", "prompt", "output")
FACTOR = re.compile(r"[0-9]{1,7}(?:/[0-9]{1,7})?")
A_MOMENT_US = 10**15  # no offset is thirty years: a time since 1970, of a file that had those
_MOST_SHAPED = 1000
_MOST_MERGES = 8  # one within the other


def known_sources() -> dict[str, Source]:
    """What importers say of what they read, by its title."""
    return {**traces.known_sources(), **results.known_sources()}


def shareable_provenance(
    found: Mapping[str, Any] | None, blur: Blur | None = None, depth: int = _MOST_MERGES
) -> dict[str, Any]:
    """Provenance for a workload made shareable from one that had `found`."""
    found = found or {}
    told: dict[str, Any] = {} if blur is None else {"sanitized": blur_words(blur)}
    source = known_sources().get(str(found.get("source")))
    if source is not None:
        notes = found.get("notes")
        told |= {
            "format": source.name,
            "source": source.title,
            "license": source.license,
            "attribution": source.attribution,
            "notes": [one for one in source.notes if isinstance(notes, list) and one in notes],
        }
    if (rows := _count(found.get("rows_read"))) is not None:
        told["rows_read"] = rows
    for key in ("attempts", "dropped"):
        if isinstance(counted := found.get(key), Mapping):
            told[key] = by_reason(counted)
    if isinstance(window := found.get("window"), Mapping):
        told["window"] = _tool(window, 0)
    if isinstance(shaped := found.get("shaped"), list):
        tools = (one for one in shaped[:_MOST_SHAPED] if isinstance(one, Mapping))
        told["shaped"] = [_tool(one, depth) for one in tools]
    return told


def dropped_keys(found: Mapping[str, Any] | None) -> int:
    """How many keys of a provenance, at its top, do not come through as they were."""
    told = shareable_provenance(found)
    return sum(value != told.get(key) for key, value in (found or {}).items())


def blur_words(blur: Blur) -> dict[str, Any]:
    """What was blurred, as a provenance keeps it."""
    return {
        "arrivals_rounded_down_to_us": None if blur.arrival_us == 1 else blur.arrival_us,
        "tokens_rounded_up_to": None if blur.tokens == 1 else blur.tokens,
        "tenants": "dropped" if blur.no_tenants else "pseudonyms",
        "tenants_merged_below_requests": blur.tenants if blur.merges_tenants else None,
    }


def by_reason(counted: Mapping[str, Any]) -> dict[str, int]:
    """Counts of known reasons, and of all others together."""
    numbers = {reason: _count(counted.get(reason)) for reason in REASONS}
    others = (_count(n) for reason, n in counted.items() if reason not in REASONS)
    numbers[OTHER] = sum(n for n in others if n)
    return {reason: n for reason, n in numbers.items() if n}


def _tool(found: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """What a workload tool says it did: its name, numbers and factors."""
    told: dict[str, Any] = {}
    if (tool := found.get("tool")) in TOOLS:
        told["tool"] = tool
    numbers = {key: _count(found.get(key)) for key in _NUMBERS}
    told |= {key: n for key, n in numbers.items() if n is not None and n < A_MOMENT_US}
    told |= {key: found[key] for key in _TRUTHS if isinstance(found.get(key), bool)}
    told |= {key: found[key] for key in _FACTORS if FACTOR.fullmatch(str(found.get(key)))}
    if isinstance(found.get("requests"), list):
        told["requests"] = [n for n in map(_count, found["requests"]) if n is not None]
    if isinstance(window := found.get("window"), Mapping):
        told["window"] = _tool(window, 0)
    if depth and isinstance(parts := found.get("of"), list):
        parts = [one for one in parts[:_MOST_SHAPED] if isinstance(one, Mapping)]
        told["of"] = [shareable_provenance(one, None, depth - 1) for one in parts]
    return told


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_SAFE_INTEGER else None
