"""One exposition page as the samples it holds, whatever else is on it.

Prometheus text (0.0.4 and 1.0.0) and OpenMetrics differ, for what is read here, in how a whole
page ends, so one line parser reads both. A line that breaks the rules costs that line: libraries
that stop there lose the page. Problems carry a line's number and a kind, never its text.
"""

import io
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

OPENMETRICS = "application/openmetrics-text"
# 64 engines of 512: vLLM 0.32.0 has 361 for each. A page of a few MiB can hold a million.
MOST_SAMPLES = 2**15
MOST_LINE_BYTES = 64 * 2**10
MOST_PROBLEMS = 100
_MEMO_CHARACTERS = 1024  # longer series are parsed anew each time, so that the memo stays small
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_BARE = re.compile(_NAME)
_LABEL = re.compile(rf"\s*([a-zA-Z_][\w.:]*|{_QUOTED})\s*=\s*({_QUOTED})\s*")
_QUOTED_NAME = re.compile(rf"\s*({_QUOTED})\s*")
# Each digit can be matched in one way only: no text makes the engine try again and again.
_VALUE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORDS = {
    "nan": math.nan,
    "+inf": math.inf,
    "inf": math.inf,
    "-inf": -math.inf,
    "+infinity": math.inf,
    "infinity": math.inf,
    "-infinity": -math.inf,
}
_ESCAPE = re.compile(r'\\(["\\n])')
_ESCAPED = {'"': '"', "\\": "\\", "n": "\n"}


class RawSample(NamedTuple):
    """One line's sample, named as on the page; exemplar and time stamp are dropped."""

    name: str
    labels: dict[str, str]
    value: float


class Problem(NamedTuple):
    """A line, counted from 1, that could not be read as it stands, and why."""

    line: int
    kind: str


@dataclass(frozen=True)
class Page:
    """What was read of a page.

    `types` are the families' as declared. `problems` are the first `MOST_PROBLEMS`, `kinds` counts
    all of them; `format` is `prometheus` or `openmetrics`. `complete` is False where the page ends
    in the middle: OpenMetrics without `# EOF`, text without its last line's end, inside a
    histogram, or between a family's HELP and TYPE. A family without samples is whole: labelled
    metrics have none before their first use. `cut` is True where reading stopped at a page's most
    samples: what follows, of any family, is not there, and only the page's end says whether it is
    whole.
    """

    samples: list[RawSample]
    types: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    format: str = "prometheus"
    complete: bool = True
    cut: bool = False
    kinds: Counter[str] = field(default_factory=Counter)


def parse_page(body: bytes, content_type: str | None, most_samples: int = MOST_SAMPLES) -> Page:
    """Every readable sample of a page, the first of equal series; any bytes give a page.

    The format is the media type's, not its version parameter's; where there is no known type, the
    last line decides.
    """
    samples: list[RawSample] = []
    types: dict[str, str] = {}
    problems = _Problems()
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    ended, cut, untyped = False, False, ""
    for number, raw in enumerate(io.BytesIO(body), 1):
        line = raw.decode("utf-8", "replace").strip()
        if not line:
            continue
        if len(raw) > MOST_LINE_BYTES:
            problems.note(number, "too long")
            continue
        if ended:
            problems.note(number, "a line after the end")
            continue
        if line[0] == "#":
            ended = line == "# EOF"
            untyped = _header(line, types, most_samples)
            continue
        untyped = ""
        found = _sample(line)
        if isinstance(found, str):
            problems.note(number, found)
            continue
        if "\ufffd" in line and b"\xef\xbf\xbd" not in raw:
            problems.note(number, "not UTF-8")
        name, labels, value = found
        if (name, labels) in seen:
            problems.note(number, "a series that was there before")
            continue
        if len(samples) >= most_samples:
            problems.note(number, "too many series")
            cut, ended = True, body.rstrip().endswith(b"\n# EOF")
            break
        seen.add((name, labels))
        samples.append(RawSample(name, dict(labels), value))
    openmetrics = _is_openmetrics(content_type, ended=ended)
    midway = not cut and (untyped or _in_histogram(samples))
    whole = not midway and body[-1:] in {b"\n", b""}
    return Page(
        samples,
        types,
        problems.first,
        "openmetrics" if openmetrics else "prometheus",
        complete=ended if openmetrics else whole,
        cut=cut,
        kinds=problems.kinds,
    )


