"""The store's tables as views on a lake's files, so that the same SQL is asked of both."""

from pathlib import Path

import duckdb

from analysis.database import CONFIG, SCHEMA, create_views, one_line
from analysis.errors import StoreError
from analysis.lake.files import check_versions, columns, selection
from analysis.lake.layout import GROUPS, check_contents, check_root, entries
from analysis.sqlfiles import TABLES, literal, quoted, sql
from replay.strict import printable
from replay.version import __version__

_LAYOUT = "layout"  # schema in which the tables are made to be looked at


def make_views(root: Path, database: Path) -> list[Path]:
    """Make a new database of nothing but views on the lake; the files that it needs to read.

    Only what the lake holds whole is seen: what has a record.
    """
    root = check_root(root)
    place = printable(str(root), 200)
    if not root.is_dir():
        found = "not a directory" if root.exists() else "no such directory"
        raise StoreError(f"{place}: {found}; preempt load --lake makes the lake")
    check_contents(root)
    files: dict[str, list[Path]] = {}
    for tables in GROUPS:
        known = entries(root, tables)
        files |= {name: [entry.files[name] for entry in known] for name in tables}
    if not any(files.values()):
        raise StoreError(f"{place}: holds nothing that preempt load --lake made")
    try:
        with duckdb.connect(database.absolute(), config=CONFIG) as db:
            for tables in GROUPS:
                check_versions(db, files[tables[-1]])
            db.execute("BEGIN TRANSACTION")  # one, because each would wait for the disk
            _tables(db)
            for name, paths in files.items():
                _view(db, name, paths)
            db.execute(f"DROP SCHEMA {_LAYOUT} CASCADE")
            create_views(db)
            db.execute("INSERT INTO store_info VALUES (?, ?)", [SCHEMA, __version__])
            db.execute("COMMIT")
    except duckdb.Error as exc:
        raise StoreError(f"{place}: cannot be read; {one_line(exc)}") from exc
    return [path for paths in files.values() for path in paths]


def _tables(db: duckdb.DuckDBPyConnection) -> None:
    """The store's tables, empty, apart from the one that is not a view of files."""
    db.execute(f"CREATE SCHEMA {_LAYOUT}")
    for name in TABLES:
        db.execute(f"USE {'main' if name == 'store_info' else _LAYOUT}")
        db.execute(sql("tables", name))
    db.execute("USE main")


def _view(db: duckdb.DuckDBPyConnection, name: str, files: list[Path]) -> None:
    """A view with a table's columns, types and comments."""
    wanted = columns(db, name, _LAYOUT)
    db.execute(f"CREATE VIEW {name} AS {selection(wanted, name, files)}")
    found = columns(db, name)
    if found != wanted:
        wrong = next(c for c in wanted if found[c] != wanted[c])
        rule = f"must be a column of type {wanted[wrong]}, got {found[wrong]}"
        raise StoreError(f"{printable(str(files[0]), 300)}: {wrong} {rule}")
    query = (
        "SELECT 'COLUMN ' || table_name, column_name, comment FROM duckdb_columns()"
        " WHERE schema_name = $1 AND table_name = $2 UNION ALL"
        " SELECT 'VIEW', table_name, comment FROM duckdb_tables()"
        " WHERE schema_name = $1 AND table_name = $2"
    )
    for kind, part, comment in db.execute(query, [_LAYOUT, name]).fetchall():
        of = f"VIEW {name}" if kind == "VIEW" else f"COLUMN {name}.{quoted(part)}"
        db.execute(f"COMMENT ON {of} IS {literal(comment)}")
