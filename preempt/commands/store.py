"""`preempt load` and `preempt sql`: fill a store, and ask it questions."""

import os
import shutil
import sys
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.progress import Counter, Progress, progress_shown
from preempt.commands.unfinished import say_unfinished
from replay.errors import InputError
from replay.strict import printable

if TYPE_CHECKING:
    from analysis.query import Result
    from analysis.store import Loaded, Notice

FORMATS = ("table", "csv", "json", "parquet")


@click.command("load")
@click.argument("paths", metavar="PATH...", type=options.PATH, nargs=-1, required=True)
@click.option("--db", "database", type=options.PATH, help="Database file, made if missing.")
@click.option(
    "--lake", type=options.PATH, help="Directory of Parquet partitions instead, made if missing."
)
@click.option("--refresh", is_flag=True, help="Replace runs that are loaded with other content.")
@click.option(
    "--verify",
    "check",
    type=click.Choice(("auto", "events", "columns")),
    default="auto",
    show_default=True,
    help="How ledgers are checked: each event derived again, or whole columns. auto: columns where"
    " there are more than 50,000 events.",
)
@options.quiet
@options.as_json
def load_command(
    paths: tuple[Path, ...],
    database: Path | None,
    lake: Path | None,
    refresh: bool,
    check: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Load ledgers, measured runs and gate reports into a DuckDB file or a lake.

    PATH is a ledger directory (receipt.json), a run directory (manifest.json), a gate report
    (.json), or a directory whose entries are ledgers or runs, or theirs are (the output of preempt
    collect run); other entries are left alone.

    Each PATH is loaded whole or not at all, so a load that was stopped can be run again: what is
    there already is skipped. A run that was loaded while it was collected is brought up to date;
    one with any other content is refused, unless --refresh replaces it. A ledger
    that preempt verify would reject is refused. The database is disposable: the
    Parquet files are the source of truth, delete it and load again at any time. It is as private
    as what was loaded; the file is made readable for its owner only. A lake (--lake) holds the
    same rows as Hive-partitioned Parquet, which other engines read, too: docs/lake.md.

    \b
    Examples:
      preempt load runs/base-1 ledgers/ --db store.duckdb
      preempt sql --named worst_requests --db store.duckdb
      preempt load runs/base-1 ledgers/ --lake lake/
    """
    from analysis import store

    target = _one_of(database, lake)
    loaded: list[Loaded] = []
    for path in paths:  # before a database is made for nothing
        store.sources(path)
    with _private_files(), _loader(database, lake, refresh=refresh, check=check) as load:
        for path in paths:
            with progress_shown(quiet=quiet) as progress:
                found = load(path, lambda part: _loading(progress, part))
            for item in found:  # at once, because a later path may be refused
                place = printable(str(item.path), 200)
                say(f"{place}: {item.kind} {printable(item.id)} {item.state}", quiet=quiet)
                if item.kind == "run":
                    say_unfinished(item.path, quiet=quiet)
            loaded += found
    states = Counts(item.state for item in loaded)
    shown = [f"{states[s]} {s}" for s in store.STATES if states[s] or s != store.REFRESHED]
    say(f"{target}: {', '.join(shown)}", quiet=quiet)
    if as_json:
        entries = [
            {
                "path": str(item.path),
                "kind": item.kind,
                "id": item.id,
                "run_id": item.run_id,
                "added": item.added,
                "state": item.state,
            }
            for item in loaded
        ]
        summary = {state.replace(" ", "_"): states[state] for state in store.STATES}
        name = "db" if lake is None else "lake"
        options.print_json({name: str(target), "loaded": entries, **summary})


@click.command("sql")
@click.argument("query")
@click.option("--db", "database", type=options.PATH, help="Database made by preempt load.")
@click.option("--lake", type=options.PATH, help="Lake made by preempt load --lake, instead.")
@click.option("--named", is_flag=True, help="QUERY is the name of a query; list shows them.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How rows are written.",
)
@click.option("--out", type=options.PATH, help="Write there instead of standard output.")
@click.option(
    "--rows",
    "max_rows",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Most rows a table shows; the other formats write all.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds after which the query is stopped.",
)
@options.force
@options.quiet
def sql_command(
    query: str,
    database: Path | None,
    lake: Path | None,
    named: bool,
    output_format: str,
    out: Path | None,
    max_rows: int,
    timeout: float,
    force: bool,
    quiet: bool,
) -> None:
    """Run one read-only QUERY against a store; - reads it from standard input.

    Anything that only reads will do: SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE,
    EXPLAIN. The database is opened read-only, and a query can reach no file, no network and no
    setting. Names say what a number is: modelled_… is declared arithmetic (ticks are not
    latency), measured_… is from a real engine; a column without either is what its table is.
    NULL is unknown, never zero. SHOW TABLES and DESCRIBE show what there is, docs/store.md
    explains it; SELECT * FROM limitations says what a ledger does not model.

    \b
    Examples:
      preempt sql --named list
      preempt sql --named worst_requests --db store.duckdb
      preempt sql "SELECT run_id, count(*) FROM measured_requests GROUP BY ALL" --db store.duckdb
      preempt sql - --db store.duckdb --format parquet --out joined.parquet < joined.sql
    """
    from analysis.named import named_query
    from analysis.query import open_query

    if named and query == "list":
        _list_named()
        return
    target = _one_of(database, lake)
    if out is not None:
        _check_out(out, database, lake)
    if output_format == "parquet" and out is None and sys.stdout.isatty():
        raise InputError(
            "--format", "", "parquet is not for a terminal; give --out FILE or pipe it"
        )
    text = named_query(query).text if named else _query_text(query)
    with open_query(target, text, lake=lake is not None, timeout_seconds=timeout) as result:
        shown = _write(result, output_format, out, max_rows, force=force)
    if shown is not None:
        rows, more = shown
        counted = f"{rows} row{'s' * (rows != 1)}"
        hint = f"first {counted}; there are more: --rows shows more, --format csv all"
        say(hint if more else counted, quiet=quiet)


def _one_of(database: Path | None, lake: Path | None) -> Path:
    """The one of the two that was named."""
    if database is not None and lake is not None:
        raise click.UsageError("--db or --lake, not both.", click.get_current_context())
    target = lake if database is None else database
    if target is None:
        raise click.UsageError("Missing option '--db' or '--lake'.", click.get_current_context())
    return target


@contextmanager
def _loader(
    database: Path | None, lake: Path | None, *, refresh: bool, check: str
) -> Iterator[Callable[[Path, "Notice"], list["Loaded"]]]:
    """What loads a path into the one of the two that was named."""
    from analysis import store
    from analysis.lake.loading import load_path

    if lake is not None:
        yield lambda path, notice: load_path(lake, path, notice, refresh=refresh, check=check)
        return
    with store.connect(database) as db:
        yield lambda path, notice: store.load_path(db, path, notice, refresh=refresh, check=check)


def _check_out(out: Path, database: Path | None, lake: Path | None) -> None:
    """Refuse to write over what is asked, or into it."""
    place = printable(str(out), 200)
    if database is not None and out.exists() and database.exists() and out.samefile(database):
        raise InputError(place, "", "is the database; choose another path")
    if lake is not None and out.resolve().is_relative_to(lake.resolve()):
        raise InputError(place, "", "is in the lake; choose another path")


def _query_text(query: str) -> str:
    if query != "-":
        return query
    from analysis.query import MAX_QUERY_CHARACTERS
    from replay.strict import decode

    # Four bytes a character; what is longer is refused by its length.
    return decode(sys.stdin.buffer.read(4 * MAX_QUERY_CHARACTERS + 1), "standard input")


def _list_named() -> None:
    from analysis.named import named_queries

    for query in named_queries():
        click.echo(f"{query.name}: one row per {query.grain}")
        click.echo(f"    {query.question}")


def _write(
    result: "Result", output_format: str, out: Path | None, max_rows: int, *, force: bool
) -> tuple[int, bool] | None:
    """Write the rows; of a table, how many there were and whether more exist."""
    from analysis import render
    from replay.output import new_file

    with ExitStack() as stack:
        path = None if out is None else stack.enter_context(new_file(out, force=force))
        if output_format == "table":
            file = None if path is None else stack.enter_context(path.open("w", encoding="utf-8"))
            return render.print_table(result, options.console(file=file), max_rows)
        binary = sys.stdout.buffer if path is None else stack.enter_context(path.open("wb"))
        if output_format == "parquet":
            with result.to_parquet().open("rb") as source:
                shutil.copyfileobj(source, binary)
        elif output_format == "csv":
            binary.writelines(render.csv_chunks(result))
        else:
            binary.writelines(render.json_chunks(result))
    return None


def _loading(progress: Progress, path: Path) -> Counter | None:
    return progress.events(f"loading {path}")


@contextmanager
def _private_files() -> Iterator[None]:
    """New files are their owner's only: a raw run is private, and so is what is loaded of it."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
