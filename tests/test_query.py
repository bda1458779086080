"""A stranger's query: it reads, it ends, it reaches nothing else, and every cell is exact."""

import csv
import hashlib
import io
import json
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner, Result
from paged import paged
from rich.console import Console
from stored import lab_ledger, recorded, stepped_ledger, with_counter

from analysis import render, sqlfiles, store
from analysis.errors import QueryError, StoreError
from analysis.named import named_queries, named_query
from analysis.query import CHUNK_ROWS, MAX_QUERY_CHARACTERS, open_query
from preempt.commands.store import sql_command
from preempt.main import main
from replay.limitations import LIMITATIONS

DOCS = Path(__file__).parent.parent / "docs" / "store.md"
ENGINE_POLICIES = ((None, None), ("swap", None), (None, "least-computed"))
ENDLESS = "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM a) SELECT count(*) FROM a"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two runs and two ledgers, and of a run of metrics alone."""
    file = tmp_path_factory.mktemp("store") / "store.duckdb"
    with store.connect(file) as db:
        for run in ("base-1", "cand-80"):
            store.load_run(db, recorded(run))
        store.load_run(db, paged("scraped"))
        for recovery in ("recompute", "swap"):
            store.load_ledger(db, lab_ledger(recovery))
    return file


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a run and its counter, its replay from its own steps, and two what-ifs of it."""
    file = tmp_path_factory.mktemp("store") / "store.duckdb"
    with store.connect(file) as db:
        run = with_counter(recorded(), {0: range(200)})
        histograms = paged("base-1").samples.filter(pl.col("le").is_not_null())
        store.load_run(db, replace(run, samples=pl.concat([run.samples, histograms])))
        for policy in ENGINE_POLICIES:
            store.load_ledger(db, stepped_ledger(*policy))
    return file


def fetched(path: Path, query: str, **options: Any) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    with open_query(path, query, **options) as result:
        return [row for rows in result.chunks() for row in rows]


def written(chunks: Callable[..., Any], path: Path, query: str) -> str:
    """What one of the writers makes of a query."""
    with open_query(path, query) as result:
        return b"".join(chunks(result)).decode()


def table(path: Path, query: str, width: int, max_rows: int = 100) -> str:
    """The table a person sees on a terminal of that width."""
    console = Console(file=io.StringIO(), width=width)
    with open_query(path, query) as result:
        render.print_table(result, console, max_rows)
    shown: str = console.file.getvalue()  # type: ignore[attr-defined]
    return shown


def sql(*arguments: object, stdin: str | bytes = "") -> Result:
    """The command's result, with errors as exceptions."""
    words = [str(a) for a in arguments]
    return CliRunner().invoke(sql_command, words, input=stdin, catch_exceptions=False)


# What may run.


@pytest.mark.parametrize(
    "query",
    [
        "SELECT run_id FROM measured_runs",
        "FROM measured_runs",
        "WITH a AS (SELECT 1) FROM a",
        "VALUES (1), (2)",
        "TABLE measured_runs",
        "DESCRIBE measured_runs",
        "DESCRIBE SELECT 1",
        "SHOW TABLES",
        "SUMMARIZE measured_steps",
        "EXPLAIN SELECT 1",
        "EXPLAIN ANALYZE SELECT 1",
        "PIVOT modelled_ledgers ON recovery IN ('swap') USING count(*)",
        "SELECT 1; -- the end;",
        "/* ; */ SELECT ';';;",
    ],
)
def test_a_statement_that_reads_runs(query: str, path: Path) -> None:
    """Everything SELECT-like gives rows, comments and a last semicolon included."""
    assert fetched(path, query)


