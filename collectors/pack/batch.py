"""A whole spool at once: which runs it holds, and each of them packed to its end.

Everything is made beside its place (`stage`) before anything is in it: what is refused leaves a run
as it was, and a new one is whole or not there.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.columns import DIRECTORIES, SCHEMA
from collectors.drive.store import not_connected
from collectors.manifest import read_manifest
from collectors.pack.clock import zero_ns
from collectors.pack.driven import MARGIN_US, clock_behind_us, merge_driven, spans
from collectors.pack.facts import completed, contradictions, merged
from collectors.pack.kept import Window
from collectors.pack.lives import Life, by_run, read_lives
from collectors.pack.packer import STATE, Packer, read_state
from collectors.pack.stage import Stage, added_to, appear, forget, made_beside, made_parents
from collectors.pack.summary import counts_of, manifest_of
from collectors.pack.tables import ROWS
from collectors.spool import Key
from collectors.writer import RunWriter, new_manifest, run_id_of
from replay.errors import InputError, OutputExists
from replay.output import new_file
from replay.parquet import write_frame

if TYPE_CHECKING:
    import polars as pl

_MOST_REQUESTS = 10_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REQUESTS = "measured_requests"
_SERVED = ("ok", "aborted", "censored")
Told = Callable[[str], None]


@dataclass(frozen=True)
class Packed:
    """What one run got; `never_offered` is None where nobody drove it."""

    path: Path
    run_id: str
    engines: list[int]
    sessions: int
    rows: Mapping[str, int]
    preemptions: int
    complete: bool
    never_offered: int | None
    notes: list[str]
    not_modelled: list[str] | None


@dataclass(frozen=True)
class _Spool:
    """A spool as it was first read."""

    path: Path
    lives: list[Life]
    unread: dict[Key, str]

    def packer(self, writer: RunWriter, lives: list[Life], **options: Any) -> Packer:
        packer = Packer(writer, self.path, chosen={life.key for life in lives}, **options)
        packer.unread = dict(self.unread)
        return packer


def pack_spool(spool: Path, out: Path, told: Told = lambda _: None) -> list[Packed]:
    """Pack a spool into new runs OUT, OUT-2, …, or into the run that OUT is.

    `told` hears what is being done. What a killed packing left is made anew.
    """
    told(f"{spool}: reading")
    found = _Spool(spool, *read_lives(spool))
    groups = by_run(found.lives)
    planned = [_planned(group, k) for k, group in enumerate(groups)]
    if out.exists() and _run_id(out) not in {manifest["run_id"] for manifest in planned}:
        told(f"{out}: adding what the engine did")
        return [_add(found, out)]
    paths = [out, *(out.with_name(f"{out.name}-{k}") for k in range(2, len(groups) + 1))]
    todo = [
        (path, group, manifest)
        for path, group, manifest in zip(paths, groups, planned, strict=True)
        if not _is_there(path, manifest)
    ]
    if not todo:
        raise OutputExists(f"{out}: this spool is packed there already; choose another path")
    with made_parents(out):
        return _make(found, todo, told)


def _planned(group: list[Life], number: int) -> dict[str, Any]:
    """Manifest of a new run for these lives."""
    start = _EPOCH + timedelta(microseconds=min(life.start_us for life in group))
    run_id = run_id_of(start, group[0].configuration, str(number))
    manifest = new_manifest(run_id, "observed", start=start)
    return completed(manifest, group[0].facts, "manifest.json")


def _run_id(path: Path) -> str:
    place = path / "manifest.json"
    if not place.is_file():
        raise OutputExists(f"{path}: exists and is no run; choose another path")
    run_id: str = read_manifest(place)["run_id"]
    return run_id


def _is_there(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a run to be made is there; another one in its place is refused."""
    if not path.exists():
        return False
    if _run_id(path) != manifest["run_id"]:
        raise OutputExists(f"{path}: is another run; choose another path")
    return True


def _make(
    spool: _Spool, todo: list[tuple[Path, list[Life], dict[str, Any]]], told: Told
) -> list[Packed]:
    """Make all new runs, then let them appear."""
    packed = []
    try:
        for path, group, manifest in todo:
            told(f"{path}: writing")
            with made_beside(path, manifest) as writer:
                packer = spool.packer(writer, group)
                packer.pack(final=True)
                packed.append(_finish(packer, path, None))
        for path, _, _ in todo:
            appear(path)
    finally:
        for path, _, _ in todo:
            forget(path)
    return packed


def _add(spool: _Spool, path: Path) -> Packed:
    """Give a run that has no engine's tables those of the sessions that were its own."""
    with added_to(path, _check_free) as stage:
        manifest = stage.manifest
        own = _own(spool, path, manifest)
        window = Window(end_us=manifest["drain_end_us"])
        if manifest["kind"] == "driven":
            return _add_to_driven(spool, stage, own, window)
        packer = spool.packer(stage, own, window=window, before=path)
        packer.pack(final=True)
        return _finish(packer, path, None)


def _check_free(run: RunWriter) -> None:
    """Refuse a run that has, or cannot get, what an engine did."""
    driven = run.manifest["kind"] == "driven"
    state = run.path / STATE
    if state.exists() and read_state(state).get("done"):
        raise OutputExists(f"{run.path}: a spool is packed there already")
    if driven and not run.next_part(_REQUESTS):
        rule = "must have the driver's rows: preempt collect drive --finish RUN writes them"
        raise InputError(str(run.path), "requests", rule, "none")
    tables = [t for t in ROWS if not driven or t != _REQUESTS]
    if not state.exists() and any(run.next_part(table) for table in tables):
        raise OutputExists(f"{run.path}: has what an engine did already; choose another run")


