"""A whole spool at once: which runs it holds, and each of them packed to its end.

Everything is read and checked before anything is written. One engine configuration is one run; two
engines of one number that lived at the same time were two servers, and are two runs.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.columns import DIRECTORIES, SCHEMA
from collectors.manifest import read_manifest
from collectors.pack.clock import Clock, zero_ns
from collectors.pack.driven import clock_behind_us, merge_driven, never_offered
from collectors.pack.facts import completed, contradictions, facts_of, merged
from collectors.pack.ids import SeenIds
from collectors.pack.kept import Place, Window
from collectors.pack.packer import STATE, Packer, read_state
from collectors.pack.rows import SessionRows
from collectors.pack.summary import counts_of, manifest_of
from collectors.pack.tables import ROWS
from collectors.spool import Header, Key, Part, list_parts, read_part
from collectors.writer import RunWriter, configuration_sha256, new_manifest, run_id_of
from replay.errors import InputError, OutputExists
from replay.output import new_file
from replay.parquet import write_frame

if TYPE_CHECKING:
    import polars as pl

MARGIN_US = 1_000_000  # how far apart the clocks of a driver and an engine may be
_MOST_REQUESTS = 10_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Told = Callable[[str], None]


@dataclass(frozen=True)
class Life:
    """One session as a first reading found it; times are microseconds since 1970."""

    key: Key
    header: Header
    facts: Mapping[str, Any]
    start_us: int
    end_us: int

    @property
    def configuration(self) -> str:
        """Hash of the engine's configuration."""
        return configuration_sha256(self.facts)


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


def pack_spool(spool: Path, out: Path, told: Told = lambda _: None) -> list[Packed]:
    """Pack a spool into new runs OUT, OUT-2, …, or into the run that OUT is.

    `told` hears what is being done. What a killed packing left is gone on with.
    """
    told(f"{spool}: reading")
    lives = [life for key, parts in list_parts(spool).items() if (life := _life(key, parts))]
    if not lives:
        raise InputError(str(spool), "", "must hold a recorder's spool", "no readable part")
    groups = _groups(lives)
    planned = [_planned(group, k) for k, group in enumerate(groups)]
    if out.exists() and _run_id(out) not in {manifest["run_id"] for manifest in planned}:
        told(f"{out}: adding what the engine did")
        return [_add(spool, out, lives)]
    paths = [out, *(out.with_name(f"{out.name}-{k}") for k in range(2, len(groups) + 1))]
    todo = list(zip(paths, groups, planned, strict=True))
    states = [_packed_already(path, manifest) for path, _, manifest in todo]
    if all(states):
        raise OutputExists(f"{out}: this spool is packed there already; choose another path")
    found = []
    for (path, group, manifest), done in zip(todo, states, strict=True):
        if not done:
            told(f"{path}: writing")
            found.append(_make(spool, path, group, manifest))
    return found


def _life(key: Key, parts: list[Part]) -> Life | None:
    """Read a session from end to end; None if nothing of it is whole."""
    header, rows, facts = None, None, {}
    for part in parts:
        for frame in read_part(part):
            if frame.header is not None:
                place = f"{part.path}: line 1"
                told = facts_of(frame.header, place)
                if header is None:
                    header, facts = frame.header, told
                    clock = Clock(0, header.unix_ns, header.monotonic_ns)
                    rows = SessionRows(key.engine, clock, Window(), SeenIds(), Place())
                elif told != facts:
                    rule = "must describe the engine of its session's first part"
                    raise InputError(place, "", rule)
            if rows is not None:
                rows.take(frame)
                for table in rows.rows.values():
                    table.clear()
    if header is None or rows is None:
        return None
    start_us = header.unix_ns // 1000
    return Life(key, header, facts, start_us, max(rows.known.last_us, start_us))


def _groups(lives: list[Life]) -> list[list[Life]]:
    """Lives by run, runs by their beginning."""
    groups: list[list[Life]] = []
    for life in sorted(lives, key=lambda life: life.key):
        for group in groups:
            same = group[0].configuration == life.configuration
            beside = any(
                one.key.engine == life.key.engine and one.end_us > life.start_us for one in group
            )
            if same and not beside:
                group.append(life)
                break
        else:
            groups.append([life])
    return groups


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


