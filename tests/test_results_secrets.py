"""No text of a result file gets out: planted everywhere, it reaches no output and no message."""

import copy
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from results_files import FILES

from collectors.results import FORMATS
from collectors.results.rows import Measured
from collectors.results.runs import write_runs
from collectors.traces.result import write_attempts
from replay.errors import InputError
from replay.workload_frame import write_workload_batches

SECRET = "sk-SECRET"  # noqa: S105 - that is what it is for
NESTED = {f"{SECRET}-key": {SECRET: [SECRET, {SECRET: SECRET}], "text": SECRET}}
# One recorded file of each shape; values a reader must understand are replaced one by one below.
PLANTED = [
    (name, path)
    for name, paths in FILES.items()
    for path in paths
    if path.stem not in {"summary", "sampled", "all-failed"}
]
NEEDED = {"unit", "benchmark_phase", "version", "guidellm_version", "status"}


def load(path: Path) -> list[Any]:
    """The file's JSON values."""
    text = path.read_text().strip()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    found, decoder = [], json.JSONDecoder()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


def save(path: Path, found: list[Any]) -> Path:
    """The same as a file."""
    path.write_text("\n".join(json.dumps(value) for value in found))
    return path


def planted(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """A secret in every text that no reader needs, and in every object as keys and below."""
    match value:
        case dict():
            inner = {key: planted(one, (*path, key)) for key, one in value.items()}
            return inner | copy.deepcopy(NESTED)
        case list():
            return [planted(one, (*path, k)) for k, one in enumerate(value)]
        case str() if value and not (
            path[-1] in NEEDED or value.isdigit() or path[-1] in {"name", "key"}
        ):
            return f"{value} {SECRET}"
    return value


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Path to every single value, of lists the first two entries."""
    if path and not isinstance(value, dict | list):
        yield path
    items = value.items() if isinstance(value, dict) else ()
    items = islice(enumerate(value), 2) if isinstance(value, list) else items
    for key, inner in items:
        yield from leaves(inner, (*path, key))


def with_text(found: list[Any], path: tuple[Any, ...], text: Any) -> list[Any]:
    """A copy with one value replaced."""
    whole = copy.deepcopy(found)
    at: Any = whole
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = text
    return whole


def texts(path: Path) -> Iterator[str]:
    """All that a Parquet file says: values, column names, key-value metadata, statistics."""
    frame = pl.read_parquet(path)
    yield from frame.columns
    for column in frame.select(pl.col(pl.String)).iter_columns():
        yield from (value for value in column.to_list() if value is not None)
    for table in ("parquet_kv_metadata", "parquet_metadata", "parquet_schema"):
        rows = duckdb.execute(f"SELECT * FROM {table}(?)", [str(path)]).fetchall()  # noqa: S608
        yield from (str(value) for row in rows for value in row if value != str(path))


def outputs(found: list[Measured], place: Path) -> Iterator[tuple[str, str]]:
    """Every text of every file that can be made, and which file it is in."""
    for k, measured in enumerate(found):
        result = measured.workload("file", 1000)
        write_workload_batches(result.batches, place / f"{k}.parquet", ".parquet")
        write_workload_batches(result.batches, place / f"{k}.json", ".json")
        write_attempts(result, place / f"{k}.attempts.parquet")
    write_runs(found, place / "run")
    for path in place.rglob("*"):
        if path.is_file() and path.suffix == ".parquet":
            yield from ((path.name, text) for text in texts(path))
        elif path.is_file():
            yield path.name, path.read_text()


def check(found: list[Measured], place: Path) -> None:
    """No secret is anywhere, but as the model's name in the private run's manifest."""
    place.mkdir()
    for name, text in outputs(found, place):
        told = text
        if name == "manifest.json":
            manifest = json.loads(text)
            manifest["model"]["name"] = None
            told = json.dumps(manifest)
        assert SECRET not in told, name


@pytest.mark.parametrize(
    ("name", "path"),
    PLANTED,
    ids=[f"{name}/{path.parent.name}/{path.stem}" for name, path in PLANTED],
)
def test_no_planted_text_reaches_an_output(tmp_path: Path, name: str, path: Path) -> None:
    """Every text at once, every object with secret keys: the file is read, and says nothing."""
    raw = [planted(value) for value in load(path)]
    if name == "vllm-bench":  # an error that is empty means success
        for value, was in zip(raw, load(path), strict=True):
            value["errors"] = [text and SECRET for text in was["errors"]]
    assert SECRET in json.dumps(raw)
    check(FORMATS[name].read(save(tmp_path / SECRET, raw)), tmp_path / "out")


@pytest.mark.parametrize("name", FORMATS)
def test_no_replaced_value_reaches_an_output_or_a_message(tmp_path: Path, name: str) -> None:
    """One value after another becomes a secret: the file is refused or read, without a word."""
    path = next(path for kind, path in PLANTED if kind == name)
    found, refused = load(path), 0
    for k, place in enumerate(leaves(found)):
        for value in (SECRET, {SECRET: SECRET}):
            raw = save(tmp_path / "in", with_text(found, place, value))
            measured, message = tried(name, raw)
            assert SECRET not in message
            refused += bool(message)
            if measured and k % 13 == 0:
                check(measured, tmp_path / f"out-{k}-{len(str(value))}")
            else:
                assert SECRET not in "".join(told for one in measured for told in said(one))
    assert refused


def tried(name: str, path: Path) -> tuple[list[Measured], str]:
    """What a file gives, or the message and its cause."""
    try:
        return FORMATS[name].read(path), ""
    except InputError as exc:
        return [], f"{exc} {exc.__cause__!r}"


def said(measured: Measured) -> Iterator[str]:
    """Texts of a benchmark, but its model's name."""
    yield from measured.notes
    yield str(measured.tool_version)
    for column in measured.rows.select(pl.col(pl.String)).iter_columns():
        yield from column.drop_nulls().to_list()
