"""The manifest of a shareable run: numbers by an allow-list, texts only from known vocabularies.

A field that is not listed here does not come through, whatever it holds. A text that could be
anybody's (a model's path, a device's name outside the known makers) becomes a keyed pseudonym, so
that two runs can still be told to be of one model and device.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from collectors import results
from collectors.exposition.known import KNOWN
from collectors.manifest import manifest_schema, value_at
from collectors.sanitize.own import NOT_MODELLED, clocks, definitions
from collectors.sanitize.provenance import by_reason
from collectors.sanitize.pseudonyms import Pseudonyms
from collectors.sanitize.tables import SUFFIXES
from collectors.scrape.outcome import Outcome
from collectors.writer import configuration_sha256, new_manifest

# Two or three numbers: four could be an address.
_VERSION = re.compile(
    r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,2}(?:(?:rc|a|b)[0-9]{1,4})?(?:\.(?:dev|post)[0-9]{1,6})?"
)
_DEVICE = re.compile(
    r"(?:NVIDIA|AMD|Intel|Google|AWS|Huawei|Apple|ARM|Tesla|GeForce|Radeon|Instinct|TPU|Gaudi)"
    r"(?:[ -](?:[A-Z]{0,4}[0-9]{1,5}[A-Za-z]{0,4}|GB|SXM|PCIe|NVL|HBM[0-9][a-z]?|GeForce|RTX|GTX"
    r"|Tesla|Instinct|Radeon|Xeon|EPYC|Core|Graphics|Generation|Ada|Max|Pro|Ti|Super|Laptop|GPU"
    r"|CPU)){1,8}"
)
_NAMED = re.compile(r"(?:engine|model|device)-[0-9a-f]{32}")
KINDS = ("cpu", "cuda", "rocm", "tpu", "xpu", "hpu", "npu")
_DTYPES = (
    *("auto", "float16", "bfloat16", "float32", "half", "fp8", "fp8_e4m3", "fp8_e5m2"),
    *("fp8_inc", "int8", "nvfp4"),
)
# Numbers and truths, which the schema types; None of them says who, where or when.
_NUMBERS = (
    *("device.count", "parallel.tensor", "parallel.pipeline", "parallel.data"),
    *("cache.block_size", "cache.num_gpu_blocks", "cache.capacity_blocks"),
    *("cache.enable_prefix_caching", "cache.num_gpu_blocks_overridden"),
    *("cache.kv_cache_memory_bytes", "cache.kv_bytes_per_token"),
    *("scheduler.max_num_seqs", "scheduler.max_num_batched_tokens", "scheduler.max_model_len"),
    *("scheduler.async_scheduling", "scheduler.enable_chunked_prefill"),
    *("scheduler.scheduler_reserve_full_isl", "scheduler.watermark"),
    "scheduler.long_prefill_token_threshold",
    *("scrape_interval_us", "scrapes", "send_end_us", "drain_end_us", "preemptions"),
    *("workload.requests", "workload.prefix_block_tokens"),
    *("comparison.pair", "comparison.order", "comparison.arrival_seed"),
    "comparison.own_server",
    *("collection.page_bytes", "collection.several_workers"),
    *("recorder.dropped_records", "recorder.complete"),
    *("driver.behind", "driver.late_requests", "driver.lateness_limit_us"),
    *("driver.max_lateness_us", "driver.speed", "driver.concurrency"),
)
UNNAMED = "what the raw run's manifest names"


def shareable_manifest(
    found: Mapping[str, Any], pseudonyms: Pseudonyms
) -> tuple[dict[str, Any], list[str]]:
    """Manifest of the shareable run, and the fields of the raw one that it does not have.

    `workload.workload_sha256` is left for the caller, whose workload is another one.
    """
    manifest = new_manifest(pseudonyms.one("run", found["run_id"]), found["kind"], start=None)
    manifest["privacy"] = "shareable"
    _put(manifest, "collector_version", _version(found["collector_version"]))
    for path in _NUMBERS:
        _put(manifest, path, value_at(found, path))
    for path, rule in _texts(pseudonyms).items():
        text = value_at(found, path)
        _put(manifest, path, None if text is None else rule(text))
    for path, rule in _LISTS.items():
        value = value_at(found, path)
        _put(manifest, path, None if value is None else rule(value))
    if found["configuration_sha256"] is not None:
        # What names the model is in it, so the raw run's own could be guessed at.
        manifest["configuration_sha256"] = configuration_sha256(manifest)
    lost = set(_lost("", found, manifest, manifest_schema())) - {"privacy"}
    return manifest, sorted(lost)


def is_known_metric(name: str) -> bool:
    """Whether this is one of vLLM's metrics, or a series of one of its histograms."""
    return any(name.removesuffix(end) in KNOWN for end in SUFFIXES)


