"""What a session's header tells about the engine, in a run's manifest, which it completes.

A manifest that knows something else (another version, other blocks) is another engine's: that is an
`InputError`. The device alone is overruled: a manifest may hold the collector's host's.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from collectors.features import not_modelled as features_not_modelled
from collectors.manifest import check_manifest
from collectors.spool import Header
from collectors.writer import configuration_sha256, new_manifest
from replay.errors import InputError, describe

SECTIONS = ("engine", "model", "device", "parallel", "cache", "scheduler")
# Values that two looks at one engine agree on; others are told in words or computed differently.
_SAME = {
    "engine": ("name", "version"),
    "model": ("name",),
    "parallel": ("tensor", "pipeline", "data"),
    "cache": ("block_size", "num_gpu_blocks", "capacity_blocks", "dtype", "enable_prefix_caching"),
}
ARRIVAL_CLOCK = "the engine's own arrival time, wall clock of its API server"
ENGINE_CLOCK = (
    "engine process, monotonic, moved to the run's zero by pairs of both clocks taken in it"
)


def facts_of(header: Header, place: str) -> dict[str, dict[str, Any]]:
    """Sections of a manifest as this engine tells them, every rule checked; unknown is null."""
    facts = header.facts
    manifest = new_manifest("run", "observed", start=None)
    manifest["engine"]["version"] = facts.get("vllm_version")
    manifest["model"]["name"] = facts.get("model")
    for name in ("device", "parallel", "cache", "scheduler"):
        told = facts.get(name)
        if not isinstance(told, dict):
            raise InputError(place, name, "must be a table", describe(told))
        known = manifest[name]
        known |= {key: value for key, value in told.items() if key in known}
    cache = manifest["cache"]
    if cache["capacity_blocks"] is None and type(cache["num_gpu_blocks"]) is int:
        cache["capacity_blocks"] = cache["num_gpu_blocks"] - 1  # one is vLLM's null block
    check_manifest(manifest, place)
    return {name: manifest[name] for name in SECTIONS}


def contradictions(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """Dotted names of what both know, and know differently."""
    found = []
    for section in SECTIONS:
        names = facts[section] if section == "scheduler" else _SAME.get(section, ())
        for name in names:
            here, there = manifest[section].get(name), facts[section].get(name)
            if (section, name) == ("engine", "version"):
                here, there = _release(here), _release(there)
            if here is not None and there is not None and here != there:
                found.append(f"{section}.{name}")
    return found


def completed(manifest: Mapping[str, Any], facts: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The manifest with what it did not know; `place` names it where it knows otherwise."""
    if others := contradictions(manifest, facts):
        section, name = others[0].split(".")
        rule = f"must be the spool's {_shown(facts[section][name])}"
        raise InputError(place, others[0], rule, describe(manifest[section][name]))
    whole = copy.deepcopy(dict(manifest))
    for section in SECTIONS:
        for name, value in facts[section].items():
            if whole[section].get(name) is None or (section == "device" and value is not None):
                whole[section][name] = value
    whole["configuration_sha256"] = configuration_sha256(whole)
    return whole


def not_modelled(header: Header, used: Iterable[str]) -> list[str]:
    """What this engine does, and requests used, that a replay does not model."""
    told = header.facts.get("features")
    features = (told if isinstance(told, dict) else {}) | dict.fromkeys(used, True)
    return features_not_modelled({**header.facts, "features": features}, {})


def merged(known: Iterable[str] | None, more: Iterable[str] | None) -> list[str] | None:
    """Both lists without what is there twice; None only where neither is known."""
    if known is None and more is None:
        return None
    return list(dict.fromkeys((*(known or ()), *(more or ()))))


def _release(version: Any) -> Any:
    return version.partition("+")[0] if isinstance(version, str) else version


def _shown(value: Any) -> str:
    return "other text" if isinstance(value, str) else describe(value)
