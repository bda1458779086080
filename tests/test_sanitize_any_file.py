"""The privacy check looks into any file, or says that it cannot."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest
from sanitize_tools import (
    KEY,
    attempts,
    done,
    found,
    kinds,
    manifest,
    preempt,
    sanitized,
    workload,
    write,
)

from collectors.writer import RunWriter


def refused(path: Path) -> str:
    """The one line about a file that cannot be looked at."""
    ended = preempt("sanitize", "--check", path)
    assert (2, "") == (ended.code, ended.out)
    assert 1 == len(ended.err.splitlines())
    return ended.err


def test_a_csv_column_is_named_by_its_place(tmp_path: Path) -> None:
    """A header cannot be told from values, so only names of contracts are repeated."""
    path = tmp_path / "a.csv"
    path.write_text("request_id,jane,arrival_us\nx,bob,5\n")
    assert [
        ("a.csv", "column 2", "a name that no contract uses"),
        ("a.csv", "column 2", "text"),
        ("a.csv", "request_id", "ids that are no pseudonyms"),
    ] == found(path)
    path.write_text("1700000000.5\tjane\n1700000001.5\tjane\n")
    path.rename(tmp_path / "a.tsv")
    assert [
        ("a.tsv", "column 1", "absolute times"),
        ("a.tsv", "column 1", "numbers without a name"),
        ("a.tsv", "column 2", "text"),
    ] == found(tmp_path / "a.tsv")


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.gz", gzip.compress(b"x", mtime=0), "packed, so nobody looks into it"),
        ("a.jsonl.gz", b"", "packed, so nobody looks into it"),
        ("a.bin", b"ab\0\xff", "binary, so nobody looks into it"),
        ("a.unknown", b"tell nobody", "text"),
        ("a", b"\xff\xfe\xfd", "text"),
    ],
)
def test_a_file_of_another_kind_is_not_passed_over(
    tmp_path: Path, name: str, data: bytes, kind: str
) -> None:
    """What cannot be looked into, and any text at all, is a finding."""
    (tmp_path / name).write_bytes(data)
    assert {kind} == kinds(tmp_path / name)


@pytest.mark.parametrize("name", ["a", "a.csv", "a.jsonl", ".lock"])
def test_an_empty_file_holds_nothing(tmp_path: Path, name: str) -> None:
    """A lock or a trace without a line says nothing."""
    (tmp_path / name).touch()
    assert [] == found(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.parquet", b"", "must be a readable Parquet file"),
        ("a.parquet", b"PAR1 nonsense PAR1", "must be a readable Parquet file"),
        ("a.json", b"", "must not be empty"),
        ("a.json", b'{"a": tell-nobody}', "must be JSON"),
        ("a.json", b'{"a": 1} {"a": tell-nobody}', "must be JSON"),
        ("a.json", b"1 " * 100_001, "must hold at most 100000 values"),
        ("a.json", b"\xff\xfe", "must be UTF-8 text"),
        ("a.jsonl", b'{"a": 1}\n{"tell-nobody"\n', "must be JSON"),
        ("a.json", b"[" * 200_000, "must be JSON"),
        ("a.json", b'{"tell-nobody": 1, "tell-nobody": 2}', "must not repeat a key"),
        ("a.toml", b"tell-nobody", "must be TOML"),
        ("a.toml", b"a = {tell-nobody = 1, tell-nobody = 2}", "must be TOML"),
        (
            "a.csv",
            b"a,b\n" + b"x" * 200_000 + b",1\n",
            "must be CSV with cells of at most 131072 bytes",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_a_finding_and_hides_no_other(
    tmp_path: Path, name: str, data: bytes, told: str
) -> None:
    """A damaged file is not one that holds nothing; its content is in no line."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).write_bytes(data)
    (folder / "z.json").write_text('{"note": "tell-nobody"}')
    findings = found(folder)
    assert (name, "", f"cannot be read: {told}") in findings
    assert ("z.json", "note", "text") in findings
    assert (name, "", f"cannot be read: {told}") in found(folder / name)
    ended = preempt("sanitize", "--check", folder, "--json")
    assert "tell-nobody" not in ended.err + ended.out


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.toml", "a.csv"])
def test_text_in_a_damaged_file_is_still_looked_at(tmp_path: Path, name: str) -> None:
    """Of what no parser takes, what it says is found by lines."""
    damage = b"x" * 200_000 if name == "a.csv" else b"}{"
    (tmp_path / name).write_bytes(damage + b'\n"jane@example.org\n')
    findings = found(tmp_path / name)
    assert (name, "lines", "e-mail addresses") in findings
    assert any(kind.startswith("cannot be read: ") for _, _, kind in findings)