def is_known_text(field: str, text: str) -> bool:
    """Whether a text of a field of this last name says nothing about anybody."""
    match field:
        case "version" | "collector_version" | "engine_version" | "tool_version" | "driver":
            return _version(text) == text
        case "dtype":
            return text in _DTYPES
        case "name":
            return text == "vllm" or bool(_NAMED.fullmatch(text) or _DEVICE.fullmatch(text))
    return False


def _texts(pseudonyms: Pseudonyms) -> dict[str, Callable[[str], str | None]]:
    def engine(text: str) -> str:
        return text if text == "vllm" else pseudonyms.one("engine", text)

    def device(text: str) -> str:
        return text if _DEVICE.fullmatch(text) else pseudonyms.one("device", text)

    return {
        "engine.name": engine,
        "engine.version": _version,
        "model.name": lambda text: pseudonyms.one("model", text),
        "device.kind": _among(*KINDS),
        "device.name": device,
        "device.driver": _version,
        "cache.dtype": _among(*_DTYPES),
        "scheduler.scheduling_policy": _among("fcfs", "priority"),
        "comparison.side": _among("baseline", "candidate"),
        **{f"clocks.{name}": _among(*clocks()) for name in ("arrival", "engine", "scrape")},
        "recorder.version": _version,
        "imported.format": _among(*results.FORMATS),
        "imported.tool_version": _version,
        **{
            f"imported.definitions.{name}": _among(*definitions())
            for name in ("ttft", "tpot", "itl", "e2e")
        },
    }


def _among(*known: str) -> Callable[[str], str | None]:
    return lambda text: text if text in known else None


def _version(text: str | None) -> str | None:
    """A release without what a build adds to it."""
    public = (text or "").partition("+")[0]
    return public if _VERSION.fullmatch(public) else None


def _gaps(value: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [_only(one, "start_us", "end_us", "scrapes_missed") for one in value]


def _resets(value: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names = ("time_us", "scrape", "engine", "name", "before", "after")
    return [_only(one, *names) for one in value if is_known_metric(one["name"])]


def _only(record: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: record[key] for key in keys if key in record}


def _known_names(value: list[str]) -> list[str]:
    return [name for name in value if is_known_metric(name)]


def _outcomes(value: Mapping[str, int]) -> dict[str, int]:
    return {outcome: value[outcome] for outcome in Outcome if outcome in value}


def _not_modelled(value: list[str]) -> list[str]:
    """Our own sentences, and how many others there were: none of them may look like none at all."""
    ours = [text for text in value if text in NOT_MODELLED]
    others = len(value) - len(ours)
    return [*ours, f"{UNNAMED}: {others}"] if others else ours


_LISTS: Mapping[str, Callable[[Any], Any]] = {
    "gaps": _gaps,
    "counter_resets": _resets,
    "metric_names_not_found": _known_names,
    "collection.outcomes": _outcomes,
    "collection.first_parts": lambda _: None,  # parts are numbered anew
    "recorder.engines": list,
    "imported.left_out": by_reason,
    "not_modelled": _not_modelled,
}


def _put(manifest: dict[str, Any], path: str, value: Any) -> None:
    """Set a field; a table that is null as a whole is made only for something."""
    *above, name = path.split(".")
    table = manifest
    for key in above:
        if table.get(key) is None:
            if value is None:
                return
            table[key] = {}
        table = table[key]
    if value is not None or name in table or _required(path):
        table[name] = value


def _required(path: str) -> bool:
    schema: Any = manifest_schema()
    for key in path.split("."):
        required, schema = key in schema.get("required", ()), schema["properties"][key]
    return required


def _lost(prefix: str, raw: Mapping[str, Any], kept: Any, schema: Mapping[str, Any]) -> list[str]:
    """Names of the schema's fields that held something and hold nothing or something else now."""
    lost = []
    for key, inner in schema["properties"].items():
        value, now = raw.get(key), kept.get(key) if isinstance(kept, Mapping) else None
        if "properties" in inner and isinstance(value, Mapping):
            lost += _lost(f"{prefix}{key}.", value, now, inner)
        elif value not in (None, [], {}) and value != now:
            lost.append(f"{prefix}{key}")
    return lost
