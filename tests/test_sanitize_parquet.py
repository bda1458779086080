"""What a Parquet file says beside its rows is looked at, too: footer, bounds, bytes between."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest
from sanitize_tools import found, kinds

ID = "00000000-" + "a" * 32
TENANT = "tenant-" + "b" * 32  # 39 characters, as long as what is put in its place
MAIL = f"{'jane.roe':x>27}@example.org"


def shared(path: Path, **options: str) -> Path:
    """A file with nothing to find, whose bytes tests then change."""
    frame = pl.DataFrame({"request_id": [ID], "tenant": [TENANT], "arrival_us": [0]})
    told = {"schema": "preemption-workload/1"}
    frame.write_parquet(path, metadata=told, statistics="full", **options)  # type: ignore[arg-type]
    assert [] == found(path)
    return path


def footer_of(path: Path) -> int:
    """Where the footer of a file begins."""
    with duckdb.connect() as base:
        query = "SELECT file_size_bytes - footer_size - 8 FROM parquet_file_metadata(?)"
        return int(base.execute(query, [str(path)]).fetchall()[0][0])


def changed(path: Path, edit: Callable[[bytes], bytes], start: int = 0) -> None:
    """Edit a file's bytes from a place on; something has to change."""
    data = path.read_bytes()
    made = data[:start] + edit(data[start:])
    assert made != data
    path.write_bytes(made)


def test_what_other_writers_leave_is_nothing_to_find(tmp_path: Path) -> None:
    """The names that DuckDB and Polars give themselves, and what they add, are known."""
    path = shared(tmp_path / "a.parquet")
    with duckdb.connect() as base:
        query = f"COPY (FROM '{path}') TO '{tmp_path}/b.parquet'"
        base.execute(query)
        base.execute(query.replace("b.parquet'", "c.parquet' (COMPRESSION uncompressed)"))
    for name in ("b", "c"):
        assert [] == found(tmp_path / f"{name}.parquet")


@pytest.mark.parametrize("writer", ["polars", "duckdb"])
def test_the_name_of_a_files_writer_is_looked_at(tmp_path: Path, writer: str) -> None:
    """`created_by` can be any text: only the names of well-known libraries may stand there."""
    path = shared(tmp_path / "a.parquet")
    made_by = b"Polars (python) version"
    if writer == "duckdb":
        with duckdb.connect() as base:
            base.execute(f"COPY (FROM '{path}') TO '{tmp_path}/b.parquet'")
        path, made_by = tmp_path / "b.parquet", b"DuckDB version"
    secret = b"jane of acme".ljust(len(made_by))
    changed(path, lambda data: data.replace(made_by, secret))
    assert "footer.created_by" in [column for _, column, _ in found(path)]


def test_bounds_that_no_row_has_are_looked_at(tmp_path: Path) -> None:
    """The least and greatest value of a column stay in a footer, whatever its rows became."""
    path = shared(tmp_path / "a.parquet")
    changed(path, lambda data: data.replace(TENANT.encode(), MAIL.encode()), footer_of(path))
    assert (path.name, "tenant", "e-mail addresses") in found(path)
    assert TENANT == pl.read_parquet(path, use_pyarrow=False)["tenant"][0]


def test_bounds_that_a_writer_cut_are_no_texts_of_their_own(tmp_path: Path) -> None:
    """Of a long text a footer has the beginning, with its last letter counted up."""
    labels = '{"finished_reason":"stop","reason":"capacity","source":"external_kv_transfer"}'
    pl.DataFrame({"labels": [labels]}).write_parquet(tmp_path / "a.parquet", statistics="full")
    assert labels[:64] in (tmp_path / "a.parquet").read_bytes().decode(errors="replace")
    assert [] == found(tmp_path / "a.parquet")


@pytest.mark.parametrize(("text", "kind"), [(MAIL, "e-mail addresses"), ("tell nobody", "text")])
def test_bytes_between_the_parts_of_a_file_are_looked_at(
    tmp_path: Path, text: str, kind: str
) -> None:
    """What no reader ever uses can still be read by anybody with the file."""
    path = shared(tmp_path / "a.parquet")
    changed(path, lambda data: b"\0" + text.encode() + b"\0" + data, footer_of(path))
    assert TENANT == pl.read_parquet(path)["tenant"][0]
    assert (path.name, "bytes", kind) in found(path)


def test_addresses_in_the_index_of_a_columns_pages_are_found(tmp_path: Path) -> None:
    """What is not packed is searched for addresses and keys, whatever it is part of."""
    path = shared(tmp_path / "a.parquet")
    before, _, after = path.read_bytes()[: footer_of(path)].rpartition(TENANT.encode())
    path.write_bytes(before + MAIL.encode() + after + path.read_bytes()[footer_of(path) :])
    assert [(path.name, "bytes", "e-mail addresses")] == found(path)


def test_every_value_of_a_key_that_is_there_twice_is_looked_at(tmp_path: Path) -> None:
    """Metadata is a list: a reader's dictionary keeps the last of two, the file both."""
    path = tmp_path / "a.parquet"
    told = {"schema": "preemption-workload/1", "scheme": "tell nobody and no one"}
    pl.DataFrame({"priority": [1]}).write_parquet(path, metadata=told)
    changed(path, lambda data: data.replace(b"scheme", b"schema"))
    assert ("metadata.schema", "text") in [one[1:] for one in found(path)]


def test_names_around_the_entries_of_a_list_are_looked_at(tmp_path: Path) -> None:
    """A list's parts have names of their own in the schema, which no reader shows."""
    path = tmp_path / "a.parquet"
    pl.DataFrame({"prefix_blocks": [[1]]}).write_parquet(path)
    assert [] == found(path)
    changed(path, lambda data: data.replace(b"element", b"janeroe"))
    assert "a name that no contract uses" in kinds(path)


def test_large_outputs_are_nothing_to_find(tmp_path: Path) -> None:
    """Of 600,000 requests in many parts of one file the bytes between say nothing."""
    ids = pl.int_range(600_000, eager=True).cast(pl.String).str.zfill(8) + ("-" + "a" * 32)
    numbers = pl.int_range(600_000, eager=True)
    columns = {"request_id": ids, "arrival_us": numbers, "prompt_tokens": numbers * 7919 % 8191 + 1}
    frame = pl.DataFrame(columns).with_columns(output_tokens=pl.lit(1), prefix_blocks=[5, 6])
    frame = frame.with_columns(tenant=pl.lit(TENANT), priority=pl.lit(0))
    told = {"schema": "preemption-workload/1"}
    frame.write_parquet(tmp_path / "w.parquet", metadata=told, row_group_size=2**14)
    assert [] == found(tmp_path / "w.parquet")