READ_TEXT = "FROM read_text(''/etc/passwd'')"
HOSTILE = {
    "COPY measured_runs TO '{out}'": "must only read",
    "COPY (SELECT 1) TO '{out}' (FORMAT parquet)": "must only read",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'": "disabled by configuration",
    "COPY measured_runs FROM '/etc/passwd'": "must only read",
    "EXPLAIN COPY (SELECT 1) TO '{out}'": "disabled by configuration",
    "EXPLAIN ANALYZE INSTALL httpfs": "disabled by configuration",
    "EXPLAIN ANALYZE LOAD httpfs": "disabled through configuration",
    "EXPLAIN ANALYZE SET threads = 1": "locked",
    "EXPLAIN ANALYZE ATTACH '{out}' AS other": "syntax error",
    "EXPORT DATABASE '{out}'": "must only read",
    "IMPORT DATABASE '{out}'": "",
    "ATTACH '{out}' AS other": "must only read",
    "ATTACH ':memory:' AS other": "must only read",
    "DETACH store": "must only read",
    "USE store": "must only read",
    "CREATE TABLE t AS SELECT 1": "must only read",
    "CREATE TEMP TABLE t AS SELECT 1": "must only read",
    "CREATE OR REPLACE VIEW limitations AS SELECT 1": "must only read",
    "INSERT INTO measured_runs SELECT * FROM measured_runs": "must only read",
    "UPDATE measured_runs SET run_id = 'x'": "must only read",
    "DELETE FROM measured_runs": "must only read",
    "DROP TABLE measured_runs": "must only read",
    "ALTER TABLE measured_runs DROP run_id": "must only read",
    "TRUNCATE measured_runs": "must only read",
    "MERGE INTO store_info USING measured_runs ON true WHEN MATCHED THEN DELETE": "must only read",
    "COMMENT ON TABLE measured_runs IS 'x'": "must only read",
    "CREATE MACRO f() AS 1": "must only read",
    "CREATE SECRET s (TYPE s3)": "must only read",
    "WITH a AS (DELETE FROM measured_runs RETURNING *) FROM a": "",
    "EXPLAIN ANALYZE DELETE FROM measured_runs": "read-only",
    "INSTALL httpfs": "must only read",
    "LOAD httpfs": "must only read",
    "UPDATE EXTENSIONS": "must only read",
    "SET threads = 1": "must only read",
    "RESET threads": "must only read",
    "SET enable_external_access = true": "must only read",
    "PRAGMA enable_profiling": "must only read",
    "CALL pragma_version()": "must only read",
    "CHECKPOINT": "must only read",
    "VACUUM": "must only read",
    "BEGIN": "must only read",
    "PREPARE p AS SELECT 1": "must only read",
    "EXECUTE p": "must only read",
    "SELECT 1; SELECT 2": "must be one statement, got 2",
    "SELECT 1; DROP TABLE measured_runs": "must be one statement, got 2",
    "": "must be one statement, got none",
    "-- nothing": "must be one statement, got none",
    "SELEC 1": "syntax error",
    "SELECT 1) TO '{out}' (FORMAT csv); --": "syntax error",
    "PIVOT modelled_ledgers ON recovery USING count(*)": "must be one statement",
    "SELECT $1": "parameters: 1",
    "FROM read_csv('/etc/passwd')": "disabled by configuration",
    "FROM read_parquet('/etc/passwd')": "disabled by configuration",
    "FROM read_json('/etc/passwd')": "disabled by configuration",
    "FROM read_text('/etc/passwd')": "disabled by configuration",
    "FROM read_blob('/etc/passwd')": "disabled by configuration",
    "FROM sniff_csv('/etc/passwd')": "disabled by configuration",
    "FROM glob('/etc/*')": "disabled by configuration",
    "FROM '/etc/passwd'": "does not exist",
    "FROM '/etc/hosts.csv'": "disabled by configuration",
    "FROM 'https://example.com/x.parquet'": "",
    "FROM read_parquet('s3://bucket/x.parquet')": "",
    "FROM sqlite_scan('/etc/passwd', 'x')": "",
    "FROM duckdb_secrets()": "disabled by configuration",
    "SELECT getenv('HOME')": "does not exist",
    "FROM query('COPY (SELECT 1) TO ''{out}''')": "SELECT",
    "FROM query('FROM read_text(''/etc/passwd'')')": "disabled by configuration",
    "FROM query_table('/etc/hosts.csv')": "disabled by configuration",
    f"FROM json_execute_serialized_sql(json_serialize_sql('{READ_TEXT}'))": "disabled",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))": "disabled by configuration",
    "SUMMARIZE '/etc/hosts.csv'": "disabled by configuration",
    "DESCRIBE FROM read_csv('/etc/passwd')": "disabled by configuration",
    "FROM read_csv_auto('/etc/passwd')": "disabled by configuration",
    "FROM read_ndjson_objects('/etc/passwd')": "disabled by configuration",
    "FROM parquet_metadata('/etc/passwd')": "disabled by configuration",
    "FROM read_duckdb('/etc/passwd')": "disabled by configuration",
    "FROM read_text('/dev/stdin')": "disabled by configuration",
    "FROM which_secret('s3://bucket', 's3')": "disabled by configuration",
    "FROM enable_logging('QueryLog', storage = 'file', storage_path = '{out}')": "locked",
    "FROM enable_profiling(save_location = '{out}')": "locked",
    "FROM local_variable": "does not exist",
}