def _is_openmetrics(content_type: str | None, *, ended: bool) -> bool:
    media = (content_type or "").partition(";")[0].strip().lower()
    return media == OPENMETRICS or (media != "text/plain" and ended)


class _Problems:
    """The first problems, and how many there are of each kind."""

    def __init__(self) -> None:
        self.first: list[Problem] = []
        self.kinds: Counter[str] = Counter()

    def note(self, line: int, kind: str) -> None:
        self.kinds[kind] += 1
        if len(self.first) < MOST_PROBLEMS:
            self.first.append(Problem(line, kind))


def _in_histogram(samples: list[RawSample]) -> bool:
    """Whether the last sample is a bucket that more of its histogram must follow."""
    if not samples or not samples[-1].name.endswith("_bucket"):
        return False
    last = samples[-1]
    count = last.name.removesuffix("_bucket") + "_count"  # some writers put it first
    whole = last.labels.get("le") == "+Inf" and any(s.name == count for s in samples)
    return not whole


def _header(line: str, types: dict[str, str], most: int) -> str:
    """Keep a family's type; returns the name of a family whose type must still come."""
    _, kind, name, text = (*line.split(None, 3), "", "", "", "")[:4]
    if name.startswith('"'):
        name = _unquoted(name)
    if kind == "TYPE" and len(types) < most:
        types[name] = text
    return name if kind == "HELP" and name not in types else ""


Labels = tuple[tuple[str, str], ...]


def _sample(line: str) -> tuple[str, Labels, float] | str:
    """Name, labels and value of a line, or what is wrong with it."""
    series, rest = _split(line)
    if series is None:
        return "no series"
    words = rest.split(None, 1)
    if not words:
        return "no value"
    value = _number(words[0])
    return "no number" if value is None else (*series, value)


def _split(line: str) -> tuple[tuple[str, Labels] | None, str]:
    """The series of a line, and what follows it."""
    head, brace, rest = line.rpartition("}")
    if brace:
        # The last brace ends the series, unless an exemplar has one, or an odd comment.
        series = _series(head) if len(head) <= _MEMO_CHARACTERS else _read(head)
        if series is not None:
            return series, rest
        return _scan(line)
    name, _, rest = line.partition(" ")
    return ((name, ()) if _BARE.fullmatch(name) else None), rest


def _scan(line: str) -> tuple[tuple[str, Labels] | None, str]:
    """As `_split`, label by label: for lines with a brace behind the series."""
    opening = line.find("{")
    space = line.find(" ")
    if 0 <= space < opening and _BARE.fullmatch(line[:space]):
        return (line[:space], ()), line[space:]
    at = opening + 1
    quoted = _QUOTED_NAME.match(line, at) if opening == 0 else None
    at = quoted.end() if quoted else at
    while at < len(line) and line[at] != "}":
        if line[at] in ", ":
            at += 1
        elif label := _LABEL.match(line, at):
            at = label.end()
        else:
            return None, ""
    return _read(line[:at]), line[at + 1 :]


def _read(head: str) -> tuple[str, Labels] | None:
    """Name and labels of a series without its closing brace; None where it is none."""
    name, _, text = head.partition("{")
    at = 0
    if not name.strip():
        quoted = _QUOTED_NAME.match(text)
        if quoted is None:
            return None
        name, at = _unquoted(quoted[1]), quoted.end()
        if at < len(text) and text[at] != ",":
            return None
        at += 1
    elif not _BARE.fullmatch(name := name.strip()):
        return None
    labels: dict[str, str] = {}
    while at < len(text):
        label = _LABEL.match(text, at)
        if label is None:
            return (name, tuple(labels.items())) if not text[at:].strip(", ") else None
        key = _unquoted(label[1]) if label[1].startswith('"') else label[1]
        if key in labels:
            return None
        labels[key] = _unquoted(label[2])
        at = label.end()
        if at < len(text) and text[at] != ",":
            return None
        at += 1
    return name, tuple(labels.items())


# A page is much like the page before it: only its values change. The largest fits, for one that did
# not would push its own beginning out each time.
_series = lru_cache(maxsize=MOST_SAMPLES)(_read)


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    return _ESCAPE.sub(lambda m: _ESCAPED[m[1]], inner) if "\\" in inner else inner


def _number(text: str) -> float | None:
    if _VALUE.fullmatch(text):
        return float(text)
    return _WORDS.get(text.lower())
