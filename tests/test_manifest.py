"""Manifests keep the shipped JSON Schema, or are refused by dotted name without their texts."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from collectors.manifest import check_manifest, manifest_schema, read_manifest, value_at
from replay.errors import InputError

BASE = Path(__file__).parents[1] / "fixtures" / "runs" / "base-1" / "manifest.json"


def recorded_manifest() -> dict[str, Any]:
    """A recorded manifest with every field of the schema filled in."""
    manifest: dict[str, Any] = json.loads(BASE.read_text())
    gap = {"start_us": 1, "end_us": 2, "scrapes_missed": 1, "reason": "timeout"}
    reset = {"time_us": 2, "scrape": 1, "engine": 0, "name": "num_preemptions"}
    return manifest | {
        "note": "n",
        "privacy": "raw",
        "start": "2026-01-31T23:59:59.000001Z",
        "metric_names": {"num_preemptions": "vllm:num_preemptions_total"},
        "metric_names_not_found": ["cpu_cache_usage_perc"],
        "gaps": [gap],
        "counter_resets": [reset | {"before": 39, "after": 2.0}],
        "configuration_sha256": "0" * 64,
        "collector_version": "0.1.0",
        "device": manifest["device"] | {"driver": "570.1"},
        "clocks": manifest["clocks"] | {"scrape": "collector, monotonic"},
        "comparison": manifest["comparison"] | {"arrival_seed": 7, "own_server": True},
        "workload": manifest["workload"] | {"prefix_block_tokens": 512},
        "collection": {
            "outcomes": {"ok": 210, "timeout": 1},
            "problems": {"duplicate series": 1},
            "page_bytes": 1,
            "first_parts": {"samples": 2},
            "several_workers": False,
            "notes": ["n"],
        },
        "recorder": {
            "version": "0.1.0",
            "engines": [0],
            "dropped_records": 0,
            "complete": True,
            "sources": {"queue_time_us": "scheduler"},
            "notes": ["n"],
        },
        "driver": {
            "behind": False,
            "late_requests": 0,
            "lateness_limit_us": 50_000,
            "max_lateness_us": 900,
            "speed": 2.2,
            "concurrency": 8,
            "token_seed": 0,
            "notes": ["n"],
        },
        "imported": {
            "format": "aiperf",
            "tool_version": "0.1",
            "definitions": {"ttft": "t", "tpot": "t", "itl": "t", "e2e": "t"},
            "left_out": {"no_prompt": 1},
        },
        "not_modelled": ["n"],
    }


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every field of the schema: dotted name, its schema, whether it is required."""
    for key, inner in schema.get("properties", {}).items():
        dotted = f"{path}.{key}" if path else key
        yield dotted, inner, key in schema.get("required", ())
        yield from fields(inner, dotted)
        if "items" in inner:
            yield from fields(inner["items"], f"{dotted}[0]")


FIELDS = list(fields(manifest_schema()))
NAMES = [dotted for dotted, _, _ in FIELDS]


def types_of(schema: dict[str, Any]) -> list[str]:
    """JSON types a field may have."""
    found = schema["type"]
    return [found] if isinstance(found, str) else found


def holder(manifest: Any, dotted: str) -> tuple[dict[str, Any], str]:
    """The object that holds a field, and its key there."""
    *path, last = dotted.replace("[0]", ".0").split(".")
    for key in path:
        manifest = manifest[int(key) if key == "0" else key]
    return manifest, last


def manifest_fault(manifest: Any) -> InputError:
    """What refuses a manifest; no text of it is shown."""
    with pytest.raises(InputError) as caught:
        check_manifest(manifest, "manifest.json")
    assert "hunter2" not in str(caught.value)
    return caught.value


def test_the_schema_is_valid_and_describes_every_field() -> None:
    """The shipped file is a JSON Schema of draft 2020-12 that closes every object."""
    Draft202012Validator.check_schema(manifest_schema())
    assert "https://json-schema.org/draft/2020-12/schema" == manifest_schema()["$schema"]
    assert not [dotted for dotted, inner, _ in FIELDS if not inner.get("description")]
    objects = [s for _, s, _ in FIELDS if "properties" in s]
    items = [s["items"] for _, s, _ in FIELDS if "properties" in s.get("items", {})]
    assert all(s["additionalProperties"] is False for s in [manifest_schema(), *objects, *items])