@pytest.mark.parametrize("query", HOSTILE)
def test_a_statement_that_does_more_than_read_is_refused(
    query: str, path: Path, tmp_path: Path
) -> None:
    """One line says why, no file appears, and the database keeps every byte."""
    local_variable = pl.DataFrame({"a": [1]})  # noqa: F841 - a query must not see it
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(QueryError) as caught:
        fetched(path, query.replace("{out}", str(tmp_path / "out")))
    assert HOSTILE[query] in str(caught.value)
    assert str(caught.value).startswith("query: ")
    assert 1 == len(str(caught.value).splitlines())
    assert [] == list(tmp_path.iterdir())
    assert before == hashlib.sha256(path.read_bytes()).digest()
    assert [path.name] == [p.name for p in path.parent.iterdir()]


def test_settings_do_not_open_what_is_closed(path: Path) -> None:
    """The configuration is locked, and says so itself."""
    query = "SELECT name, value FROM duckdb_settings() WHERE name IN ('lock_configuration',"
    query += " 'enable_external_access', 'autoload_known_extensions') ORDER BY name"
    names = ["autoload_known_extensions", "enable_external_access", "lock_configuration"]
    assert list(zip(names, ["false", "false", "true"], strict=True)) == fetched(path, query)


def test_a_query_without_an_end_is_stopped(path: Path) -> None:
    """Time runs out within one step of the engine and is named, not what DuckDB made of it."""
    with pytest.raises(QueryError, match=r"query: stopped after 0\.2 s; --timeout allows more"):
        fetched(path, ENDLESS, timeout_seconds=0.2)


def test_rows_without_an_end_are_stopped(path: Path) -> None:
    """Fetching counts towards the time, too."""
    query = "SELECT i, repeat('x', 100) AS text FROM range(1000000000) AS t(i)"
    with pytest.raises(QueryError, match="stopped after"):
        fetched(path, query, timeout_seconds=0.3)


def test_rows_come_in_chunks_of_bounded_size(path: Path) -> None:
    """A result that would not fit the memory begins at once and stays small."""
    query = "SELECT i, repeat('x', 10000) AS text FROM range(1000000000) AS t(i)"
    with open_query(path, query) as result:
        chunks = result.chunks()
        sizes = [len(next(chunks)) for _ in range(3)]
    assert CHUNK_ROWS >= max(sizes) >= min(sizes) > 0


def test_an_interrupt_reaches_a_running_query(path: Path) -> None:
    """Ctrl-C ends a long step of the engine at once, although it never returns to Python."""
    main_thread = threading.main_thread().ident

    def interrupted_query(db: duckdb.DuckDBPyConnection) -> None:
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGINT)
        db.execute(ENDLESS).fetchall()

    with open_query(path, "SELECT 1") as result, pytest.raises(KeyboardInterrupt):
        result._runner.run(interrupted_query, result._db)


