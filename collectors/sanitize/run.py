"""A raw run made shareable, with its workload: the same pseudonyms in both, so that they join.

Raw pages, journals, notes and whatever else lies in the directory are not copied: what is written
is made from the tables' contract columns and the manifest's allow-list.
"""

import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from collectors.manifest import value_at
from collectors.run import Run, run_workload
from collectors.sanitize.manifest import shareable_manifest
from collectors.sanitize.options import Blur
from collectors.sanitize.provenance import A_MOMENT_US, blur_words, by_reason
from collectors.sanitize.pseudonyms import Pseudonyms
from collectors.sanitize.steps import Renumbered
from collectors.sanitize.tables import (
    Ids,
    ids_of,
    shareable_events,
    shareable_requests,
    shareable_samples,
)
from collectors.sanitize.tenants import merged_tenants
from collectors.sanitize.workload import shareable_attempts
from collectors.traces.result import ATTEMPTS, count_by_reason
from collectors.writer import LOCK, RunWriter
from replay.errors import InputError
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import Request, Workload

_APART = "apart"  # a writer makes its directory itself, and takes its parent's lock
_REASONS = {"error": "failed", "ok": "no_output"}  # the others are called as their status


@dataclass(frozen=True)
class Shareable:
    """What of a run may be shared: the run, the workload of its requests, and its other requests.

    `said` are lines for a report, and say why there is no workload where there is none.
    """

    run: Run
    workload: Workload | None
    attempts: pl.DataFrame
    said: list[str]


def check_raw(run: Run) -> None:
    """Refuse what cannot be made shareable before anything is made for it."""
    if run.manifest.get("privacy") == "shareable":
        raise InputError(str(run.path), "privacy", "must be raw", "shareable: nothing to do")
    for table, frame in _tables(run).items():
        for name in ("arrival_us", "engine_arrival_us", "time_us"):
            if name in frame.columns and (frame[name].abs() >= A_MOMENT_US).any():
                rule = "must be microseconds after the run's start, not since 1970"
                raise InputError(f"{run.path}: {table}", name, rule)
    _workload(run)


def shareable_run(run: Run, pseudonyms: Pseudonyms, blur: Blur) -> Shareable:
    """Shareable form of a raw run that `check_raw` let through."""
    manifest, lost = shareable_manifest(run.manifest, pseudonyms)
    merged = merged_tenants(_requests_of_tenants(run), blur)
    ids = ids_of(run, manifest["run_id"], pseudonyms, blur, merged)
    renumbered = Renumbered()
    offered = None if run.offered is None else _renamed(run.offered, ids, blur, renumbered)
    if offered is not None:
        manifest["workload"]["workload_sha256"] = offered.sha256
    made = replace(
        run,
        run_id=ids.run_id,
        manifest=manifest,
        offered=offered,
        requests=shareable_requests(run.requests, ids, blur, renumbered),
        events=shareable_events(run.events, ids),
        steps=run.steps.with_columns(run_id=pl.lit(ids.run_id)),
        samples=shareable_samples(run.samples, ids, pseudonyms, blur),
    )
    if blur.changes_numbers:  # these tell what is blurred
        made = replace(made, events=made.events.clear(), steps=made.steps.clear())
    workload, attempts = _workload(made), shareable_attempts(_attempts(made), blur, 0)
    if workload is not None:
        told = {"sanitized": blur_words(blur), "attempts": count_by_reason(attempts)}
        provenance = {k: v for k, v in (workload.provenance or {}).items() if k != "window"}
        if left_out := _left_out(run):
            told["dropped"] = provenance.get("dropped", {}) | left_out
        workload = replace(workload, name=None, provenance=provenance | told)
    said = [*_said(run, made, ids, merged, len(renumbered.known)), _manifest_line(lost)]
    return Shareable(made, workload, attempts, said)


def write_shareable(run: Run, folder: Path) -> None:
    """Write a shareable run into an empty directory, which may be locked.

    Unlike a raw run's, its files are for whom the umask says: they were made to be passed on.
    """
    apart = folder / _APART / "run"
    with RunWriter.create(apart, dict(run.manifest)) as writer:
        if run.offered is not None:
            writer.write_offered(run.offered)
        for table, frame in _tables(run).items():
            if frame.height:
                writer.write_part(table, frame.drop("run_id"))
    (apart / LOCK).unlink()  # nobody goes on writing it
    for entry in apart.iterdir():
        entry.rename(folder / entry.name)
    apart.rmdir()
    shared = stat.S_IMODE(apart.parent.stat().st_mode)  # made by nobody's special wish
    apart.parent.rmdir()
    for entry in folder.rglob("*"):
        entry.chmod(shared if entry.is_dir() else shared & 0o666)