def test_a_manifest_with_every_field_is_accepted() -> None:
    """The example the tests below damage has every field of the schema and is valid."""
    manifest = recorded_manifest()
    for dotted in NAMES:
        inner, key = holder(manifest, dotted)
        assert key in inner
    assert manifest is check_manifest(manifest, "manifest.json")


@pytest.mark.parametrize(("dotted", "required"), [(d, r) for d, _, r in FIELDS], ids=NAMES)
def test_a_field_left_out_is_refused_if_required(dotted: str, *, required: bool) -> None:
    """Required fields are missed by dotted name; documented extras may be left out."""
    manifest = recorded_manifest()
    inner, key = holder(manifest, dotted)
    del inner[key]
    if not required:
        assert manifest is check_manifest(manifest, "manifest.json")
        return
    error = manifest_fault(manifest)
    assert dotted == error.field
    if dotted != "schema":
        assert "is required" == error.rule


@pytest.mark.parametrize(("dotted", "schema"), [(d, s) for d, s, _ in FIELDS], ids=NAMES)
def test_null_is_unknown_or_refused(dotted: str, schema: dict[str, Any]) -> None:
    """Null says unknown where the schema allows it and is refused by name elsewhere."""
    manifest = recorded_manifest()
    inner, key = holder(manifest, dotted)
    inner[key] = None
    if "null" in types_of(schema):
        assert manifest is check_manifest(manifest, "manifest.json")
        return
    error = manifest_fault(manifest)
    assert (dotted, "null") == (error.field, error.found)


WRONG: dict[str, list[Any]] = {
    "string": ["hunter2"],
    "integer": [3],
    "number": [0.5],
    "boolean": [True],
    "object": [{"hunter2": 1}],
    "array": [["hunter2"]],
}


@pytest.mark.parametrize(("dotted", "schema"), [(d, s) for d, s, _ in FIELDS], ids=NAMES)
def test_another_type_is_refused_by_dotted_name(dotted: str, schema: dict[str, Any]) -> None:
    """A value of any other JSON type is refused, 1.0 and true for an integer too."""
    allowed = types_of(schema)
    wrong = [v for kind, values in WRONG.items() if kind not in allowed for v in values]
    if "number" in allowed:
        wrong.remove(3)
    if "integer" in allowed:
        wrong.append(1.0)
    for value in wrong:
        manifest = recorded_manifest()
        inner, key = holder(manifest, dotted)
        inner[key] = value
        error = manifest_fault(manifest)
        assert dotted == error.field
        assert error.rule.startswith("must be ")


NUMBERS = [(d, s) for d, s, _ in FIELDS if "minimum" in s]


@pytest.mark.parametrize(("dotted", "schema"), NUMBERS, ids=[d for d, _ in NUMBERS])
def test_a_number_below_its_least_is_refused(dotted: str, schema: dict[str, Any]) -> None:
    """Counts and sizes have a least value, and integers must be safe."""
    for value, rule in (
        (schema["minimum"] - 1, f"must be >= {schema['minimum']}"),
        (2**53, "must be within ±(2^53 - 1)"),
        (math.nan, "must be a finite number"),
        (math.inf, "must be a finite number"),
    ):
        manifest = recorded_manifest()
        inner, key = holder(manifest, dotted)
        inner[key] = value
        error = manifest_fault(manifest)
        assert (dotted, rule) == (error.field, error.rule)