@pytest.mark.parametrize("between", ["", "\n", " \r\n\t"])
def test_json_objects_appended_to_one_another_are_each_looked_at(
    tmp_path: Path, between: str
) -> None:
    """A benchmark's results, appended, are keys and values and no damaged file."""
    texts = (json.dumps({"count": 1}), json.dumps({"kind": "jane"}), json.dumps({"source": "me"}))
    (tmp_path / "a.json").write_text(between.join(texts) + between)
    assert [("a.json", "kind", "text"), ("a.json", "source", "text")] == found(tmp_path / "a.json")


def test_more_files_than_are_read_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of too many files is told, after what was found in the first."""
    monkeypatch.setattr("collectors.sanitize.scan._MOST_FILES", 1)
    for name in ("a", "b"):
        (tmp_path / name).write_text("tell nobody")
    assert [
        (".", "", "more than 1 files: the others not read"),
        ("a", "lines", "text"),
    ] == found(tmp_path)


def test_a_directory_that_nobody_may_list_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it is not known, what lies beside it is."""
    (tmp_path / "shut").mkdir()
    (tmp_path / "z").write_text("tell nobody")
    scandir = os.scandir

    def refusing(folder: str) -> object:
        if Path(folder).name == "shut":
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    assert [
        ("shut", "", "cannot be read: Permission denied"),
        ("z", "lines", "text"),
    ] == found(tmp_path)


def test_one_finding_is_one_finding(tmp_path: Path) -> None:
    """The last line counts in words that fit."""
    (tmp_path / "a").write_text("tell nobody")
    assert "a: 1 finding; do not share it" in preempt("sanitize", "--check", tmp_path / "a").err
    (tmp_path / "b").write_text("tell nobody")
    assert "2 findings; do not share it" in preempt("sanitize", "--check", tmp_path).err


def test_a_path_that_is_not_there_is_one_line_and_exit_2(tmp_path: Path) -> None:
    """Nothing found where nothing is would be a lie."""
    for name in ("a", "a.json", "a.parquet"):
        assert "cannot be read: No such file" in refused(tmp_path / name)