def _workload(run: Run) -> Workload | None:
    """What the run was offered or served; None where no one workload can hold it."""
    return run_workload(run) if _why_none(run) is None else None


def _why_none(run: Run) -> str | None:
    ids = run.requests.filter(_replayable())["request_id"]
    if run.offered is not None:
        return None
    if ids.is_empty():
        return "no workload: none of its requests generated anything"
    if not ids.is_unique().all():
        return (
            "no workload: requests of several engines have one id;"
            " preempt import run --engine takes one engine's"
        )
    return None


def _replayable() -> pl.Expr:
    """Which measured requests become rows of a workload (`run_workload`)."""
    return pl.col("generated_tokens").fill_null(0) >= 1


def _attempts(run: Run) -> pl.DataFrame:
    """Measured requests that make no row of the workload; of an offered one all do.

    `source_row` is the row of `measured_requests`, and times are the run's as there: the workload
    has to stay what `run_workload` gives, whose time begins at its own first request.
    """
    if run.offered is not None:
        return ATTEMPTS.to_frame()
    rows = run.requests.with_row_index("source_row", offset=1).filter(~_replayable())
    return rows.select(
        pl.col("source_row").cast(pl.Int64),
        pl.col("status").replace(list(_REASONS), list(_REASONS.values())).alias("reason"),
        "arrival_us",
        "prompt_tokens",
        pl.col("generated_tokens").alias("output_tokens"),
    )


def _left_out(run: Run) -> dict[str, int]:
    """Requests that an importer counted because its file does not say enough of them for a row."""
    return by_reason(value_at(run.manifest, "imported.left_out") or {})


def _requests_of_tenants(run: Run) -> list[Mapping[str, int]]:
    """Requests of each tenant in every table that shows tenants."""
    measured = (run.requests, run.requests.filter(_replayable()))
    counts: list[Mapping[str, int]] = [Counter(rows["tenant"].drop_nulls()) for rows in measured]
    offered = run.offered.requests if run.offered else ()
    return [*counts, Counter(r.tenant for r in offered if r.tenant is not None)]


def _renamed(workload: Workload, ids: Ids, blur: Blur, renumbered: Renumbered) -> Workload:
    blocks = pl.Series([r.prefix_blocks for r in workload.requests], dtype=pl.List(pl.Int64()))

    def up(tokens: int) -> int:
        return min(-(-tokens // blur.tokens) * blur.tokens, MAX_SAFE_INTEGER)

    requests = (
        Request(
            request_id=ids.requests[r.request_id],
            arrival_us=r.arrival_us // blur.arrival_us * blur.arrival_us,
            prompt_tokens=up(r.prompt_tokens),
            output_tokens=up(r.output_tokens),
            priority=r.priority,
            tenant=None if r.tenant is None else ids.tenants[r.tenant],
            prefix_blocks=None if row is None else tuple(row),
        )
        for r, row in zip(workload.requests, renumbered(blocks).to_list(), strict=True)
    )
    return Workload(tuple(requests), workload.prefix_block_tokens)


def _tables(run: Run) -> dict[str, pl.DataFrame]:
    return {
        "measured_requests": run.requests,
        "measured_events": run.events,
        "measured_steps": run.steps,
        "metric_samples": run.samples,
    }


def _said(
    raw: Run, made: Run, ids: Ids, merged: Mapping[str, str | None], blocks: int
) -> Iterator[str]:
    """What was done to the rows of a run."""
    yield f"request ids: {len(ids.requests):,} became pseudonyms"
    dropped = sum(name is None for name in ids.tenants.values())
    together = sum(name is not None for name in merged.values())
    left = len({name for name in ids.tenants.values() if name is not None})
    yield (
        f"tenants: {len(ids.tenants):,} became {left:,} pseudonyms, {together:,} merged as rare,"
        f" {dropped:,} dropped"
    )
    if blocks:
        yield f"prefix blocks: {blocks:,} renumbered"
    unknown = raw.requests["finish_reason"].drop_nulls().len()
    unknown -= made.requests["finish_reason"].drop_nulls().len()
    yield f"finish reasons: {unknown:,} that are not vLLM's dropped"
    for table, frame in _tables(raw).items():
        rows = _tables(made)[table].height
        yield f"{table}: {rows:,} of {frame.height:,} rows kept"
    for lack, requests in _left_out(raw).items():
        yield f"requests without a row in the run: {requests:,} {lack}"
    yield "raw pages, journals and other files: not copied"
    if reason := _why_none(made):
        yield reason


def _manifest_line(lost: list[str]) -> str:
    return f"manifest: dropped or changed: {', '.join(lost) or 'nothing'}"