def test_a_query_that_is_too_long_or_no_text_is_refused(path: Path) -> None:
    """Size and encoding are checked before the parser sees it."""
    with pytest.raises(QueryError, match="must have at most 1048576 characters"):
        fetched(path, "SELECT 1" + " " * MAX_QUERY_CHARACTERS)
    with pytest.raises(QueryError, match="must be UTF-8 text"):
        fetched(path, "SELECT '\udcff'")


def test_only_a_store_is_queried(tmp_path: Path) -> None:
    """A DuckDB file of someone else is refused by name before the query runs."""
    with duckdb.connect(tmp_path / "other.duckdb") as db:
        db.execute("CREATE TABLE t (a INTEGER)")
    with pytest.raises(StoreError, match="is not a database made by preempt load"):
        fetched(tmp_path / "other.duckdb", "FROM t")


# Exact cells.

CELLS = """
SELECT
    9007199254740993 AS big,
    170141183460469231731687303715884105727 AS huge,
    12345678901234567890.123 AS decimal,
    0.1::DOUBLE AS tenth,
    'nan'::DOUBLE AS nan,
    'inf'::DOUBLE AS infinity,
    NULL AS missing,
    '' AS empty,
    'é"q,' || chr(10) || 'x' AS text,
    true AS yes,
    [1, NULL, 3] AS list,
    {'a': DATE '2026-01-02', 'b': ['x']} AS struct,
    MAP {1: 'one'} AS map,
    TIMESTAMP '2026-01-02 03:04:05.000006' AS instant,
    '{"k": [1.50, 9007199254740993]}'::JSON AS json,
    'ab'::BLOB AS blob
"""


def test_json_keeps_every_digit(path: Path) -> None:
    """Integers and decimals are exact, NaN is null, an infinity a word, nesting is kept."""
    text = written(render.json_chunks, path, CELLS)
    (row,) = json.loads(text, parse_float=Decimal)
    expected = {
        "big": 9007199254740993,
        "huge": 170141183460469231731687303715884105727,
        "decimal": Decimal("12345678901234567890.123"),
        "tenth": Decimal("0.1"),
        "nan": None,
        "infinity": "Infinity",
        "missing": None,
        "empty": "",
        "text": 'é"q,\nx',
        "yes": True,
        "list": [1, None, 3],
        "struct": {"a": "2026-01-02", "b": ["x"]},
        "map": {"1": "one"},
        "instant": "2026-01-02T03:04:05.000006",
        "json": {"k": [Decimal("1.50"), 9007199254740993]},
        "blob": "6162",
    }
    assert expected == row
    assert text.startswith("[\n{")


def test_json_of_many_rows_and_of_none_is_an_array(path: Path) -> None:
    """One object to a line, over more rows than one chunk, and [] without a row."""
    count = 2 * CHUNK_ROWS + 1
    text = written(render.json_chunks, path, f"SELECT i FROM range({count}) AS t(i)")  # noqa: S608
    assert [{"i": k} for k in range(count)] == json.loads(text)
    assert count + 2 == len(text.splitlines())
    assert "[]\n" == written(render.json_chunks, path, "SELECT 1 AS a WHERE false")


def test_csv_tells_null_from_an_empty_string(path: Path) -> None:
    """NULL and NaN are nothing, an empty string is two quotes, the rest reads back."""
    text = written(render.csv_chunks, path, CELLS)
    head, row = csv.reader(io.StringIO(text))
    found = dict(zip(head, row, strict=True))
    assert ',,"",' in text
    assert ["9007199254740993", "170141183460469231731687303715884105727"] == row[:2]
    assert ["12345678901234567890.123", "0.1", "", "Infinity", "", ""] == row[2:8]
    assert ('é"q,\nx', "true", "[1,null,3]") == (found["text"], found["yes"], found["list"])
    assert {"a": "2026-01-02", "b": ["x"]} == json.loads(found["struct"])
    assert "2026-01-02T03:04:05.000006" == found["instant"]