def test_deep_json_within_reason_is_looked_into(tmp_path: Path) -> None:
    """A text 500 levels down is found without recursion, and named by its path."""
    (tmp_path / "a.json").write_text('{"note":' * 500 + '"tell nobody"' + "}" * 500)
    assert {"text"} == kinds(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a.bin", "a.csv", "a.jsonl", "a.json", "a.toml", "a.parquet"])
def test_a_gigabyte_of_nothing_takes_little_memory(tmp_path: Path, name: str) -> None:
    """A huge sparse file is told to be unreadable or binary from its first part."""
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(2**30)
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = preempt("sanitize", "--check", path)
    assert 1 == ended.code
    assert name == "a.parquet" or "binary, so nobody looks into it" in ended.err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024


def test_links_pipes_and_strangers_in_a_directory_are_named_and_never_opened(
    tmp_path: Path,
) -> None:
    """A link may lead anywhere and a pipe hang for ever: both are findings as they are."""
    folder = tmp_path / "in"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.parquet")
    (folder / "loop").symlink_to(folder)
    (folder / "out.json").symlink_to("/etc/passwd")
    (folder / "gone").symlink_to("nowhere")
    assert [
        ("gone", "", "a symbolic link"),
        ("loop", "", "a symbolic link"),
        ("out.json", "", "a symbolic link"),
        ("pipe", "", "neither a file nor a directory"),
        ("pipe.parquet", "", "neither a file nor a directory"),
    ] == found(folder)
    assert [("pipe", "", "neither a file nor a directory")] == found(folder / "pipe")


def test_a_key_beside_what_is_shared_is_found(tmp_path: Path) -> None:
    """Who keeps the key in the folder that goes out is told before."""
    shared = done(sanitized(write(workload(), tmp_path / "w.json"), tmp_path / "shared"))
    shutil.copy(tmp_path / "keys" / f"key-{KEY[:4]}", shared.folder / "key")
    assert [("key", "lines", "hashes")] == found(shared.folder)


def test_attempts_beside_a_workload_are_looked_at(tmp_path: Path) -> None:
    """Reasons in words of the source are found."""
    path = write(workload(), tmp_path / "raw" / "w.parquet")
    beside = attempts(path, [(1, "jane broke it", 0, 1, 1), (2, "failed", 0, 1, 1)])
    assert [(beside.name, "reason", "text")] == found(beside)


def test_the_name_of_a_file_that_was_asked_for_is_looked_at(tmp_path: Path) -> None:
    """A file is shared with its name."""
    path = tmp_path / "jane@example.org.json"
    path.write_text("{}")
    assert {"a name that holds e-mail addresses"} == kinds(path)


def test_a_comment_is_searched_for_addresses_and_keys(tmp_path: Path) -> None:
    """No reader of a configuration sees its comments; people do."""
    path = tmp_path / "a.toml"
    path.write_text("# declared, not measured; of jane@example.org\ntick_us = 5\n")
    assert [("a.toml", "lines", "e-mail addresses")] == found(path)
    path.write_text("# declared, not measured\ntick_us = 5\n")
    assert [] == found(path)


def test_a_text_after_a_long_nothing_is_not_passed_over(tmp_path: Path) -> None:
    """Of a file of no known form only the first part is read, and what is not read is told."""
    (tmp_path / "a").write_bytes(b"\n" * (2**24 + 2**17) + b"tell nobody\n")
    assert {"longer than 16842752 bytes: the others not read"} == kinds(tmp_path / "a")


@pytest.mark.parametrize("name", ["a.toml", "a.json"])
def test_a_number_of_thousands_of_digits_is_a_finding(tmp_path: Path, name: str) -> None:
    """It is more than any count, and could be anything."""
    for digits in (400, 4000):
        text = "tick_us = {}" if name == "a.toml" else '{{"tick_us": {}}}'
        (tmp_path / name).write_text(text.format("9" * digits))
        assert {"a number of too many digits"} == kinds(tmp_path / name)


def test_quiet_and_json_say_the_same(tmp_path: Path) -> None:
    """With --quiet only the exit code speaks."""
    (tmp_path / "a.json").write_text('{"note": "tell nobody"}')
    ended = preempt("sanitize", "--check", tmp_path / "a.json", "--quiet")
    assert (1, "", "") == (ended.code, ended.out, ended.err)


def test_a_thousand_findings_are_enough(tmp_path: Path) -> None:
    """A file of many unknown names does not fill the terminal."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = {f"{a}{b}{c}": 1 for a in letters for b in letters for c in "xyz"}
    (tmp_path / "a.json").write_text(json.dumps(names))
    assert 1000 == len(found(tmp_path / "a.json"))


def test_an_unfinished_writers_run_is_still_looked_at(tmp_path: Path) -> None:
    """A raw run that is being written has its lock and manifest looked at."""
    with RunWriter.create(tmp_path / "run", manifest()):
        assert ("manifest.json", "start", "absolute times") in found(tmp_path / "run")