def _own(spool: _Spool, path: Path, manifest: Mapping[str, Any]) -> list[Life]:
    """Sessions of the run: alive while it was, and of its engine."""
    place, zero_us = str(path / "manifest.json"), zero_ns(manifest, path) // 1000
    end = manifest["drain_end_us"]
    alive = [
        life
        for life in spool.lives
        if life.end_us >= zero_us and (end is None or life.start_us <= zero_us + end)
    ]
    if not alive:
        rule = "must hold a session from the time of the run"
        raise InputError(str(spool.path), "", rule, "none")
    own = [life for life in alive if not contradictions(manifest, life.facts)]
    if not own:
        completed(manifest, alive[0].facts, place)
    groups = by_run(own)
    if begun := _begun(path):  # a live collector took these: it is they that are gone on with
        groups = [[life for group in groups if begun & {o.key for o in group} for life in group]]
    if len(groups) > 1:
        rule = "must hold the sessions of one engine configuration, one server, in the run's time"
        raise InputError(str(spool.path), "", rule, f"{len(groups)}")
    return groups[0]


def _begun(path: Path) -> set[Key]:
    """Sessions that are in the run already, so far as they had come."""
    state = path / STATE
    sessions = read_state(state).get("sessions", []) if state.exists() else []
    try:
        return {Key(*told["key"]) for told in sessions}
    except (KeyError, TypeError) as exc:
        raise InputError(str(state), "", "must be as its packer left it") from exc


def _add_to_driven(spool: _Spool, stage: Stage, own: list[Life], window: Window) -> Packed:
    """Complete the driver's rows, and add the engine's events and steps."""
    path = stage.run.path
    driver = _requests(path, stage.manifest["run_id"])
    end = window.end_us
    last = 2**53 if end is None else end  # nobody knows when it ended
    offered = spans(driver, last, not_connected(path, _MOST_REQUESTS))
    window = Window(end, offered)
    behind_us = clock_behind_us(driver, _engine_rows(spool, stage, own, window))
    packer = spool.packer(stage, own, window=replace(window, shift_us=behind_us))
    packer.pack(final=True)
    first = stage.run.next_part(_REQUESTS)
    engine = _requests(stage.path, stage.manifest["run_id"], first)
    rows = merge_driven(driver, engine)
    _complete_requests(stage, rows)
    packer.written[_REQUESTS] = 0  # the driver's have all that the engine's had
    lacking = rows.filter(rows["engine"].is_null() & rows["status"].is_in(_SERVED)).height
    strangers = engine.height - rows["engine"].count()
    notes = []
    if behind_us:
        notes.append(
            f"the engine's clock was at least {behind_us} us behind the driver's;"
            " the engine's times are moved by that"
        )
    return _finish(packer, path, strangers, lacking, notes)


def _requests(path: Path, run_id: str, first: int = 0) -> "pl.DataFrame":
    from collectors.parts import read_table

    return read_table(path, _REQUESTS, run_id, _MOST_REQUESTS, first).frame


def _engine_rows(spool: _Spool, stage: Stage, own: list[Life], window: Window) -> "pl.DataFrame":
    """Request rows by the engine's own clock, by way of a run that nobody keeps."""
    import polars as pl

    moved = replace(window, shift_us=MARGIN_US)  # no row may be before 0
    with tempfile.TemporaryDirectory(dir=stage.path) as folder:
        path = Path(folder) / "run"
        with RunWriter.create(path, stage.manifest) as writer:
            spool.packer(writer, own, window=moved, tables=(_REQUESTS,)).pack(final=True)
        rows = _requests(path, stage.manifest["run_id"])
    times = ("arrival_us", "engine_arrival_us")
    return rows.with_columns(pl.col(name) - MARGIN_US for name in times)


def _complete_requests(stage: Stage, rows: "pl.DataFrame") -> None:
    """Put completed rows under the names of the driver's parts, in the place of the engine's."""
    import polars as pl

    folder = DIRECTORIES[_REQUESTS]
    shutil.rmtree(stage.path / folder, ignore_errors=True)
    (stage.path / folder).mkdir(mode=0o700)
    start = 0
    for part in sorted((stage.run.path / folder).glob("part-*.parquet")):
        height = pl.read_parquet(part, columns=["request_id"]).height
        with new_file(stage.path / folder / part.name, force=False, mode=0o600) as temporary:
            write_frame(rows.slice(start, height), temporary, {"schema": SCHEMA})
        start += height


def _finish(
    packer: Packer,
    path: Path,
    strangers: int | None,
    lacking: int = 0,
    notes: list[str] | None = None,
) -> Packed:
    """Write manifest and state of a run that will be at `path`."""
    manifest = manifest_of(packer, path)
    said, inexact = [*notes] if notes else [], []
    if strangers:
        said.append(f"{strangers} requests reached the engine that the driver never offered")
        inexact.append(f"{strangers} requests of somebody else were served meanwhile")
    if lacking:
        inexact.append(f"{lacking} requests were sent that no recorded engine knows")
    if inexact:
        manifest["not_modelled"] = merged(manifest["not_modelled"], inexact)
    manifest["recorder"]["notes"] += said
    packer.writer.write_manifest(manifest)
    packer.finish()
    sessions = list(packer.sessions.values())
    return Packed(
        path=path,
        run_id=manifest["run_id"],
        engines=manifest["recorder"]["engines"],
        sessions=len(sessions),
        rows=dict(packer.written),
        preemptions=counts_of(sessions)["preemptions"],
        complete=manifest["recorder"]["complete"],
        never_offered=strangers,
        notes=manifest["recorder"]["notes"],
        not_modelled=manifest["not_modelled"],
    )
