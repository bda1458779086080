"""The configuration that a measured run's engine had, as its manifest tells it.

Plain tables in the words of a `vllm-v1` configuration file (SPEC §3): whoever replays the run
parses them. What the manifest does not know is never guessed.
"""

import re
from collections.abc import Collection
from typing import Any

import polars as pl

from collectors.features import PIPELINE
from collectors.manifest import value_at
from collectors.run import Run
from replay.errors import InputError, describe

_GIVE = "(--config gives a configuration instead)"
_RELEASE = re.compile(r"([0-9]+\.[0-9]+\.[0-9]+)(?:\+[A-Za-z0-9.]+)?")
_CACHE_KEYS = ("block_size", "capacity_blocks", "enable_prefix_caching")
_SCHEDULER_KEYS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "scheduling_policy",
    "enable_chunked_prefill",
    "scheduler_reserve_full_isl",
    "watermark",
    "long_prefill_token_threshold",
    "async_scheduling",
)
FIELDS = {key: f"cache.{key}" for key in _CACHE_KEYS} | {
    key: f"scheduler.{key}" for key in _SCHEDULER_KEYS
}


def run_rule(run: Run) -> str:
    """`vllm-X.Y.Z` of the release that served the run; a build's own suffix (`+cpu`) is cut off.

    An unknown version, one that is no release and another engine are an `InputError`.
    """
    place, engine = manifest_place(run), run.manifest["engine"]
    if engine["name"] != "vllm":
        raise InputError(place, "engine.name", f"must be vllm {_GIVE}", describe(engine["name"]))
    version = engine["version"]
    found = None if version is None else _RELEASE.fullmatch(version)
    if found is None:
        rule = f"must be a release, X.Y.Z, to choose its rule {_GIVE}"
        raise InputError(place, "engine.version", rule, describe(version))
    return f"vllm-{found[1]}"


def run_config_tables(run: Run, lacking: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Tables of a `vllm-v1` configuration whose ticks are the run's own steps.

    Keys in `lacking` are options that the release does not have: unknown, they are left out. Any
    other unknown key is an `InputError` that names the manifest's fields.
    """
    known = {key: value_at(run.manifest, field) for key, field in FIELDS.items()}
    blocks = value_at(run.manifest, "cache.num_gpu_blocks")
    if known["capacity_blocks"] is None and blocks is not None:
        known["capacity_blocks"] = blocks - 1  # one is vLLM's null block
    rule = run_rule(run)
    missing = [FIELDS[k] for k, value in known.items() if value is None and k not in lacking]
    if missing:
        must = f"must be known to replay the run as it was {_GIVE}"
        raise InputError(manifest_place(run), ", ".join(missing), must, "null")
    given = {key: value for key, value in known.items() if value is not None}
    kv_bytes = value_at(run.manifest, "cache.kv_bytes_per_token")
    return {
        "engine": {"profile": "vllm-v1", "rule": rule, "tick_us": 1, **given},
        "policy": {} if kv_bytes is None else {"kv_bytes_per_token": kv_bytes},
    }


def not_replayed(run: Run) -> list[str]:
    """What the engine did that a replay of the run does not, a sentence each: exact it is not."""
    found = list(run.manifest.get("not_modelled") or ())
    if (value_at(run.manifest, "parallel.pipeline") or 1) > 1:
        found.append(PIPELINE)
    shared = run.requests["prefix_blocks"].null_count() < run.requests.height
    if value_at(run.manifest, "cache.enable_prefix_caching") and not shared:
        found.append("prefix caching was on, but which prompts share a prefix was not recorded")
    if unknown := _unknown_arrivals(run):
        found.append(
            f"{unknown} requests have no engine_arrival_us, which the priority scheduler compares"
        )
    if dropped := (run.manifest.get("recorder") or {}).get("dropped_records"):
        found.append(f"the recorder dropped {dropped} records, a replay knows nothing of those")
    return list(dict.fromkeys(found))


def _unknown_arrivals(run: Run) -> int:
    """Requests whose arrival time nobody knows among others that reached a priority scheduler.

    Where none is known they are compared in the order of their steps.
    """
    if value_at(run.manifest, "scheduler.scheduling_policy") != "priority":
        return 0
    arrived = run.events.filter(pl.col("kind") == "arrive")
    rows = run.requests.join(arrived, on="request_id", how="semi")
    unknown = rows["engine_arrival_us"].null_count()
    return 0 if unknown == rows.height else unknown


def manifest_place(run: Run) -> str:
    """How messages call the run's manifest."""
    return str(run.path / "manifest.json")