def test_csv_is_what_the_table_holds(path: Path) -> None:
    """Every row of a real table reads back with its values."""
    columns = ["request_id", "arrival_us", "status", "tpot_us", "num_preemptions"]
    query = f"SELECT {', '.join(columns)} FROM measured_requests WHERE run_id = 'base-1'"  # noqa: S608
    found = pl.read_csv(io.StringIO(written(render.csv_chunks, path, query)))
    assert recorded().requests.select(columns).rows() == found.rows()


def test_parquet_keeps_types_and_says_what_it_leaves_out(path: Path) -> None:
    """Sums are 64-bit integers, JSON is text, the order is kept, the metadata has the rest."""
    query = "SELECT ledger_id, receipt, sum(1) AS n, NULL::BIGINT AS missing, [1, 2] AS l"
    query += " FROM modelled_ledgers GROUP BY ALL ORDER BY ledger_id DESC; -- end"
    with open_query(path, query) as result:
        file = result.to_parquet()
        frame, metadata = pl.read_parquet(file), pl.read_parquet_metadata(file)
    ids = sorted(lab_ledger(r).receipt["receipt_sha256"] for r in ("recompute", "swap"))
    assert ids[::-1] == frame["ledger_id"].to_list()
    assert {"receipt": pl.String, "n": pl.Int64, "missing": pl.Int64, "l": pl.List(pl.Int32)} == {
        name: frame.schema[name] for name in ("receipt", "n", "missing", "l")
    }
    assert [1, 1] == frame["n"].to_list()
    assert "preemption-query/1" == metadata["schema"]
    assert list(LIMITATIONS) == json.loads(metadata["limitations"])
    assert not file.exists()


@pytest.mark.parametrize("query", ["SELECT 1 AS a, 2 AS a", "EXPLAIN SELECT 1"])
def test_what_parquet_cannot_hold_is_refused(query: str, path: Path) -> None:
    """Two columns of one name, and a plan."""
    with (
        open_query(path, query) as result,
        pytest.raises(QueryError, match=r"different names|EXPLAIN gives a text"),
    ):
        result.to_parquet()


def test_json_refuses_two_columns_of_one_name(path: Path) -> None:
    """An object would lose one of them."""
    with pytest.raises(QueryError, match="JSON needs columns of different names; rename with AS"):
        written(render.json_chunks, path, "SELECT 1 AS a, 2 AS a")


def test_a_json_column_that_is_no_json_is_a_string() -> None:
    """A hand-made database cannot break the array."""
    assert '"nonsense"' == render._embedded("nonsense")
    assert '"{\\"a\\": NaN}"' == render._embedded('{"a": NaN}')
    assert '{"a": 1}' == render._embedded('{"a": 1}')
    assert "null" == render._embedded(None)
    deep = "[" * 100_000
    assert json.dumps(deep) == render._embedded(deep)


# Tables for people.


def test_a_table_shows_nothing_a_terminal_could_act_on(path: Path) -> None:
    """Control characters, direction overrides, markup and emoji names are shown as they are."""
    query = (
        "SELECT '[red]a[/red] :smile: ' || chr(27) || '[31m' || chr(8238) || chr(10) AS \"[b]n\""
    )
    shown = table(path, query, 120)
    assert "[red]a[/red] :smile: \\x1b[31m\\u202e\\n" in shown
    assert "[b]n" in shown
    assert {"\n"} == {c for c in shown if not c.isprintable()}


def test_a_missing_value_is_dim_and_the_word_is_not(path: Path) -> None:
    """NULL and the text null look different where a terminal has colours."""
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    with open_query(path, "SELECT NULL AS a, 'null' AS b, 'nan'::DOUBLE AS c") as result:
        render.print_table(result, console, 10)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert 2 == len(re.findall("\x1b\\[2mnull", shown))
    assert 3 == shown.count("null")


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", sqlfiles.names("queries"))
def test_a_wide_result_is_shown_whole(name: str, width: int, path: Path, engines: Path) -> None:
    """No line is wider than the terminal, and every value and column name is there."""
    text = named_query(name).text
    for file in answering(name, path, engines):
        shows_all(file, text, width)


