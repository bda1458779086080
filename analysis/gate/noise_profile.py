"""The noise profile as a file: `preemption-noise-profile/1`, read strictly, matched by its words.

`noise` makes one from runs, `screen` judges a few runs by one.
"""

from collections.abc import Mapping
from importlib.resources import files
from math import log
from pathlib import Path
from typing import Any

from analysis.gate.contract import Gate, Predicate
from replay.canonical import canonical_json, sha256
from replay.errors import InputError, describe
from replay.strict import check_schema, parse_json, printable, read_text, table

NOISE_SCHEMA = "preemption-noise-profile/1"
LEAST_RUNS = 10
_MOST_BYTES = 4 * 2**20
Record = Mapping[str, Any]


def read_profile(path: Path) -> Record:
    """Profile of a file: by its schema, unchanged since it was made; else `InputError`."""
    place = printable(str(path), 200)
    record = table(parse_json(read_text(path, _MOST_BYTES), place), place, "")
    check_schema(record.get("schema"), NOISE_SCHEMA, place)
    _check_shape(record, place)
    own = {k: v for k, v in record.items() if k != "profile_sha256"}
    if record["profile_sha256"] != sealed(own)["profile_sha256"]:
        raise InputError(place, "profile_sha256", "must be the hash of the profile: it was changed")
    for k, entry in enumerate(record["entries"]):
        if len(entry["values"]) != len(record["runs"]):
            rule = "must have one number a run"
            raise InputError(place, f"entries[{k}].values", rule, describe(entry["values"]))
    return record


def key_of(fields: Record) -> str:
    """Hash of every field that equal runs share, as reports show them."""
    return sha256(canonical_json(dict(fields)))


def question_of(gate: Gate, predicate: Predicate, statistic: str) -> dict[str, Any]:
    """What two numbers have to have in common to be of one kind; a slice's name is none of it."""
    part = gate.slice_of(predicate)
    return {
        "kind": predicate.kind,
        "field": predicate.field,
        "statistic": statistic,
        "where": {} if part is None else part.conditions,
        "floor_us": predicate.floor_us,
        "slo": dict(predicate.slo or ()),
    }


def scaled(value: float, floor_us: int | None) -> float:
    """The number whose spread is kept: a latency's logarithm, a share as it is."""
    return value if floor_us is None else log(value + floor_us)


def sealed(body: Record) -> dict[str, Any]:
    """The profile with its own hash."""
    return {**body, "profile_sha256": sha256(canonical_json(dict(body)))}


def _check_shape(record: Record, place: str) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    text = files("analysis").joinpath("schemas", "noise-profile.schema.json").read_text("utf-8")
    validator = Draft202012Validator(parse_json(text, "noise-profile.schema.json"))
    fault = best_match(validator.iter_errors(record))
    if fault is not None:
        where = printable(".".join(str(part) for part in fault.absolute_path), 120)
        rule = f"must be as the schema of {NOISE_SCHEMA} has it ({fault.validator})"
        raise InputError(place, where, rule)
