"""Packing a spool while it grows: bounded memory, no row twice, none lost, whatever kills it.

What was read and where it ended is in `STATE` inside the run. A commit writes there first how far
it is going to go, then the parts, then the state behind them. Whoever finds a commit half done
reads the same frames again, makes the same rows, and writes only the parts that are not there yet:
parts appear whole, and nothing that a reader may have seen is taken back. A part of the spool may
be deleted once a commit is behind it.

A part that is damaged ends its session at the last good frame before it. Other sessions go on, and
nothing damaged is ever deleted.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from collectors.columns import DIRECTORIES
from collectors.pack.clock import Clock, zero_ns
from collectors.pack.facts import contradictions, facts_of
from collectors.pack.ids import SeenIds
from collectors.pack.kept import Place, Window
from collectors.pack.rows import MOST_ENGINES, MOST_SESSIONS, SessionRows
from collectors.pack.session import Session, is_passing
from collectors.pack.tables import ROWS, rows_frame
from collectors.pack.turns import over_before, replaced
from collectors.spool import Header, Key, Part, list_parts, list_spool, read_header, said
from collectors.writer import RunWriter
from replay.errors import InputError
from replay.output import new_file
from replay.strict import check_schema, parse_json, read_text

STATE = ".pack-state.json"
MOST_ROWS = 30_000  # rows that wait in memory; a commit makes them one part of each table
_SCHEMA = "preemption-pack/1"
_MOST_STATE_BYTES = 2**30


class Packer:
    """Turns the sessions of one engine configuration into parts of one run.

    `chosen` names the sessions to pack; None takes those whose headers the run's manifest does not
    contradict. `tables` are those written. `before` is where the run's earlier parts lie, if that
    is not where new ones are written.
    """

    def __init__(
        self,
        writer: RunWriter,
        directory: Path,
        *,
        window: Window | None = None,
        chosen: Collection[Key] | None = None,
        tables: Collection[str] = tuple(ROWS),
        most_rows: int = MOST_ROWS,
        before: Path | None = None,
    ) -> None:
        self.writer, self.directory, self.tables = writer, directory, tuple(tables)
        self.sessions: dict[Key, Session] = {}
        self.headerless: set[Key] = set()
        self.unread: dict[Key, str] = {}  # what could not be read, now or ever, and why
        self.strangers: list[str] = []  # names in the spool that are no part's
        self.waiting: set[Key] = set()  # behind one of their engine that may go on
        self.gone_on: set[Key] = set()  # that wrote more after they were taken to be over
        self.written: dict[str, int] = dict.fromkeys(ROWS, 0)  # rows, over all sittings
        self.done = False
        self._window, self._chosen, self._most_rows = window or Window(), chosen, most_rows
        self._before = before or writer.path
        self._zero_ns = zero_ns(writer.manifest, writer.path)
        self._seen: dict[int, SeenIds] = {}
        self._others: set[Key] = set()
        self._place = writer.path / STATE
        if self._place.exists():
            self._resume()
        else:
            self._saved = self._state()
            self._save(self._saved, None)

    def pack(self, *, final: bool = False) -> list[Path]:
        """Read and commit all that is new; parts of the spool that may be deleted now.

        `final`: the spool grows no more, so what has not ended is censored.
        """
        more = True
        while more:
            more = self.read(final=final)
            packed = self.commit()
        return packed

    def read(self, *, final: bool = False) -> bool:
        """Read what is new; True if it stopped because enough rows wait for a commit.

        A session is over when its engine said so, or when it writes no more and another one does in
        its place: what it left unfinished is censored then. Until then the other one waits, for its
        numbers follow those of the first.
        """
        # Listed first: what another part or a session in its place follows is complete from here.
        listed, self.strangers = list_spool(self.directory)
        silent = replaced(listed)
        self.waiting.clear()
        self.unread = {key: why for key, why in self.unread.items() if key in listed}
        for key in self._in_turn(listed):
            session = self.sessions.get(key) or self._open(key, listed[key])
            if session is None:
                continue
            if session.closed:
                wrote = any(part.number > session.part for part in listed.get(key, []))
                if wrote and session.damage is None:
                    self.gone_on.add(key)
                continue
            # What is silent and cannot be read now would keep a later one waiting.
            last = final or key in silent
            if not self._read_on(session, listed.get(key, []), final=last):
                return True
            if session.rows.known.ended or session.damage or last:
                session.close()
        return False

    def commit(self) -> list[Path]:
        """Write the rows that wait and make the reading permanent; parts that may be deleted."""
        if any(self._waiting()):
            self._save(self._saved, self._positions())
            self._write()
        state = self._state()
        if state != self._saved:
            self._save(state, None)
            self._saved = state
        return list(self._packed())

    @property
    def others(self) -> frozenset[Key]:
        """Sessions seen that are of another configuration, so of another run."""
        return frozenset(self._others)

    @property
    def began_after(self) -> frozenset[Key]:
        """Sessions of another configuration that began after the run did."""
        return frozenset(key for key in self._others if key.unix_ns > self._zero_ns)

    @property
    def replaced(self) -> bool:
        """Whether an engine of the run is over and one of another configuration took its place."""
        for other in self.began_after:
            own = [s for s in self.sessions.values() if s.key.engine == other.engine]
            if own and all(s.closed and s.key < other for s in own):
                return True
        return False

    def start_us(self, key: Key) -> int:
        """Run time at which a session began, by the wall clock."""
        return (key.unix_ns - self._zero_ns) // 1000

    def finish(self) -> None:
        """Mark the run as packed for good."""
        self.done = True
        self.commit()

    def _in_turn(self, listed: Mapping[Key, list[Part]]) -> list[Key]:
        """Sessions to read, those of an engine one after the other."""
        mine: Collection[Key] | None = self._chosen
        if mine is None:
            mine = listed.keys() - over_before(listed, self._zero_ns)
        wanted = {key for key in listed if key in mine and key not in self._others}
        return sorted(wanted | self.sessions.keys(), key=lambda key: (key.engine, key))

    def _open(self, key: Key, parts: list[Part]) -> Session | None:
        self.unread.pop(key, None)
        for part in parts:
            try:
                header = read_header(part)
                # A header that breaks a rule is no header.
                mine = header is None or self._chosen is not None or self._agrees(header, part)
            except (InputError, OSError) as exc:
                self.unread[key] = said(part, exc)
                return None
            if header is not None:
                break
        else:
            self.headerless.add(key)
            return None
        self.headerless.discard(key)
        if not mine:
            self._others.add(key)
            return None
        if any(s.key.engine == key.engine and not s.closed for s in self.sessions.values()):
            self.waiting.add(key)
            return None
        return self._begin(key, header, part)

    def _agrees(self, header: Header, part: Part) -> bool:
        place = f"{part.path}: line 1"
        facts = facts_of(header, place)
        first = next(iter(self.sessions.values()), None)
        if first is not None and facts != facts_of(first.header, place):
            return False
        return not contradictions(self.writer.manifest, facts)

    def _begin(self, key: Key, header: Header, part: Part) -> Session | None:
        before = [s for s in self.sessions.values() if s.key.engine == key.engine]
        place = Place()
        if before:
            last = before[-1].rows
            place = Place(
                len(before),
                last.place.seq + last.known.seen_seq + 1,
                last.place.step + last.known.next_step,
            )
        if key.engine >= MOST_ENGINES or place.session >= MOST_SESSIONS:
            rule = f"a run has at most {MOST_ENGINES} engines, and {MOST_SESSIONS} sessions of each"
            self.unread[key] = f"{part.path.name}: {rule}"
            return None
        clock = Clock(self._zero_ns, header.unix_ns, header.monotonic_ns)
        self.sessions[key] = Session(key, header, self._rows(key.engine, clock, place))
        return self.sessions[key]

    def _rows(self, engine: int, clock: Clock, place: Place) -> SessionRows:
        seen = self._seen.setdefault(engine, SeenIds())
        return SessionRows(engine, clock, self._window, seen, place)

    def _read_on(self, session: Session, parts: list[Part], *, final: bool) -> bool:
        """Read what is new of a session; False if enough rows wait before its end.

        What cannot be read now is tried again, unless it is `final`; what is damaged never is.
        """
        self.unread.pop(session.key, None)
        for part in parts:
            try:
                if not session.read(part, parts, self._is_full):
                    return False
            except (InputError, OSError) as exc:
                if is_passing(exc) and not final:
                    self.unread[session.key] = said(part, exc)
                else:
                    session.spoil(part, exc)
                break
        return True

    def _is_full(self) -> bool:
        return sum(self._waiting()) >= self._most_rows

    def _waiting(self) -> Iterator[int]:
        for session in self.sessions.values():
            for table in self.tables:
                yield len(session.rows.rows[table])

    def _write(self, done: Mapping[str, int] | None = None) -> None:
        """Write the rows that wait, except where a part follows the `done` ones already."""
        for table in ROWS:
            rows = [row for s in self.sessions.values() for row in s.rows.rows[table]]
            if rows and table in self.tables:
                self.written[table] += len(rows)
                if done is None or self.writer.next_part(table) == done[table]:
                    self.writer.write_part(table, rows_frame(table, rows))
            for session in self.sessions.values():
                session.rows.rows[table].clear()

    def _packed(self) -> Iterator[Path]:
        listed = list_parts(self.directory)
        silent = replaced(listed)
        for key, parts in listed.items():
            session = self.sessions.get(key)
            if session is None:
                continue
            # One that was closed for another reason may go on in its last part.
            over = session.closed and (session.rows.known.ended or key in silent)
            for part in parts:
                packed = part.number < session.part or (over and part.number == session.part)
                if packed and part.number not in session.left_out:
                    yield part.path

    def _positions(self) -> list[list[Any]]:
        return [[*s.key, *s.position] for s in self.sessions.values()]

    def _state(self) -> dict[str, Any]:
        sessions = [
            {
                "key": list(s.key),
                "header": [s.header.part, s.header.unix_ns, s.header.monotonic_ns],
                "facts": dict(s.header.facts),
                "rows": s.rows.state(),
                "read": [s.part, s.offset, s.closed, s.lost_parts, s.left_out, s.damage],
            }
            for s in self.sessions.values()
        ]
        parts = {table: self.writer.next_part(table) for table in ROWS}
        state = {"schema": _SCHEMA, "done": self.done, "written": self.written, "parts": parts}
        state["sessions"] = sessions
        copy: dict[str, Any] = json.loads(json.dumps(state))  # a later change must not change it
        return copy

    def _save(self, state: Mapping[str, Any], until: list[list[Any]] | None) -> None:
        with new_file(self._place, force=True, mode=0o600) as temporary:
            temporary.write_text(json.dumps({**state, "until": until}), encoding="utf-8")

    def _resume(self) -> None:
        for left in self.writer.path.glob(f".{STATE}.*"):
            left.unlink(missing_ok=True)
        place = str(self._place)
        state = read_state(self._place)
        try:
            until = state.pop("until")
            self._saved, self.done, self.written = state, state["done"], dict(state["written"])
            self._fill_seen(state["parts"])
            for told in state["sessions"]:
                self._restore(told)
            if until is not None:
                self._redo(until, state["parts"])
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            if isinstance(exc, InputError):
                raise
            raise InputError(place, "", "must be as its packer left it") from exc

    def _restore(self, told: Mapping[str, Any]) -> None:
        key = Key(*told["key"])
        part, unix_ns, monotonic_ns = told["header"]
        header = Header(part, key.engine, unix_ns, monotonic_ns, told["facts"])
        rows = self._rows(key.engine, Clock(0, 0, 0), Place())
        rows.restore(told["rows"])
        self.sessions[key] = Session(key, header, rows, *told["read"])

    def _redo(self, until: list[list[Any]], parts: Mapping[str, int]) -> None:
        """Go as far as the killed commit was to go, and write what of it is missing."""
        listed = list_parts(self.directory)
        for *name, part, offset, closed, left_out, damage in sorted(until, key=_by_engine):
            key = Key(*name)
            session = self.sessions.get(key)
            if session is None and key in listed:
                session = self._open(key, listed[key])
            if session is None or session.closed:
                continue
            session.read_until(listed.get(key, []), (part, offset))
            session.left_out, session.damage = left_out, damage
            if closed:
                session.close()
        self._write(parts)
        self._saved = self._state()
        self._save(self._saved, None)

    def _fill_seen(self, parts: Mapping[str, int]) -> None:
        """Ids that the run's rows have; open requests bring theirs."""
        import polars as pl

        # A driven run's request rows name what was offered, not what came to the engine.
        table = ("measured_events", "measured_requests")["measured_requests" in self.tables]
        folder = self._before / DIRECTORIES[table]
        for number in range(parts[table]):
            path = folder / f"part-{number:05d}.parquet"
            if path.exists():  # retention deletes the oldest
                frame = pl.read_parquet(path, columns=["engine", "request_id"])
                for engine, one in frame.iter_rows():
                    self._seen.setdefault(engine, SeenIds()).add(one)


def _by_engine(row: list[Any]) -> tuple[Any, ...]:
    unix_ns, engine, pid, *_ = row
    return engine, unix_ns, pid


def read_state(place: Path) -> dict[str, Any]:
    """State of a packer as it was last saved."""
    found = parse_json(read_text(place, _MOST_STATE_BYTES), str(place))
    check_schema(found.get("schema") if isinstance(found, dict) else None, _SCHEMA, str(place))
    state: dict[str, Any] = found
    return state