def answering(name: str, path: Path, engines: Path) -> list[Path]:
    """Stores with an answer: a lab ledger and a window of a run describe no engine's run."""
    return [engines] if name == "fidelity" else [path, engines]


def shows_all(path: Path, text: str, width: int) -> None:
    """Check what a table shows of the first row."""
    shown = table(path, text, width, max_rows=3)
    assert width >= max(len(line) for line in shown.splitlines())
    plain = re.sub(r"[\s│┃]", "", shown)
    with open_query(path, text) as result:
        names = [c.name for c in result.columns]
        first = next(result.chunks())[0]
    for column, value in zip(names, first, strict=True):
        if "│" not in shown:  # side by side, a long value is folded between others
            assert column in plain
            text_of = "null" if value is None else render._plain(value)
            assert text_of.replace(" ", "") in plain
    assert str(first[0])[:16] in plain


def test_columns_that_do_not_fit_stand_below_each_other(path: Path) -> None:
    """Few columns make a table, many make a block for each row."""
    query = "SELECT * FROM measured_runs ORDER BY run_id"
    assert "row 2 ─" in table(path, query, 80)
    few = table(path, "SELECT run_id, engine_version FROM measured_runs ORDER BY ALL", 80)
    assert ["│ base-1  │ 0.32.0         │", "│ cand-80 │ 0.32.0         │"] == [
        line for line in few.splitlines() if "0.32.0" in line
    ]


def test_a_plan_is_printed_as_its_lines(path: Path) -> None:
    """EXPLAIN is no table of one cell."""
    shown = table(path, "EXPLAIN SELECT count(*) FROM measured_steps GROUP BY step % 2", 80)
    assert len(shown.splitlines()) > 3
    assert "\\n" not in shown


# Named queries and the documentation.


@pytest.mark.parametrize("name", sqlfiles.names("queries"))
def test_a_named_query_has_rows_on_recorded_data(name: str, path: Path, engines: Path) -> None:
    """Each question is answered, and its columns say modelled or measured where both meet."""
    query = named_query(name)
    with open_query(answering(name, path, engines)[0], query.text) as result:
        assert next(result.chunks())
        names = [c.name for c in result.columns]
    meets = {n.split("_")[0] for n in names} >= {"modelled", "measured"}
    keys = {"ledger_id", "run_id", "request_id", "recovery"}
    keys |= {"join_kind", "join_side", "join_differences", "join_arrivals", "join_assumed_from"}
    keys |= {"victim", "fidelity_level", "metric", "requests", "error_frac"}
    counted = {"joined_requests", "joined_requests_of_equal_preemptions"}
    if meets:
        assert set() == {
            n for n in set(names) - keys - counted if not n.startswith(("modelled_", "measured_"))
        }
    assert query.question.count("?") == 1


def test_a_named_query_is_found_by_its_name() -> None:
    """Every file is one; an unknown name is told where the known ones are."""
    assert list(sqlfiles.names("queries")) == [q.name for q in named_queries()]
    with pytest.raises(QueryError, match=r"no such name ../x; preempt sql --named list shows all"):
        named_query("../x")


def test_policies_stand_side_by_side(path: Path) -> None:
    """One row per ledger with its totals, flagged counts included."""
    found = sql("policies_side_by_side", "--named", "--db", path, "--format", "json")
    rows = json.loads(found.stdout)
    assert ["recompute", "swap"] == [row["recovery"] for row in rows]
    assert 1 == len({row["input_sha256"] for row in rows})
    for row in rows:
        ledger = lab_ledger(row["recovery"])
        totals = ledger.receipt["totals"]
        assert totals["charged_tokens"] == row["modelled_charged_tokens"]
        assert totals["swap_in_bytes"] == row["modelled_swap_in_bytes"]
        flagged = ledger.requests["flagged_repeat"].sum()
        assert flagged == row["modelled_flagged_repeat_requests"]