def _packed_already(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a run to be made is there; another one in its place is refused."""
    if not path.exists():
        return False
    if _run_id(path) != manifest["run_id"]:
        raise OutputExists(f"{path}: is another run; choose another path")
    state = path / STATE
    return state.exists() and bool(read_state(state).get("done"))


def _make(spool: Path, path: Path, group: list[Life], manifest: dict[str, Any]) -> Packed:
    chosen = {life.key for life in group}
    resumed = path.exists()
    with RunWriter.resume(path) if resumed else RunWriter.create(path, manifest) as writer:
        packer = Packer(writer, spool, chosen=chosen)
        packer.pack(final=True)
        return _finish(packer, None)


def _add(spool: Path, path: Path, lives: list[Life]) -> Packed:
    """Give a run that has no engine's tables those of the sessions that were its own."""
    with RunWriter.resume(path) as writer:
        manifest = writer.manifest
        driven = manifest["kind"] == "driven"
        tables = [t for t in ROWS if not driven or t != "measured_requests"]
        state = path / STATE
        if state.exists() and read_state(state).get("done"):
            raise OutputExists(f"{path}: a spool is packed there already")
        if not state.exists() and any(writer.next_part(table) for table in tables):
            raise OutputExists(f"{path}: has what an engine did already; choose another run")
        own = _own(spool, path, manifest, lives)
        chosen = {life.key for life in own}
        window = Window(end_us=manifest["drain_end_us"])
        if not driven:
            packer = Packer(writer, spool, chosen=chosen, window=window)
            packer.pack(final=True)
            return _finish(packer, None)
        return _add_to_driven(writer, spool, chosen, window)


def _own(spool: Path, path: Path, manifest: Mapping[str, Any], lives: list[Life]) -> list[Life]:
    """Sessions of the run: alive while it was, and of its engine."""
    place, zero_us = str(path / "manifest.json"), zero_ns(manifest, path) // 1000
    end = manifest["drain_end_us"]
    alive = [
        life
        for life in lives
        if life.end_us >= zero_us and (end is None or life.start_us <= zero_us + end)
    ]
    if not alive:
        raise InputError(str(spool), "", "must hold a session from the time of the run", "none")
    own = [life for life in alive if not contradictions(manifest, life.facts)]
    if not own:
        completed(manifest, alive[0].facts, place)
    groups = _groups(own)
    if begun := _begun(path):  # a live collector took these: it is they that are gone on with
        groups = [[life for group in groups if begun & {o.key for o in group} for life in group]]
    if len(groups) > 1:
        rule = "must hold the sessions of one engine configuration, one server, in the run's time"
        raise InputError(str(spool), "", rule, f"{len(groups)}")
    return groups[0]


def _begun(path: Path) -> set[Key]:
    """Sessions that are in the run already, so far as they had come."""
    state = path / STATE
    sessions = read_state(state).get("sessions", []) if state.exists() else []
    try:
        return {Key(*told["key"]) for told in sessions}
    except (KeyError, TypeError) as exc:
        raise InputError(str(state), "", "must be as its packer left it") from exc


def _add_to_driven(writer: RunWriter, spool: Path, chosen: set[Key], window: Window) -> Packed:
    """Complete the driver's rows, and add the engine's events and steps."""
    import polars as pl

    from collectors.parts import read_table

    run_id = writer.manifest["run_id"]
    driver = read_table(writer.path, "measured_requests", run_id, _MOST_REQUESTS).frame
    offered = frozenset(driver["request_id"])
    wide = Window(window.end_us, offered, MARGIN_US, MARGIN_US)  # moved: no row may be before 0
    engine = _engine_rows(writer.manifest, spool, chosen, wide)
    early = [(pl.col(name) - MARGIN_US) for name in ("arrival_us", "engine_arrival_us")]
    engine = engine.with_columns(*early)
    behind_us = clock_behind_us(driver, engine)
    moved = Window(window.end_us, offered, MARGIN_US, behind_us)
    packer = Packer(
        writer, spool, chosen=chosen, window=moved, tables=("measured_events", "measured_steps")
    )
    packer.pack(final=True)
    engine = engine.with_columns(engine["engine_arrival_us"] + behind_us)
    _replace_requests(writer.path, merge_driven(driver, engine))
    notes = []
    if behind_us:
        notes.append(
            f"the engine's clock was at least {behind_us} us behind the driver's;"
            " the engine's times are moved by that"
        )
    return _finish(packer, never_offered(driver, engine), notes)


def _engine_rows(
    manifest: dict[str, Any], spool: Path, chosen: set[Key], window: Window
) -> "pl.DataFrame":
    """Request rows as the engine has them, by way of a run that nobody keeps."""
    from collectors.parts import read_table

    with tempfile.TemporaryDirectory(prefix="preempt-pack-") as folder:
        path = Path(folder) / "run"
        with RunWriter.create(path, manifest) as writer:
            Packer(writer, spool, chosen=chosen, window=window, tables=("measured_requests",)).pack(
                final=True
            )
        return read_table(path, "measured_requests", manifest["run_id"], _MOST_REQUESTS).frame


def _replace_requests(path: Path, rows: "pl.DataFrame") -> None:
    """Put completed rows in the place of the driver's, part by part: each is whole at any time."""
    import polars as pl

    start = 0
    for part in sorted((path / DIRECTORIES["measured_requests"]).glob("part-*.parquet")):
        height = pl.read_parquet(part, columns=["request_id"]).height
        with new_file(part, force=True, mode=0o600) as temporary:
            write_frame(rows.slice(start, height), temporary, {"schema": SCHEMA})
        start += height


def _finish(packer: Packer, strangers: int | None, notes: list[str] | None = None) -> Packed:
    manifest = manifest_of(packer)
    said = [*notes] if notes else []
    if strangers:
        said.append(f"{strangers} requests reached the engine that the driver never offered")
        manifest["not_modelled"] = merged(
            manifest["not_modelled"],
            [f"{strangers} requests of somebody else were served meanwhile"],
        )
    manifest["recorder"]["notes"] += said
    packer.writer.write_manifest(manifest)
    packer.finish()
    sessions = list(packer.sessions.values())
    return Packed(
        path=packer.writer.path,
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
