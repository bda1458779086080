"""Inputs with secrets in them for the sanitizer's tests, and everything its outputs say."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from collectors.columns import DIRECTORIES
from collectors.manifest import manifest_schema
from collectors.run import Run, read_run
from collectors.writer import RunWriter, new_manifest
from preempt.main import main
from replay.workload import Request, Workload
from replay.workload_file import read_workload, write_workload

CHECKOUT = Path(__file__).resolve().parent.parent
BASE = CHECKOUT / "fixtures" / "runs" / "base-1"
SECRETS = {
    "key": "sk-proj-4f9Q7hT2xW",
    "mail": "jane.roe@example.org",
    "path": "/home/jane/models/x",
    "word": "hunter2",
    "long": "zebra-" + "q" * 122,
    "foreign": "Geheimnis-Ümlaut-秘密",
}
KEY = "0123456789abcdef" * 4
OTHER_KEY = "fedcba9876543210" * 4


@dataclass(frozen=True)
class Ended:
    """How the command ended, and what it wrote to whom."""

    code: object
    out: str
    err: str


def preempt(*arguments: object) -> Ended:
    """Run the command in this process."""
    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return Ended(left.value.code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def key_file(folder: Path, key: str = KEY) -> Path:
    """A file with a key, as the command makes one."""
    path = folder / f"key-{key[:4]}"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(key + "\n")
    return path


@dataclass(frozen=True)
class Sanitized:
    """What the command made of an input, and how it ended."""

    ended: Ended
    folder: Path
    workload: Path = field(init=False)
    run: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "workload", self.folder / "w.parquet")
        object.__setattr__(self, "run", self.folder / "w.run")

    def read_workload(self) -> Workload:
        """The workload made."""
        return read_workload(self.workload)

    def column(self, name: str) -> list[Any]:
        """A column of the workload made."""
        return pl.read_parquet(self.workload)[name].to_list()

    def read_run(self) -> Run:
        """The run made."""
        return read_run(self.run)


def sanitized(path: Path, folder: Path, *options: object, key: str = KEY) -> Sanitized:
    """Sanitize into a new folder; the key lies elsewhere."""
    folder.mkdir(parents=True)
    keys = folder.parent / "keys"
    keys.mkdir(exist_ok=True)
    made = folder / "w.parquet"
    ended = preempt("sanitize", path, "-o", made, "--key-file", key_file(keys, key), *options)
    return Sanitized(ended, folder)


def done(result: Sanitized) -> Sanitized:
    """The result of what has to succeed, privacy check included."""
    assert (0, "") == (result.ended.code, result.ended.out), result.ended.err
    checked = preempt("sanitize", "--check", result.folder)
    assert 0 == checked.code, checked.err
    return result


def said(folder: Path) -> str:
    """Everything that the files of a folder say: names, bytes, and of Parquet all it has inside."""
    told = []
    for path in sorted(folder.rglob("*")):
        told.append(str(path.relative_to(folder)))
        if path.is_file():
            told.append(path.read_bytes().decode(errors="replace"))
            told += _inside_json(path) if path.suffix in (".json", ".jsonl") else ()
            told += _inside_parquet(path) if path.suffix == ".parquet" else ()
    return "\n".join(told)


def _inside_json(path: Path) -> Iterator[str]:
    for line in [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines():
        yield json.dumps(json.loads(line), ensure_ascii=False)


def _inside_parquet(path: Path) -> Iterator[str]:
    with duckdb.connect() as base:
        for table in (
            "read_parquet",
            "parquet_schema",
            "parquet_metadata",
            "parquet_file_metadata",
            "parquet_kv_metadata",
        ):
            # The file's own name is the test's, not the file's.
            columns = "*" if table == "read_parquet" else "* EXCLUDE (file_name)"
            found = base.execute(f"SELECT {columns} FROM {table}(?)", [str(path)])  # noqa: S608
            yield " ".join(column[0] for column in found.description or ())
            for row in found.fetchall():
                yield " ".join(_text(value) for value in row)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Mapping):
        return " ".join(map(_text, (*value.keys(), *value.values())))
    return str(value)


def leaks(result: Sanitized, secrets: Sequence[str]) -> list[str]:
    """The secrets that anything of the result says, in any way of writing them."""
    told = said(result.folder) + result.ended.out + result.ended.err
    return [secret for secret in secrets if any(way in told for way in _ways(secret))]


def _ways(secret: str) -> set[str]:
    escaped = secret.encode("unicode_escape").decode()
    return {secret, json.dumps(secret)[1:-1], escaped, secret.encode().hex()}


def workload(**changes: Any) -> Workload:
    """Three requests of two tenants, with what a workload says of itself."""
    requests = (
        Request("a-1", 5_000_000, 600, 3, tenant="anna", prefix_blocks=(7, 9)),
        Request("b-2", 5_250_000, 512, 40, priority=-2, tenant="bert", prefix_blocks=(7,)),
        Request("c-3", 6_000_000, 10, 1),
    )
    return Workload(**{"requests": requests, "prefix_block_tokens": 512, "name": "mine", **changes})


def write(found: Workload, path: Path) -> Path:
    """Write a workload by the suffix of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_workload(found, path, path.suffix)
    return path


def counting(**reasons: int) -> dict[str, Any]:
    """Provenance as an importer leaves it, with the attempts by reason."""
    return {"attempts": reasons}