BAD_MANIFESTS: dict[str, tuple[str, Any, str, str]] = {
    "another version": ("schema", "preemption-run/2", "schema", "run/1, got preemption-run/2"),
    "a nameless schema": ("schema", "hunter2", "schema", "got a string of 7 code points"),
    "unknown kind": ("kind", "hunter2", "kind", "must be one of driven, observed, got a string"),
    "unknown policy": (
        "scheduler.scheduling_policy",
        "hunter2",
        "scheduler.scheduling_policy",
        "must be one of fcfs, priority, null",
    ),
    "unknown side": ("comparison.side", "hunter2", "comparison.side", "one of baseline, candidate"),
    "unknown key": ("hunter2", 1, "", "unknown key of 7 code points"),
    "unknown key of cache": ("cache.hunter2", 1, "", "manifest.json: cache: unknown key of 7"),
    "unknown key of clocks": ("clocks.hunter2", 1, "", "clocks: unknown key of 7 code points"),
    "empty run id": ("run_id", "", "run_id", "must have at least 1 code points"),
    "long run id": ("run_id", "x" * 129, "run_id", "must have at most 128 code points"),
    "control character": ("model.name", "hunter2\x1b[0m", "model.name", "no control character"),
    "surrogate": ("device.name", "hunter2\ud800", "device.name", "no surrogate"),
    "long text": ("model.name", "x" * 4097, "model.name", "must have at most 4096 code points"),
    "hash in capitals": (
        "workload.workload_sha256",
        "A" * 64,
        "workload.workload_sha256",
        "must match ^[0-9a-f]{64}$, got a string of 64",
    ),
    "hash with a newline": (
        "configuration_sha256",
        "0" * 64 + "\n",
        "configuration_sha256",
        "no control character",
    ),
    "start without a zone": ("start", "2026-01-01T00:00:00", "start", "must match ^[0-9]{4}-"),
    "whole watermark": ("scheduler.watermark", 1, "scheduler.watermark", "must be < 1, got 1"),
    "capacity is not blocks minus one": (
        "cache.capacity_blocks",
        48,
        "cache.capacity_blocks",
        "must be num_gpu_blocks - 1 = 47, got 48",
    ),
    "metric name is data": (
        "metric_names",
        {"hunter2": 5},
        "metric_names.<key of 7 code points>",
        "must be string, got 5",
    ),
    "metric name too long": (
        "metric_names",
        {"hunter2" * 20: "x"},
        "metric_names",
        "must have at most 128 code points",
    ),
    "too many gaps": ("gaps", [{}] * 10_001, "gaps", "must have at most 10000 entries"),
    "deep nesting": ("note", [[[[[[[[[1]]]]]]]]], "note[0][0][0][0][0][0][0]", "not nest deeper"),
}


@pytest.mark.parametrize(
    ("dotted", "value", "field", "rule"),
    BAD_MANIFESTS.values(),
    ids=[name.replace(" ", "-") for name in BAD_MANIFESTS],
)
def test_a_bad_manifest_value_is_refused_by_name(
    dotted: str, value: Any, field: str, rule: str
) -> None:
    """Every other rule of the manifest, with the text of no value in the message."""
    manifest = recorded_manifest()
    inner, key = holder(manifest, dotted)
    inner[key] = value
    error = manifest_fault(manifest)
    assert field == error.field
    assert rule in str(error)


@pytest.mark.parametrize(
    ("old", "new", "field", "rule"),
    [
        ('"num_gpu_blocks": 48', f'"num_gpu_blocks": {"9" * 5000}', "cache.num_gpu_blocks", "±"),
        ('"watermark": 0.0', '"watermark": NaN', "scheduler.watermark", "finite"),
        ('"watermark": 0.0', '"watermark": 1e999', "scheduler.watermark", "finite"),
        ('"scrapes": 210', '"scrapes": 210, "scrapes": 211', "", "must not repeat a key"),
    ],
    ids=["5000-digits", "NaN", "infinite", "repeated-key"],
)
def test_what_json_parsers_let_through_is_refused(
    tmp_path: Path, old: str, new: str, field: str, rule: str
) -> None:
    """Numbers JSON readers disagree on, and keys given twice, never get in."""
    text = BASE.read_text()
    assert 1 == text.count(old)
    (tmp_path / "manifest.json").write_text(text.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_manifest(tmp_path / "manifest.json")
    assert field == caught.value.field
    assert rule in str(caught.value)


def test_fields_are_addressed_with_dots() -> None:
    """Dotted names reach into a manifest; what is not there is None."""
    manifest = read_manifest(BASE)
    assert 48 == value_at(manifest, "cache.num_gpu_blocks")
    assert value_at(manifest, "cache.no_such.field") is None
    assert value_at(manifest, "start") is None