def test_a_what_if_says_so_in_every_row_of_its_policy(engines: Path) -> None:
    """Beside what vLLM does, with the recompute tax as a percentage."""
    found = sql("policies_side_by_side", "--named", "--db", engines, "--format", "json")
    rows = {row["ledger_id"]: row for row in json.loads(found.stdout)}
    assert len(ENGINE_POLICIES) == len(rows)
    for policy in ENGINE_POLICIES:
        receipt = stepped_ledger(*policy).receipt
        row = rows[receipt["receipt_sha256"]]
        assert receipt["what_ifs"] == row["what_ifs"]
        assert (policy == (None, None)) == (row["what_ifs"] == [])
        percent = round(100 * receipt["totals"]["recompute_tax_frac"], 2)
        assert percent == row["modelled_recompute_tax_percent"]
    assert (
        33.06 == rows[stepped_ledger().receipt["receipt_sha256"]]["modelled_recompute_tax_percent"]
    )


def test_preemptions_of_a_run_and_of_its_replay_are_counted_side_by_side(engines: Path) -> None:
    """From its own steps all 240 requests have the engine's count; a what-if need not."""
    found = sql("preemption_counts", "--named", "--db", engines, "--format", "json")
    rows = {row["ledger_id"]: row for row in json.loads(found.stdout)}
    own = rows[stepped_ledger().receipt["receipt_sha256"]]
    assert ("fidelity", "steps", 230, 230, 240) == (
        own["join_kind"],
        own["join_arrivals"],
        own["modelled_preemptions"],
        own["measured_preemptions"],
        own["joined_requests_of_equal_preemptions"],
    )
    other = rows[stepped_ledger(None, "least-computed").receipt["receipt_sha256"]]
    assert ("what-if", ["policy.victim"]) == (other["join_kind"], other["join_differences"])
    assert 240 > other["joined_requests_of_equal_preemptions"]


def test_pressure_events_and_worst_requests_name_the_policy(engines: Path) -> None:
    """Rows of several ledgers are told apart by more than a hash."""
    for name in ("pressure_timeline", "worst_requests"):
        found = json.loads(sql(name, "--named", "--db", engines, "--format", "json").stdout)
        expected = {(r or "recompute", v or "rule") for r, v in ENGINE_POLICIES}
        assert expected == {(row["recovery"], row["victim"]) for row in found}


def test_the_worst_request_comes_first_with_its_measured_tpot(path: Path) -> None:
    """Who lost most tokens in the replay, and how slow its tokens really were."""
    found = sql("--named", "worst_requests", "--db", path, "--format", "json")
    first = json.loads(found.stdout)[0]
    worst = max(lab_ledger().requests.to_dicts(), key=lambda r: r["recompute_tokens"])
    measured = {r["request_id"]: r for r in recorded().requests.to_dicts()}
    assert worst["recompute_tokens"] == first["modelled_recompute_tokens"] > 0
    assert measured[first["request_id"]]["tpot_us"] == first["measured_tpot_us"]
    assert "what-if" == first["join_kind"]


def test_pressure_events_are_those_of_the_receipt(path: Path) -> None:
    """One row per shortage, each with its victims."""
    found = json.loads(sql("pressure_timeline", "--named", "--db", path, "--format", "json").stdout)
    for recovery in ("recompute", "swap"):
        receipt = lab_ledger(recovery).receipt
        own = [row for row in found if row["ledger_id"] == receipt["receipt_sha256"]]
        assert receipt["totals"]["pressure_events"] == len(own)
        victims = sum(len(row["modelled_victim_ids"]) for row in own)
        assert receipt["totals"]["preemptions"] == victims


@pytest.mark.parametrize("block", re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL))
def test_an_example_of_the_documentation_has_rows(block: str, path: Path) -> None:
    """Every query that docs/store.md shows runs on recorded data and finds something."""
    assert fetched(path, block)


def test_the_documentation_names_every_table_and_view() -> None:
    """docs/store.md lists what there is."""
    text = DOCS.read_text()
    assert [] == [n for n in (*sqlfiles.TABLES, *sqlfiles.VIEWS) if f"`{n}`" not in text]
    assert text.count("```sql") >= 8


# The command.