def attempts(path: Path, rows: Sequence[Sequence[Any]], **metadata: str) -> Path:
    """The attempts beside a workload."""
    names = ("source_row", "reason", "arrival_us", "prompt_tokens", "output_tokens")
    kinds = dict.fromkeys(names, pl.Int64()) | {"reason": pl.String()}
    beside = path.with_name(f"{path.stem}.attempts.parquet")
    frame = pl.DataFrame(rows, schema=kinds, orient="row")
    frame.write_parquet(beside, metadata={"schema": "preemption-attempts/1"} | metadata)
    return beside


def manifest(run_id: str = "my-run", **sections: Any) -> dict[str, Any]:
    """A raw run's manifest with sections replaced."""
    found = new_manifest(run_id, "observed", start=datetime(2026, 11, 30, 9, tzinfo=UTC))
    return found | deepcopy(sections)


def request_row(request_id: str, arrival_us: int, **changes: Any) -> dict[str, Any]:
    """A row of `measured_requests`."""
    row = {
        "request_id": request_id,
        "engine": 0,
        "arrival_us": arrival_us,
        "prompt_tokens": 100,
        "generated_tokens": 10,
        "status": "ok",
        "finish_reason": "length",
    }
    return row | changes


def event_row(request_id: str, seq: int, **changes: Any) -> dict[str, Any]:
    """An arrive event."""
    row = {"engine": 0, "seq": seq, "step": seq, "time_us": 10 * seq, "kind": "arrive"}
    return row | {"request_id": request_id} | changes


def sample_row(name: str, value: float = 1.0, **changes: Any) -> dict[str, Any]:
    """A sample of a metric."""
    row = {"scrape": 0, "time_us": 7, "engine": 0, "model": "m", "name": name, "labels": "{}"}
    return row | {"value": value} | changes


def raw_run(
    path: Path,
    found: Mapping[str, Any],
    *,
    offered: Workload | None = None,
    **tables: Sequence[Mapping[str, Any]],
) -> Path:
    """Write a raw run; tables by the name of their folder."""
    folders = {folder: table for table, folder in DIRECTORIES.items()}
    with RunWriter.create(path, dict(found)) as writer:
        if offered is not None:
            writer.write_offered(offered)
        for folder, rows in tables.items():
            writer.write_part(folders[folder], pl.DataFrame(rows, infer_schema_length=None))
    return path


def text_fields(schema: Mapping[str, Any] | None = None) -> Iterator[tuple[str | int, ...]]:
    """Paths of every place of a manifest that can hold a text, keys of open tables included.

    An int stands for the first entry of a list, `{}` for a key of an open table.
    """
    yield from _texts(manifest_schema() if schema is None else schema, ())


def _texts(
    schema: Mapping[str, Any], path: tuple[str | int, ...]
) -> Iterator[tuple[str | int, ...]]:
    kinds = schema.get("type", ())
    if "string" in ([kinds] if isinstance(kinds, str) else kinds):
        yield path
    for key, inner in schema.get("properties", {}).items():
        yield from _texts(inner, (*path, key))
    if "items" in schema:
        yield from _texts(schema["items"], (*path, 0))
    if isinstance(schema.get("additionalProperties"), dict):
        yield (*path, "{}")
        yield from _texts(schema["additionalProperties"], (*path, "any"))


def planted(found: Mapping[str, Any], path: Sequence[str | int], text: str) -> dict[str, Any]:
    """A manifest with a text in one place, and what has to be around it."""
    whole = deepcopy(dict(found))
    _plant(whole, path, text, manifest_schema())
    return whole


def _plant(where: Any, path: Sequence[str | int], text: str, schema: Mapping[str, Any]) -> None:
    key, *rest = path
    if key == "{}":
        where[text] = _some(schema["additionalProperties"])
    elif key == 0:
        where.append(_some(schema["items"]))
        _put(where, 0, rest, text, schema["items"])
    elif key == "any" and "properties" not in schema:
        _put(where, "num_preemptions", rest, text, schema["additionalProperties"])
    else:
        _put(where, key, rest, text, schema["properties"][key])


def _put(
    where: Any, key: Any, rest: Sequence[str | int], text: str, schema: Mapping[str, Any]
) -> None:
    if not rest:
        where[key] = text
        return
    if isinstance(where, dict) and where.get(key) is None:
        where[key] = [] if "items" in schema else {}
    _plant(where[key], rest, text, schema)


def _some(schema: Mapping[str, Any]) -> Any:
    """A value that keeps a schema's rule."""
    kinds = schema.get("type")
    if kinds == "object":
        return {key: _some(schema["properties"][key]) for key in schema["required"]}
    if isinstance(kinds, list) and "null" in kinds:
        return None
    return "x" if kinds == "string" else 0


def found(path: Path) -> list[tuple[str, str, str]]:
    """The check's findings, which it also tells by its exit code and on standard error."""
    ended = preempt("sanitize", "--check", path, "--json")
    told = json.loads(ended.out)["findings"] if ended.out else []
    assert ended.code == (1 if told else 0), ended.err
    findings = [(one["place"], one["column"], one["kind"]) for one in told]
    for place, column, kind in findings:
        assert ": ".join(part for part in (place, column, kind) if part) in ended.err
    return findings


def kinds(path: Path) -> set[str]:
    """The kinds of findings."""
    return {kind for _, _, kind in found(path)}
