"""The manifest of a measured run: which engine, configured how, offered what (SPEC §9).

`schemas/manifest.schema.json` is the contract. A manifest that breaks it raises `InputError` with
the field's dotted name and the rule; texts are described, never shown. jsonschema finds the fault,
but its own message holds the value, so the wording here is built from the rule alone.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from collectors.columns import SCHEMA
from replay.errors import InputError, Oversized, describe
from replay.strict import (
    MAX_SAFE_INTEGER,
    check_schema,
    identifier,
    integer,
    only_keys,
    parse_json,
    read_text,
)

MAX_BYTES = 4 * 2**20
_MAX_DEPTH = 8
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_RULES = {
    "minimum": "must be >= {}",
    "exclusiveMaximum": "must be < {}",
    "minLength": "must have at least {} code points",
    "maxLength": "must have at most {} code points",
    "maxItems": "must have at most {} entries",
    "maxProperties": "must have at most {} keys",
    "pattern": "must match {}",
}


@cache
def manifest_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `preemption-run/1`, as shipped."""
    text = files("collectors").joinpath("schemas/manifest.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def read_manifest(path: Path) -> dict[str, Any]:
    """Manifest of a file, every rule checked."""
    return check_manifest(parse_json(read_text(path, MAX_BYTES), str(path)), str(path))


def check_manifest(manifest: Any, place: str) -> dict[str, Any]:
    """Return `manifest` if it keeps the contract; writers check what they are about to write."""
    if not isinstance(manifest, dict):
        raise InputError(place, "", "must be an object", describe(manifest))
    check_schema(manifest.get("schema"), SCHEMA, place)
    _refuse_unsafe(manifest, place, (), _MAX_DEPTH)
    _validate(manifest, place)
    identifier(manifest["run_id"], place, "run_id")
    blocks, usable = (manifest["cache"][k] for k in ("num_gpu_blocks", "capacity_blocks"))
    if blocks is not None and usable is not None and usable != blocks - 1:
        rule = f"must be num_gpu_blocks - 1 = {blocks - 1}"
        raise InputError(place, "cache.capacity_blocks", rule, describe(usable))
    return manifest


def value_at(manifest: Mapping[str, Any], dotted: str) -> Any:
    """Value a dotted name addresses (`cache.num_gpu_blocks`); None where unknown or not given."""
    value: Any = manifest
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _refuse_unsafe(value: Any, place: str, path: tuple[str | int, ...], depth: int) -> None:
    """Refuse what no schema rule names: unsafe integers, NaN, control characters, deep nesting."""
    if isinstance(value, Oversized) or type(value) is int:
        integer(value, place, _dotted(path), -MAX_SAFE_INTEGER)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(place, _dotted(path), "must be a finite number", describe(value))
    elif isinstance(value, str) and _CONTROL.search(value):
        rule = "must hold no control character and no surrogate"
        raise InputError(place, _dotted(path), rule, describe(value))
    elif isinstance(value, dict | list):
        if not depth:
            raise InputError(place, _dotted(path), "must not nest deeper")
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(key, str):
                _refuse_unsafe(key, place, path, depth)
            _refuse_unsafe(inner, place, (*path, key), depth - 1)


def _validate(manifest: dict[str, Any], place: str) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from jsonschema.validators import extend

    # JSON Schema calls 1.0 an integer; this contract does not.
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, v: type(v) is int)
    strict = extend(Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]
    error = best_match(strict(manifest_schema()).iter_errors(manifest))
    if error is None:
        return
    found, path, expected = error.instance, tuple(error.absolute_path), error.validator_value
    match error.validator:
        case "required":
            missing = next(key for key in expected if key not in found)
            raise InputError(place, _dotted((*path, missing)), "is required", "nothing")
        case "additionalProperties":
            where = f"{place}: {_dotted(path)}" if path else place
            only_keys(found, error.schema["properties"], where, quote=False)
            rule = "must hold no unknown key"
        case "type":
            rule = "must be " + " or ".join([expected] if isinstance(expected, str) else expected)
        case "enum" | "const":
            options = expected if isinstance(expected, list) else [expected]
            rule = "must be one of " + ", ".join("null" if v is None else str(v) for v in options)
        case name:
            rule = _RULES.get(str(name), f"must keep the schema's {name}").format(expected)
    raise InputError(place, _dotted(path), rule, describe(found))


def _dotted(path: tuple[str | int, ...]) -> str:
    """Dotted name of a field; a key that is no field's name is data and is only described."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            name = key if key in _field_names() else f"<key of {len(key)} code points>"
            text += f".{name}" if text else name
    return text


@cache
def _field_names() -> frozenset[str]:
    def names(schema: dict[str, Any]) -> Iterator[str]:
        for key, inner in schema.get("properties", {}).items():
            yield key
            yield from names(inner)
        if "items" in schema:
            yield from names(schema["items"])

    return frozenset(names(manifest_schema()))
