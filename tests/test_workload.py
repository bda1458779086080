"""Workloads keep their content, order and hash through every file form."""

import hashlib
import io
import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.canonical import canonical_line
from replay.errors import InputError
from replay.workload import SCHEMA, Request, Workload
from replay.workload_file import SUFFIXES, read_workload, write_workload

SAFE = 2**53 - 1
Quick = settings(max_examples=40)
# Each example writes its own bytes over the last one's.
PerFile = settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

IDS = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029"),
    min_size=1,
    max_size=128,
) | st.sampled_from(
    ["é", "e\u0301", '"', "\\", "\\u0041", "\\n", "/", "'", "𝄞", "\U0010ffff" * 128, "\ufeff", " "]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < 1e15)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(IDS, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.none() | st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=20
)
PROVENANCE = st.none() | st.dictionaries(IDS, JSON, max_size=3)


@st.composite
def requests(draw: st.DrawFn, request_id: str, chunk: int | None) -> Request:
    """A request within the rules; arrivals are few, so that ties are common."""
    prompt = draw(st.integers(1, 3000) | st.just(SAFE))
    most = 0 if chunk is None else min(5, -(-prompt // chunk))
    blocks = draw(st.lists(st.integers(0, 9) | st.just(SAFE), max_size=most))
    return Request(
        request_id,
        draw(st.integers(0, 3) | st.just(SAFE)),
        prompt,
        draw(st.integers(1, 9) | st.just(SAFE)),
        draw(st.just(0) | st.integers(-SAFE, SAFE) | st.sampled_from([-SAFE, SAFE])),
        draw(st.none() | IDS),
        tuple(blocks) or None,
        draw(st.integers(0, 3) | st.just(SAFE)),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """A valid workload with anything the contract allows in it."""
    chunk = draw(st.none() | st.integers(1, 600) | st.just(SAFE))
    ids = draw(st.lists(IDS, min_size=1, max_size=8, unique=True))
    rows = tuple(draw(requests(request_id, chunk)) for request_id in ids)
    if draw(st.booleans()):
        rows = tuple(replace(row, engine_arrival_us=None) for row in rows)
    return Workload(rows, chunk, draw(NAMES), draw(PROVENANCE))


def plain(**changes: Any) -> dict[str, Any]:
    """Only the required fields of a record, changed as said."""
    record = {"request_id": "a", "arrival_us": 0, "prompt_tokens": 3, "output_tokens": 2}
    return record | changes


def jsonl(path: Path, *records: object) -> Path:
    """Write one JSON text per line."""
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def written(workload: Workload, path: Path) -> Path:
    """Write the workload in the form its name asks for."""
    write_workload(workload, path, path.suffix)
    return path


# Files in and out


@PerFile
@given(workload=workloads())
def test_every_form_reads_back_equal_and_with_the_same_hash(
    tmp_path: Path, workload: Workload
) -> None:
    """Nothing that the contract allows changes on its way through a file."""
    nameless = replace(workload, name=None, provenance=None)
    for suffix in SUFFIXES:
        found = read_workload(written(workload, tmp_path / f"w{suffix}"))
        assert (nameless if suffix == ".jsonl" else workload) == found
        assert workload.sha256 == found.sha256


@PerFile
@given(workload=workloads())
def test_the_hash_of_a_jsonl_file_is_the_workload_hash(tmp_path: Path, workload: Workload) -> None:
    """`sha256sum workload.jsonl` proves the workload."""
    data = written(workload, tmp_path / "w.jsonl").read_bytes()
    assert workload.sha256 == hashlib.sha256(data).hexdigest()


def test_the_hash_is_the_one_of_the_text_written_by_hand(tmp_path: Path) -> None:
    """Header, every field with its default, keys sorted, one line each, in order of arrival."""
    text = (
        '{"prefix_block_tokens":16,"schema":"preemption-workload/1"}\n'
        '{"arrival_us":0,"output_tokens":1,"prefix_blocks":null,"priority":0,"prompt_tokens":1,'
        '"request_id":"é\\"\\\\𝄞","tenant":null}\n'
        '{"arrival_us":5,"output_tokens":8,"prefix_blocks":[7,0],"priority":-9007199254740991,'
        '"prompt_tokens":24,"request_id":"a","tenant":"team"}\n'
    )
    (tmp_path / "w.json").write_text(
        """{ "schema": "preemption-workload/1", "name": "any", "prefix_block_tokens": 16,
          "requests": [
            {"request_id": "a", "arrival_us": 5, "prompt_tokens": 24, "output_tokens": 8,
             "tenant": "team", "priority": -9007199254740991, "prefix_blocks": [7, 0]},
            {"request_id": "\\u00e9\\"\\\\\\ud834\\udd1e", "arrival_us": 0, "prompt_tokens": 1,
             "output_tokens": 1}]}""",
        encoding="utf-8",
    )
    workload = read_workload(tmp_path / "w.json")
    assert text.encode() == b"".join(workload.text_lines())
    assert hashlib.sha256(text.encode()).hexdigest() == workload.sha256


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_writing_twice_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    """Files can be compared by their own hash, too."""
    workload = Workload((Request("a", 0, 1, 1),), None, "name", {"b": 1, "a": [2]})
    first, second = (written(workload, tmp_path / f"{k}{suffix}").read_bytes() for k in "12")
    assert first == second


@pytest.mark.parametrize("stem", ["w[ab]", "w*", "w?", "{w}", "w%20 é", "-w", "https:w"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_name_is_never_taken_for_a_pattern(tmp_path: Path, suffix: str, stem: str) -> None:
    """Only the named file is read, whatever its name and neighbours are."""
    written(Workload((Request("neighbour", 0, 1, 1),)), tmp_path / f"wa{suffix}")
    expected = Workload((Request("this", 0, 1, 1),))
    assert expected == read_workload(written(expected, tmp_path / f"{stem}{suffix}"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_name_need_not_be_utf_8(tmp_path: Path, suffix: str) -> None:
    """Names are bytes on Linux."""
    expected = Workload((Request("a", 0, 1, 1),))
    assert expected == read_workload(written(expected, tmp_path / f"w\udcff{suffix}"))


def test_standard_input_is_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads what `.jsonl` reads."""
    workload = Workload((Request("a", 0, 1, 1), Request("b", 0, 1, 1)))
    stdin = io.TextIOWrapper(io.BytesIO(b"".join(workload.text_lines())))
    monkeypatch.setattr("sys.stdin", stdin)
    assert workload == read_workload(Path("-"))


# Canonical lines


@Quick
@given(workload=workloads())
def test_every_line_of_the_text_form_is_rfc_8785(workload: Workload) -> None:
    """The quick encoder and the reference agree on each record."""
    rows = ({name: asdict(r)[name] for name in workload.fields} for r in workload.requests)
    expected = [workload.header(), *(json.loads(json.dumps(row)) for row in rows)]
    assert [rfc8785.dumps(r) + b"\n" for r in expected] == list(workload.text_lines())


@Quick
@given(
    record=st.dictionaries(
        st.from_regex("[a-z_]{1,20}", fullmatch=True),
        st.none()
        | st.integers(-SAFE, SAFE)
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
        | st.lists(st.integers(-SAFE, SAFE), max_size=5),
        max_size=7,
    )
)
def test_canonical_line_is_rfc_8785_for_any_flat_record(record: dict[str, Any]) -> None:
    """Control characters, quotes and astral code points included."""
    assert rfc8785.dumps(record) + b"\n" == canonical_line(record)


# Order


@Quick
@given(arrivals=st.lists(st.integers(0, 3), min_size=1, max_size=12), seed=st.randoms())
def test_order_is_by_arrival_and_ties_stay_as_given(
    arrivals: list[int], seed: random.Random
) -> None:
    """The sort is stable, so the order of a file is data."""
    names = [f"{k}" for k in range(len(arrivals))]
    seed.shuffle(names)
    given_order = list(zip(names, arrivals, strict=True))
    workload = Workload(tuple(Request(name, at, 1, 1) for name, at in given_order))
    expected = [name for at in range(4) for name, arrival in given_order if arrival == at]
    assert expected == [r.request_id for r in workload.requests]


def test_ties_in_another_order_are_another_workload() -> None:
    """File order reaches the hash."""
    a, b = Request("a", 0, 1, 1), Request("b", 0, 1, 1)
    assert Workload((a, b)).sha256 != Workload((b, a)).sha256


def test_requests_out_of_order_are_the_same_workload() -> None:
    """Order of arrival does not depend on the order of a file."""
    a, b = Request("a", 0, 1, 1), Request("b", 1, 1, 1)
    assert Workload((a, b)).sha256 == Workload((b, a)).sha256


@pytest.mark.parametrize(
    "changed",
    [
        {"request_id": "b"},
        {"arrival_us": 1},
        {"prompt_tokens": 4},
        {"output_tokens": 3},
        {"priority": 1},
        {"tenant": "t"},
        {"prefix_blocks": (0,)},
        {"engine_arrival_us": 0},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_field_reaches_the_hash(changed: dict[str, Any]) -> None:
    """A changed field is another workload."""
    request = Request("a", 0, 3, 2)
    found = Workload((replace(request, **changed),), 16).sha256
    assert Workload((request,), 16).sha256 != found


def test_an_engine_s_arrival_times_are_in_the_text_only_where_the_workload_has_them(
    tmp_path: Path,
) -> None:
    """Between arrival and output, as keys sort; without them every hash stays what it was."""
    line = (
        '{"arrival_us":0,"engine_arrival_us":7,"output_tokens":2,"prefix_blocks":null,'
        '"priority":0,"prompt_tokens":3,"request_id":"a","tenant":null}\n'
    )
    found = read_workload(jsonl(tmp_path / "w.jsonl", plain(engine_arrival_us=7)))
    assert [line.encode()] == list(found.text_lines())[1:]
    without = read_workload(jsonl(tmp_path / "o.jsonl", plain()))
    assert [line.replace('"engine_arrival_us":7,', "").encode()] == list(without.text_lines())[1:]
    for name, workload, columns in (("w", found, 8), ("o", without, 7)):
        frame = pl.read_parquet(written(workload, tmp_path / f"{name}.parquet"))
        assert columns == frame.width


@pytest.mark.parametrize("given", [[7, None], [None, 7], [1, 2, None]], ids=str)
def test_an_engine_s_arrival_times_are_in_all_requests_or_in_none(
    given: list[int | None], tmp_path: Path
) -> None:
    """A scheduler could not compare the others; the first that is unlike is named."""
    rows = [plain(request_id=str(k), engine_arrival_us=at) for k, at in enumerate(given)]
    rule = "engine_arrival_us must be in all requests of a workload or in none, got in some"
    with pytest.raises(InputError, match=rf"w\.jsonl:{len(rows)}: {rule}"):
        read_workload(jsonl(tmp_path / "w.jsonl", *rows))
    (tmp_path / "w.json").write_text(json.dumps({"schema": SCHEMA, "requests": rows}))
    with pytest.raises(InputError, match=rf"requests\[{len(rows) - 1}\]: {rule}"):
        read_workload(tmp_path / "w.json")


def test_name_and_provenance_are_in_no_hash_and_the_chunk_size_is() -> None:
    """The same requests under another label share their hash."""
    rows = (Request("a", 0, 3, 2),)
    assert Workload(rows).sha256 == Workload(rows, None, "name", {"source": "x"}).sha256
    assert Workload(rows).sha256 != Workload(rows, 16).sha256


# What may be left out


def test_the_header_of_a_jsonl_file_is_optional(tmp_path: Path) -> None:
    """Without prefix blocks it says nothing a reader does not know."""
    header = {"schema": SCHEMA}
    without = read_workload(jsonl(tmp_path / "a.jsonl", plain()))
    assert without == read_workload(jsonl(tmp_path / "b.jsonl", header, plain()))
    full = header | {"prefix_block_tokens": None}
    assert without == read_workload(jsonl(tmp_path / "c.jsonl", full, plain()))


def test_optional_fields_have_their_defaults(tmp_path: Path) -> None:
    """Priority 0, no tenant, no prefix sharing."""
    found = read_workload(jsonl(tmp_path / "w.jsonl", plain()))
    assert (Request("a", 0, 3, 2, 0, None, None),) == found.requests
    assert found.prefix_block_tokens is None


@pytest.mark.parametrize(
    "extra",
    [
        {"priority": None},
        {"tenant": None},
        {"prefix_blocks": None},
        {"prefix_blocks": []},
        {"engine_arrival_us": None},
    ],
    ids=[
        *("null priority", "null tenant", "null prefix_blocks", "empty prefix_blocks"),
        "null engine_arrival_us",
    ],
)
def test_null_and_an_empty_list_are_the_same_as_leaving_out(
    tmp_path: Path, extra: dict[str, Any]
) -> None:
    """Three ways to say nothing give one workload."""
    expected = read_workload(jsonl(tmp_path / "a.jsonl", plain()))
    assert expected == read_workload(jsonl(tmp_path / "b.jsonl", plain(**extra)))


def test_parquet_may_leave_out_optional_columns_and_order_them_freely(tmp_path: Path) -> None:
    """Whoever writes the file with another tool need not know the defaults."""
    pl.DataFrame(
        {
            "tenant": pl.Series([None], dtype=pl.Null),
            "output_tokens": pl.Series([2], dtype=pl.Int8),
            "prompt_tokens": pl.Series([3], dtype=pl.UInt32),
            "request_id": ["a"],
            "arrival_us": [0],
        }
    ).write_parquet(tmp_path / "w.parquet", metadata={"schema": SCHEMA})
    assert Workload((Request("a", 0, 3, 2),)) == read_workload(tmp_path / "w.parquet")


# What is accepted at the edges


@pytest.mark.parametrize(
    "text",
    [
        b'{"request_id":"a","arrival_us":0,"prompt_tokens":3,"output_tokens":2}',
        b'{"request_id":"a","arrival_us":0,"prompt_tokens":3,"output_tokens":2}\r\n',
        b'\n\r\n{"request_id":"a","arrival_us":0,"prompt_tokens":3,"output_tokens":2}\n\n',
        b' {"request_id" : "\\u0061",\t"arrival_us":-0,"prompt_tokens":3,"output_tokens":2} \n',
    ],
    ids=["no final newline", "CRLF", "blank lines", "spaces and escapes"],
)
def test_json_lines_may_be_laid_out_freely(tmp_path: Path, text: bytes) -> None:
    """Layout is no content."""
    (tmp_path / "w.jsonl").write_bytes(text)
    assert Workload((Request("a", 0, 3, 2),)) == read_workload(tmp_path / "w.jsonl")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request_id", "𝄞" * 128),
        ("tenant", "𝄞" * 128),
        ("priority", -SAFE),
        ("priority", SAFE),
        ("arrival_us", SAFE),
        ("prompt_tokens", SAFE),
        ("output_tokens", SAFE),
        ("prefix_blocks", [0, SAFE]),
    ],
)
def test_the_last_value_inside_a_rule_is_accepted(tmp_path: Path, field: str, value: Any) -> None:
    """Two chunks of two tokens hold a prompt of three."""
    header = {"schema": SCHEMA, "prefix_block_tokens": 2}
    path = jsonl(tmp_path / "w.jsonl", header, plain(**{field: value}))
    found = asdict(read_workload(path).requests[0])[field]
    assert value == (list(found) if field == "prefix_blocks" else found)


def test_ids_are_compared_without_normalization(tmp_path: Path) -> None:
    """A composed and a decomposed letter are two ids."""
    path = jsonl(tmp_path / "w.jsonl", plain(request_id="é"), plain(request_id="e\u0301"))
    assert 2 == len(read_workload(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_limit_counts_requests_in_every_form(tmp_path: Path, suffix: str) -> None:
    """Exactly the limit is read, one more is refused."""
    workload = Workload(tuple(Request(f"{k}", 0, 1, 1) for k in range(5)))
    path = written(workload, tmp_path / f"w{suffix}")
    assert workload == read_workload(path, 5)
    with pytest.raises(InputError, match="at most 4"):
        read_workload(path, 4)
