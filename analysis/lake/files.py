"""One table of the store as Parquet files of a lake, there and back.

Columns and types are the tables' own; JSON is text, because few readers know its type.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from analysis.database import REBUILD, SCHEMA
from analysis.errors import StoreError
from analysis.lake.layout import KEYS, LEDGER_TABLES, REPORT_TABLES
from analysis.sqlfiles import literal, quoted
from replay.canonical import canonical_json
from replay.limitations import LIMITATIONS
from replay.strict import named_version, printable

ROW_GROUP_ROWS = 122_880
# So that a reader who asks for one series, or one stretch of time, skips the other row groups.
# Modelled tables are in order already: of their events, and of the workload.
_ORDER = {
    "measured_requests": "arrival_us, engine, request_id",
    "measured_events": "engine, seq",
    "measured_steps": "engine, step",
    "metric_samples": "name, engine, scrape",
}
_HIVE = f"hive_partitioning = true, hive_types = {{{', '.join(f'{k}: VARCHAR' for k in KEYS)}}}"


def columns(db: duckdb.DuckDBPyConnection, name: str, schema: str = "main") -> dict[str, str]:
    """Names and types of a table's or view's columns, in order."""
    query = (
        "SELECT column_name, data_type FROM duckdb_columns()"
        " WHERE schema_name = ? AND table_name = ? ORDER BY column_index"
    )
    return dict(db.execute(query, [schema, name]).fetchall())


def export(
    db: duckdb.DuckDBPyConnection, name: str, where: Mapping[str, str | None], path: Path
) -> None:
    """Write the rows of a table that have these keys, none included."""
    chosen = _chosen(columns(db, name), "JSON", "VARCHAR")
    keys = (f"{key} IS NOT DISTINCT FROM {_value(value)}" for key, value in where.items())
    order = f" ORDER BY {_ORDER[name]}" if name in _ORDER else ""
    said = {"schema": SCHEMA, "table": name} | _labels(db, name, where)
    metadata = ", ".join(f"{quoted(key)}: {literal(text)}" for key, text in said.items())
    db.execute(
        f"COPY (SELECT {chosen} FROM {name} WHERE {' AND '.join(keys)}{order})"  # noqa: S608
        f" TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd,"
        f" ROW_GROUP_SIZE {ROW_GROUP_ROWS}, KV_METADATA {{{metadata}}})"
    )


def selection(names: Mapping[str, str], name: str, files: Sequence[Path]) -> str:
    """SQL of the rows of a table in these files, as the table's columns `names` have them."""
    if not files:
        nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(c)}" for c, kind in names.items())
        return f"SELECT {nulls} WHERE false"
    paths = ", ".join(literal(str(file)) for file in files)
    hive = "hive_partitioning = false" if name in REPORT_TABLES else _HIVE
    return f"SELECT {_chosen(names, 'JSON', 'JSON')} FROM read_parquet([{paths}], {hive})"  # noqa: S608


def check_versions(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Refuse files that are not of this layout, by name."""
    if not files:
        return
    query = (
        "SELECT f.name, decode(m.value) FROM unnest($1) AS f(name)"
        " LEFT JOIN parquet_kv_metadata($1) AS m ON m.file_name = f.name AND m.key = 'schema'"
        " WHERE m.value IS DISTINCT FROM encode($2) LIMIT 1"
    )
    found = db.execute(query, [[str(file) for file in files], SCHEMA]).fetchone()
    if found is not None:
        place = printable(found[0], 300)
        raise StoreError(f"{place}: must be {SCHEMA}, got {named_version(found[1])}; {REBUILD}")


def _chosen(names: Mapping[str, str], kind: str, written: str) -> str:
    return ", ".join(
        f"CAST({quoted(c)} AS {written}) AS {quoted(c)}" if found == kind else quoted(c)
        for c, found in names.items()
    )


def _value(value: str | None) -> str:
    return "NULL" if value is None else literal(value)


def _labels(
    db: duckdb.DuckDBPyConnection, name: str, where: Mapping[str, str | None]
) -> dict[str, str]:
    """What every export says: a ledger's own limitations and what-ifs, else what none models."""
    if name not in LEDGER_TABLES:
        return {"limitations": canonical_json(list(LIMITATIONS)).decode()}
    query = (
        "SELECT receipt -> '$.limitations', receipt -> '$.what_ifs' FROM modelled_ledgers"
        " WHERE ledger_id = $ledger_id AND run_id IS NOT DISTINCT FROM $run_id"
    )
    (found,) = db.execute(query, dict(where)).fetchall()
    labels = dict(zip(("limitations", "what_ifs"), found, strict=True))
    return {key: text for key, text in labels.items() if text is not None}
