"""One scrape as it is kept: a JSON line of a journal, of compressed pages, or recorded elsewhere.

A line says all that is needed to read the scrape again with a better parser, in another process.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from collectors.scrape.outcome import Fetched, Outcome, outcome_of_status
from replay.errors import InputError, describe
from replay.strict import choice, integer, parse_json, table

_FIELDS = ("scrape", "time_us", "duration_us", "session")
_CLOCKS = ("unix_ns", "monotonic_ns")
_MOST_NS = 2**63 - 1
_MOST_TYPE = 1024


@dataclass(frozen=True)
class Entry:
    """One scrape; `time_us` is since the run's start, `session` numbers the collector's starts."""

    scrape: int
    time_us: int
    unix_ns: int
    monotonic_ns: int
    duration_us: int
    session: int
    outcome: Outcome
    status: int | None = None
    content_type: str | None = None
    page: str | None = field(default=None, repr=False)

    @property
    def body(self) -> bytes | None:
        """The page as the parser takes it."""
        return None if self.page is None else self.page.encode("utf-8", "surrogatepass")

    @property
    def page_bytes(self) -> int:
        """Bytes of the page, zero where there is none."""
        text = self.page or ""
        return len(text) if text.isascii() else len(self.body or b"")

    def line(self) -> bytes:
        """The entry as one JSON line without its newline."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "backslashreplace"
        )


def fetched_entry(
    fetched: Fetched,
    unix_ns: int,
    monotonic_ns: int,
    duration_us: int,
    *,
    scrape: int = 0,
    time_us: int = 0,
) -> Entry:
    """Entry of an answer, the clocks being those of its request; a run gives it its number."""
    return Entry(
        scrape=scrape,
        time_us=time_us,
        unix_ns=unix_ns,
        monotonic_ns=monotonic_ns,
        duration_us=duration_us,
        session=0,
        outcome=fetched.outcome,
        status=fetched.status,
        content_type=fetched.content_type and fetched.content_type[:_MOST_TYPE],
        page=None if fetched.body is None else page_text(fetched.body),
    )


def page_text(body: bytes) -> str:
    """A page as text that can be kept in JSON; what is no UTF-8 is marked as such."""
    return body.decode("utf-8", "replace")


def entry_of(line: bytes, place: str) -> Entry:
    """Entry of a line that this collector wrote; what does not fit raises `InputError`."""
    found = _object(line, place)
    numbers: dict[str, Any] = {name: integer(found.get(name), place, name) for name in _FIELDS}
    for name in _CLOCKS:  # nanoseconds since the epoch are no safe integer
        value = found.get(name)
        if type(value) is not int or not 0 <= value <= _MOST_NS:
            raise InputError(place, name, "must be nanoseconds", describe(value))
        numbers[name] = value
    outcome = Outcome(choice(found.get("outcome"), place, "outcome", list(Outcome)))
    return Entry(**numbers, **_answer(found, place), outcome=outcome)


def recorded_entry(line: bytes, place: str, start_unix_ns: int) -> Entry:
    """Entry of a line of `recorded.jsonl.gz`, which has seconds of a wall clock only."""
    found = _object(line, place)
    unix_s = found.get("unix_s")
    if not isinstance(unix_s, (int, float)) or not 0 <= unix_s < 2**33:
        raise InputError(place, "unix_s", "must be seconds since the epoch")
    unix_ns = int(unix_s * 1_000_000_000)
    answer = _answer(found, place)
    outcome = outcome_of_status(200 if answer["status"] is None else answer["status"])
    if outcome is Outcome.OK and not (answer["page"] or "").strip():
        outcome = Outcome.EMPTY
    return Entry(
        scrape=integer(found.get("scrape"), place, "scrape"),
        time_us=max(0, unix_ns - start_unix_ns) // 1000,
        unix_ns=unix_ns,
        monotonic_ns=unix_ns,
        duration_us=0,
        session=0,
        outcome=outcome,
        **answer,
    )


def _object(line: bytes, place: str) -> Mapping[str, Any]:
    try:
        text = line.decode()
    except UnicodeDecodeError as exc:
        raise InputError(place, "", "must be UTF-8 text") from exc
    return table(parse_json(text, place), place, "line")


def _answer(found: Mapping[str, Any], place: str) -> dict[str, Any]:
    status = found.get("status")
    if status is not None:
        integer(status, place, "status")
    for name in ("content_type", "page"):
        if not isinstance(found.get(name), (str, type(None))):
            raise InputError(place, name, "must be a string or null")
    return {"status": status, "content_type": found.get("content_type"), "page": found.get("page")}
