"""What in a file or run could say who, what or when: columns are named, values never.

It knows nothing of how a file was made, and looks at what is in it. A name is allowed that a
contract uses, a text where it is one of a contract's own words or a pseudonym; a number is allowed
unless it is an absolute time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collectors.sanitize.found import ABSOLUTE_TIMES, EACH, Found
from collectors.sanitize.scan import scan
from collectors.sanitize.words import Vocabulary, is_pseudonymous

MOST_FINDINGS = 1000
_MOST_CHARACTERS = 2**20  # of one text: what it is shows early
_MAIL, _KEYS = "e-mail addresses", "keys or tokens"
_PATTERNS = {
    _MAIL: r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}\.[A-Za-z0-9.-]{1,63}",
    _KEYS: (
        r"(?i)\b(?:sk|pk|rk|hf|ghp|gho|ghs|glpat|xox[abprs])[-_][-_a-z0-9]{3,}"
        r"|\b(?:AKIA|ASIA|eyJ)[-_a-z0-9]{8,}|\bbearer\s+\S|-----BEGIN "
        r"|\b(?:api[_-]?key|secret|password|token)\s*[=:]"
    ),
    "network addresses": (
        r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b|\b(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}\b"
    ),
    "paths": r"(?:^|[\s\"'=:(])(?:~/|[A-Za-z]:\\|\.{0,2}/[^\s/]+/)",
    ABSOLUTE_TIMES: (
        r"(?:\b|_)(?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])-[0-3][0-9]|\b20[0-9]{6}[T_-]?[0-9]{6}"
    ),
    "hashes": r"\b[0-9a-fA-F]{32,}\b",
}
_COMPILED = {kind: re.compile(pattern) for kind, pattern in _PATTERNS.items()}
_IDS = ("request_id", "requester_id", "tenant", "run_id")
_NO_PSEUDONYMS = "ids that are no pseudonyms"
_FILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
# A name of letters is shown, because it has to be found again; anything else may be a value.
_SHOWN = re.compile(r"[A-Za-z_]{1,40}")
_UNITS = {"_us": (10**6,), "_ms": (10**3,), "_ns": (10**9,), "_s": (1,), "_seconds": (1,)}
_ANY_UNIT = (1, 10**3, 10**6, 10**9)
_UNIT_UNSAID = ("timestamp", "start", "time")  # contracts use them, and others for moments
_TIME = re.compile(r"time|stamp|date|start|created|arrival|epoch|unix", re.IGNORECASE)
_EVER = (1e9, 1e11)  # seconds, from 2001 to 5138
_NOWADAYS = (1.1e9, 2.4e9)  # from 2004 to 2046


@dataclass(frozen=True, order=True)
class Finding:
    """A column, a key or a part of a file, and what kind of thing it seems to hold."""

    place: str
    column: str
    kind: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.column, self.kind) if part)


def check(path: Path, known: Vocabulary) -> list[Finding]:
    """What a file or directory should not hold to be shared; at most 1,000 findings.

    What lies beside values is told where they do not say as much already.
    """
    findings: dict[Finding, None] = {}
    beside: set[Finding] = set()
    for found in scan(path):
        place, column = _place(found.place), _column(found, known)
        for kind in _kinds(found, known):
            findings[Finding(place, column, kind)] = None
        beside |= {Finding(place, column, kind) for kind in _kinds_beside(found.beside)}
        if len(findings) >= MOST_FINDINGS:
            break
    told = {(one.place, one.kind) for one in findings}
    return sorted([*findings, *(one for one in beside if (one.place, one.kind) not in told)])


def _kinds(found: Found, known: Vocabulary) -> Iterator[str]:
    named = next((name for name in reversed(found.column) if name != EACH), None)
    field = named or ""
    if found.odd is not None:
        yield found.odd
    if found.name is not None:
        yield from _name_kinds(found.name, known, column=bool(found.column))
    if _is_time(field, found, known=field in known.names):
        yield ABSOLUTE_TIMES
    if found.least is not None and named is None:
        yield "numbers without a name"
    if found.least is not None and field in _IDS:
        yield _NO_PSEUDONYMS
    told: set[str] = set()
    for text in found.texts:
        told.update(_text_kinds(field, text, known))
    yield from told


def _kinds_beside(texts: tuple[str, ...]) -> Iterator[str]:
    """Of texts that nobody's rules are for, what is never anything else."""
    for kind in (_MAIL, _KEYS):
        if any(_COMPILED[kind].search(text) for text in texts):
            yield kind


def _name_kinds(name: str, known: Vocabulary, *, column: bool) -> Iterator[str]:
    if column and name in known.names:
        return
    told = list(_patterns(name))
    yield from (f"a name that holds {kind}" for kind in told)
    if not told and column:
        yield "a name that no contract uses"
    elif not told and not _FILE_NAME.fullmatch(name):
        yield "a file name that may say something"


def _text_kinds(field: str, text: str, known: Vocabulary) -> Iterator[str]:
    if not text or is_pseudonymous(text) or known.says_nothing(field, text):
        return
    if (field, text) == ("privacy", "raw"):
        yield "a raw run"
        return
    told = list(_patterns(text[:_MOST_CHARACTERS]))
    yield from told
    if field in _IDS:
        yield _NO_PSEUDONYMS
    elif not told:
        yield "text"


def _patterns(text: str) -> Iterator[str]:
    return (kind for kind, pattern in _COMPILED.items() if pattern.search(text))


def _is_time(field: str, found: Found, *, known: bool) -> bool:
    """Whether numbers are times since 1970: one, where the name says the unit, or else all.

    An offset of thirty years is none, but counts of any size there are.
    """
    unit = next((units for end, units in _UNITS.items() if field.endswith(end)), None)
    least, most = found.least, found.most
    if least is None or most is None:
        return False
    low, high = _EVER if unit or _TIME.search(field) else _NOWADAYS
    units: tuple[int, ...] = unit or _ANY_UNIT
    if unit:
        least = most = max(most, -least)
    elif known and field not in _UNIT_UNSAID:
        units = (10**9,)  # a smaller number is a count
    return any(low * u <= least and most < high * u for u in units)


def _place(place: Path) -> str:
    shown = (
        part if _FILE_NAME.fullmatch(part) and not any(_patterns(part)) else _described(part)
        for part in place.parts
    )
    return "/".join(shown) or "."  # the directory itself


def _column(found: Found, known: Vocabulary) -> str:
    if found.position is not None and known.names.isdisjoint(found.column):
        return f"column {found.position}"
    text = ""
    for name in found.column:
        shown = name in known.names or (_SHOWN.fullmatch(name) and not any(_patterns(name)))
        if name == EACH:
            text += EACH
        else:
            text += ("." if text else "") + (name if shown else _described(name))
    return text


def _described(name: str) -> str:
    return f"<name of {len(name)} code points>"
