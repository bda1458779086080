"""A first reading of a whole spool: which sessions it holds, when they lived, what is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.pack.clock import Clock
from collectors.pack.facts import facts_of
from collectors.pack.ids import SeenIds
from collectors.pack.kept import Place, Window
from collectors.pack.rows import MOST_ENGINES, SessionRows
from collectors.pack.session import check_same
from collectors.spool import Header, Key, Part, list_parts, read_part, said
from collectors.writer import configuration_sha256
from replay.errors import InputError


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


def read_lives(spool: Path) -> tuple[list[Life], dict[Key, str]]:
    """Sessions that can be read at all, and what is wrong with those that cannot.

    A session goes up to what is damaged in it. `InputError` where there is none.
    """
    lives, unread = [], dict[Key, str]()
    for key, parts in list_parts(spool).items():
        life, wrong = _life(key, parts)
        if life is not None:
            lives.append(life)
        elif wrong is not None:
            unread[key] = wrong
    if not lives:
        found = next(iter(unread.values()), "no readable part")
        raise InputError(str(spool), "", "must hold a recorder's spool", found)
    return lives, unread


def _life(key: Key, parts: list[Part]) -> tuple[Life | None, str | None]:
    header, facts, wrong = None, dict[str, Any](), None
    rows = SessionRows(key.engine, Clock(0, 0, 0), Window(), SeenIds(), Place())
    for part in parts:
        try:
            for frame in read_part(part):
                if frame.header is not None:
                    place = f"{part.path}: line 1"
                    told = facts_of(frame.header, place)
                    if header is None:
                        header, facts = frame.header, told
                        rows.clock = Clock(0, header.unix_ns, header.monotonic_ns)
                    else:
                        check_same(told, facts, place)
                rows.take(frame)
                for table in rows.rows.values():
                    table.clear()
        except (InputError, OSError) as exc:
            wrong = said(part, exc)
            break
    if header is None:
        return None, wrong
    if key.engine >= MOST_ENGINES:
        return None, f"{parts[0].path.name}: a run has at most {MOST_ENGINES} engines"
    start_us = header.unix_ns // 1000
    return Life(key, header, facts, start_us, max(rows.known.last_us, start_us)), None


def by_run(lives: list[Life]) -> list[list[Life]]:
    """Lives by run, runs by their beginning.

    One engine configuration is one run; two engines of one number that lived at the same time were
    two servers, and are two runs.
    """
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
