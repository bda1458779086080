"""A result file's rows become a measured run, which load, sql, gate and report take as any other.

The run is `observed`: nothing of it was offered by this project's driver. A request that the file
gives no prompt length or send time makes no row and is counted in the manifest.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from collectors.columns import MEASURED_REQUESTS, STATUSES
from collectors.pack.stage import appear, forget, made_beside, made_parents
from collectors.results.rows import Measured
from collectors.writer import new_manifest
from replay.errors import OutputExists
from replay.workload_frame import Sums

PART_ROWS = 100_000
_MIN_ID_DIGITS = 8
_IN_WORKLOAD = (
    (pl.col("status") == "ok")
    & (pl.col("prompt_tokens") > 0)
    & (pl.col("generated_tokens") > 0)
    & pl.col("time_ns").is_not_null()
).fill_null(value=False)
_WHY = {
    "no_prompt": "whose prompt length the file does not say",
    "no_send_time": "whose send time the file does not say",
    "not_in_file": "that the file does not hold",
    "warmup": "of the warm-up",
}


@dataclass(frozen=True)
class Written:
    """A run that was written: its rows by status, and the requests that made none by reason."""

    path: Path
    run_id: str
    statuses: dict[str, int]
    left_out: dict[str, int]
    notes: tuple[str, ...] = field(default=())

    @property
    def left_out_in_words(self) -> str:
        """How many requests made no row and what the file lacks of them, however they ended."""
        told = (f"{n} {_WHY.get(reason, reason)}" for reason, n in self.left_out.items())
        return ", ".join(told) or "none"


def run_paths(out: Path, benchmarks: int) -> list[Path]:
    """Where the runs of a file with several benchmarks go: OUT, OUT-2, and so on."""
    return [out, *(out.with_name(f"{out.name}-{k}") for k in range(2, benchmarks + 1))]


def check_paths(out: Path, benchmarks: int) -> list[Path]:
    """The same, refused where one is taken."""
    paths = run_paths(out, benchmarks)
    for path in paths:
        if path.exists():
            raise OutputExists(f"{path}: exists; choose another path")
    return paths


def write_runs(found: list[Measured], out: Path) -> list[Written]:
    """Write each benchmark as a run, all of them or none."""
    paths = check_paths(out, len(found))
    written = []
    with made_parents(out):
        try:
            for measured, path in zip(found, paths, strict=True):
                written.append(_write(measured, path))
            for path in paths:
                appear(path)
        finally:
            for path in paths:
                forget(path)
    return written


def replayable(measured: Measured) -> int:
    """How many of its requests its workload has."""
    return int(measured.rows.select(_IN_WORKLOAD.sum()).item())


def run_rows(measured: Measured) -> tuple[pl.DataFrame, dict[str, int]]:
    """Rows of `measured_requests` by arrival, and the requests that made none by reason.

    A request that is in the workload has its id there; any other is called by its place in the
    file.
    """
    rows = measured.rows
    lacks = pl.coalesce(
        pl.when(pl.col("prompt_tokens").fill_null(0) == 0).then(pl.lit("no_prompt")),
        pl.when(pl.col("time_ns").is_null()).then(pl.lit("no_send_time")),
        pl.when(~pl.col("status").is_in(STATUSES)).then(pl.col("status")),
    )
    start_ns = rows["time_ns"].min()
    told = rows.with_columns(
        lacks=lacks,
        arrival_us=(pl.col("time_ns") - pl.lit(start_ns, pl.Int64)) // 1000,
        in_workload=_IN_WORKLOAD,
    )
    left_out = dict(told["lacks"].drop_nulls().value_counts().sort("lacks").iter_rows())
    if measured.unseen:
        left_out["not_in_file"] = measured.unseen
    kept = told.filter(pl.col("lacks").is_null()).sort("arrival_us", maintain_order=True)
    wanted = pl.col("in_workload")
    digits = max(_MIN_ID_DIGITS, len(str(max(kept.select(wanted.sum()).item() - 1, 0))))
    number = pl.when(wanted).then(wanted.cum_sum() - 1).otherwise("line").cast(pl.String)
    name = pl.concat_str(
        pl.when(wanted).then(pl.lit("")).otherwise(pl.lit("attempt-")),
        number.str.zfill(digits),
        pl.lit(f"-{measured.source.name}"),
    )
    kept = kept.with_columns(request_id=name)
    return kept.select([c for c in MEASURED_REQUESTS if c in kept.columns]), left_out


def _write(measured: Measured, path: Path) -> Written:
    rows, left_out = run_rows(measured)
    manifest = _manifest(measured, rows, left_out)
    with made_beside(path, manifest) as writer:
        for start in range(0, rows.height, PART_ROWS):
            writer.write_part("measured_requests", rows.slice(start, PART_ROWS))
    statuses = dict(rows["status"].value_counts().sort("status").iter_rows())
    return Written(path, manifest["run_id"], statuses, left_out, measured.notes)


def _manifest(measured: Measured, rows: pl.DataFrame, left_out: dict[str, int]) -> dict[str, Any]:
    run_id = f"{measured.source.name}-{_digest(measured, rows)}"
    manifest = new_manifest(run_id, "observed", start=measured.start)
    manifest["engine"]["version"] = measured.engine_version
    manifest["model"]["name"] = measured.model
    manifest["clocks"]["arrival"] = measured.clock
    manifest["workload"]["workload_sha256"] = _workload_sha256(measured)
    manifest["send_end_us"] = rows["arrival_us"].max()
    manifest["note"] = "; ".join(measured.notes) or None
    manifest["imported"] = {
        "format": measured.source.name,
        "tool_version": measured.tool_version,
        "definitions": asdict(measured.definitions),
        "left_out": left_out,
    }
    return manifest


def _workload_sha256(measured: Measured) -> str | None:
    """Hash of its workload where that is all that was sent; else what was offered is not known."""
    if measured.unseen or not 0 < replayable(measured) == measured.rows.height:
        return None
    batches = measured.workload("run", measured.rows.height).batches
    sums = Sums(batches.head)
    for _ in sums.through(batches):
        pass
    return sums.sha256


def _digest(measured: Measured, rows: pl.DataFrame) -> str:
    """Tells benchmarks apart by their numbers alone: the same file again is the same run."""
    digest = hashlib.sha256(str(measured.start).encode())
    for line in _lines(rows):
        digest.update(line)
    return digest.hexdigest()[:12]


def _lines(rows: pl.DataFrame) -> Iterator[bytes]:
    for part in rows.iter_slices(PART_ROWS):
        yield part.write_csv(include_header=False).encode()