def test_sql_writes_rows_to_standard_output_and_the_count_beside_it(path: Path) -> None:
    """A table on standard output; the number of rows, and that there are more, on the other."""
    query = "SELECT i FROM range(5) AS t(i)"
    assert "5 rows\n" == sql(query, "--db", path).stderr
    capped = sql(query, "--db", path, "--rows", 2)
    assert "first 2 rows; there are more: --rows shows more, --format csv all\n" == capped.stderr
    assert ("1 │", 0) == (capped.stdout.split("\n")[4][-3:], capped.stdout.count("2"))
    assert "" == sql(query, "--db", path, "-q").stderr
    assert "1 row\n" == sql("SELECT 1", "--db", path).stderr


def test_sql_reads_the_query_from_standard_input(path: Path) -> None:
    """A dash stands for standard input, which must be text."""
    found = sql("-", "--db", path, "--format", "csv", stdin="SELECT 42 AS a\n")
    assert "a\n42\n" == found.stdout


def test_sql_lists_the_named_queries_without_a_database() -> None:
    """`--named list` tells each one's grain and question."""
    shown = sql("--named", "list").stdout
    for query in named_queries():
        assert f"{query.name}: one row per {query.grain}\n    {query.question}\n" in shown


@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet"])
def test_sql_writes_a_new_file_whole_or_not_at_all(form: str, path: Path, tmp_path: Path) -> None:
    """An existing file needs --force; a query that fails on the way leaves nothing."""
    out = tmp_path / "out"
    good = ["SELECT 7 AS seven", "--db", path, "--format", form, "--out", out]
    assert "" == sql(*good).stdout
    before = out.read_bytes()
    assert b"seven" in before
    assert [out] == list(tmp_path.iterdir())
    with pytest.raises(Exception, match="exists; choose another path or pass --force"):
        sql(*good)
    assert "" == sql(*good, "--force").stdout
    failing = "SELECT CASE WHEN i < 5000 THEN i ELSE error('late') END AS a FROM range(9000) t(i)"
    with pytest.raises(QueryError, match="late"):
        sql(failing, *good[1:], "--force", "--rows", 9000)
    assert before == out.read_bytes()
    assert [out] == list(tmp_path.iterdir())


def test_sql_does_not_write_over_the_database(path: Path) -> None:
    """Not even with --force."""
    with pytest.raises(Exception, match="is the database; choose another path"):
        sql("SELECT 1", "--db", path, "--out", path, "--force")


def test_sql_pipes_parquet(path: Path) -> None:
    """Parquet goes to standard output when that is no terminal."""
    found = sql("FROM measured_runs", "--db", path, "--format", "parquet")
    run_ids = pl.read_parquet(found.stdout_bytes)["run_id"].to_list()
    assert ["base-1", "cand-80", "scraped"] == run_ids


def test_sql_keeps_parquet_off_a_terminal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Binary on a terminal is refused before the query runs."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    arguments = ["SELECT 1", "--db", str(path), "--format", "parquet"]
    with pytest.raises(ValueError, match="parquet is not for a terminal; give --out FILE"):
        sql_command.main(arguments, standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["DROP TABLE measured_runs"], "query: must only read"),
        (["nope", "--named"], "query: no such name nope; preempt sql --named list shows all"),
        (["SELECT 1", "--timeout", "0"], "--timeout"),
        ([ENDLESS, "--timeout", "0.1"], "stopped after 0.1 s"),
    ],
)
def test_a_refused_query_ends_with_exit_code_2(
    arguments: list[str], fault: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on standard error, nothing on standard output."""
    with pytest.raises(SystemExit) as caught:
        main(["sql", *arguments, "--db", str(path)])
    out, err = capsys.readouterr()
    assert (2, "", 1) == (caught.value.code, out, len(err.splitlines()))
    assert fault in err


def test_sql_without_a_database_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The option is named."""
    with pytest.raises(SystemExit) as caught:
        main(["sql", "SELECT 1"])
    assert 2 == caught.value.code
    assert "Missing option '--db'" in capsys.readouterr().err
