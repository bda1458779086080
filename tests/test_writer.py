"""Writing a run: a reader finds a whole run at any moment, and nobody writes it twice."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from collectors.run import read_run
from collectors.writer import RunWriter, new_manifest, run_id_of
from replay.errors import InputError, OutputExists
from replay.workload import Request, Workload

START = datetime(2026, 11, 30, 6, 1, 2, 345, UTC)
STEPS = pl.DataFrame({"engine": [0, 0], "step": [0, 1], "time_us": [10, 20]})


def manifest() -> dict[str, object]:
    """Manifest of a run of which nothing is known."""
    return new_manifest(run_id_of(START, "somewhere"), "observed", start=START)


def test_a_new_run_is_private_and_readable_before_anything_is_in_it(tmp_path: Path) -> None:
    """What is not known is null, the start is UTC, and only the owner may look."""
    path = tmp_path / "run"
    with RunWriter.create(path, manifest()):
        run = read_run(path)
    assert "2026-11-30T06:01:02.000345Z" == run.manifest["start"]
    assert "20261130T060102Z-" == run.run_id[:17]
    assert None is run.manifest["cache"]["block_size"]
    assert 0o700 == path.stat().st_mode & 0o777
    assert {0o600} == {p.stat().st_mode & 0o777 for p in path.iterdir()}


def test_parts_are_numbered_on_by_the_next_writer(tmp_path: Path) -> None:
    """A resumed run appends, and its hidden leftovers are gone."""
    path = tmp_path / "run"
    with RunWriter.create(path, manifest()) as writer:
        assert "part-00000.parquet" == writer.write_part("measured_steps", STEPS).name
    (path / "steps" / ".part-00001.parquet.abc").write_bytes(b"half")
    (path / ".manifest.json.abc").write_bytes(b"half")
    with RunWriter.resume(path) as writer:
        assert 1 == writer.next_part("measured_steps")
        later = STEPS.with_columns(pl.col("step") + 2)
        assert "part-00001.parquet" == writer.write_part("measured_steps", later).name
    assert [0, 1, 2, 3] == read_run(path).steps["step"].to_list()
    assert [] == list(path.rglob(".*.abc"))


def test_parts_that_retention_deleted_are_no_gap(tmp_path: Path) -> None:
    """The manifest says which part is the first; without it a missing part is refused."""
    path = tmp_path / "run"
    with RunWriter.create(path, manifest()) as writer:
        writer.write_part("measured_steps", STEPS).unlink()
        writer.write_part("measured_steps", STEPS)
        with pytest.raises(InputError, match=r"must hold part-00000\.parquet"):
            read_run(path)
        writer.write_manifest(writer.manifest | {"collection": {"first_parts": {"steps": 1}}})
    assert 2 == read_run(path).steps.height
    # Killed between saying so and deleting.
    (path / "steps" / "part-00000.parquet").write_bytes(b"old")
    assert 2 == read_run(path).steps.height
    (path / "steps" / "part-00000.parquet").unlink()
    (path / "steps" / "part-00001.parquet").unlink()
    writer.write_manifest(writer.manifest | {"collection": {"first_parts": {"steps": 2}}})
    with RunWriter.resume(path) as writer:
        assert 2 == writer.next_part("measured_steps")


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    """The second is told, until the first has closed it."""
    path = tmp_path / "run"
    with RunWriter.create(path, manifest()):
        with pytest.raises(OutputExists, match="another process writes this run"):
            RunWriter.resume(path)
        with pytest.raises(OutputExists, match="exists"):
            RunWriter.create(path, manifest())
    RunWriter.resume(path).close()


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ("measured_steps", {"step": [0]}, "engine is required, got no such column"),
        ("measured_steps", {"prompt": ["x"]}, "prompt is no column of measured_steps"),
        (
            "measured_steps",
            {"engine": [0], "step": [-1], "time_us": [0]},
            "row 0: step must be >= 0, got -1",
        ),
    ],
)
def test_what_no_reader_would_take_is_not_written(
    tmp_path: Path, table: str, columns: dict[str, list[object]], message: str
) -> None:
    """A writer's rows keep the contract, or there is no part."""
    path = tmp_path / "run"
    with RunWriter.create(path, manifest()) as writer:
        with pytest.raises(InputError, match=message):
            writer.write_part(table, pl.DataFrame(columns))
        assert 0 == writer.next_part(table)
    assert 0 == read_run(path).steps.height


def test_a_run_that_vanished_is_not_made_anew(tmp_path: Path) -> None:
    """Half a run in the place of a whole one would hide the loss."""
    path = tmp_path / "run"
    with RunWriter.create(path, manifest()) as writer:
        path.rename(tmp_path / "moved")
        with pytest.raises(OutputExists, match="is gone"):
            writer.write_part("measured_steps", STEPS)
        with pytest.raises(OutputExists, match="is gone"):
            writer.write_manifest(writer.manifest)
    assert not path.exists()


def test_the_offered_workload_is_kept_in_its_text_form(tmp_path: Path) -> None:
    """Its hash is the one that the manifest states."""
    path = tmp_path / "run"
    workload = Workload((Request("a", 0, 8, 4),), None)
    with RunWriter.create(path, manifest()) as writer:
        writer.write_offered(workload)
        stated = json.loads(json.dumps(writer.manifest))
        stated["workload"]["workload_sha256"] = workload.sha256
        writer.write_manifest(stated)
    offered = read_run(path).offered
    assert offered is not None
    assert workload.sha256 == offered.sha256
