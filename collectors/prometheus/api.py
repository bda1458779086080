"""Asking a Prometheus server: bounded answers, one deadline a query, and a fixed set of errors.

No text of the server gets into an error: what went wrong is named by its outcome.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import quote, urlencode

from collectors.scrape.fetch import Fetcher
from collectors.scrape.outcome import Outcome
from replay.errors import InputError, describe
from replay.strict import decode, parse_json

MOST_ANSWER_BYTES = 8 * 2**20
PLACE = "Prometheus"
_LISTING = "series"
_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.5
_UNPROCESSABLE, _BAD_REQUEST, _SLOW_DOWN = 422, 400, 429
_AGAIN = frozenset(
    {
        Outcome.REFUSED,
        Outcome.UNREACHABLE,
        Outcome.DISCONNECTED,
        Outcome.TRUNCATED,
        Outcome.HTTP_500,
        Outcome.HTTP_5XX,
    }
)
_WAY_OUT = {
    Outcome.HTTP_401: "must let us in: pass --bearer-token-file",
    Outcome.HTTP_403: "must let us in: pass --bearer-token-file",
    Outcome.HTTP_404: "must have the API of Prometheus at this URL; is a path prefix missing?",
    Outcome.REDIRECT: "must answer at this URL itself; redirects are not followed",
    Outcome.CREDENTIALS: "needs a token file that can be read and holds one token",
}
Sleep = Callable[[float], Awaitable[None]]


class TooMuch(Exception):
    """The answer is too large or takes too long: ask for less."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


@dataclass(frozen=True)
class Series:
    """Labels, the name among them, and points (milliseconds since the epoch, value) in order."""

    labels: Mapping[str, str]
    points: list[tuple[int, float]] = field(repr=False)

    @property
    def name(self) -> str:
        """The metric's name, empty after a function took it."""
        return self.labels.get("__name__", "")


class Api:
    """Queries of one server; `histograms` counts series whose native histograms were left out."""

    def __init__(self, fetcher: Fetcher, sleep: Sleep) -> None:
        self._fetcher, self._sleep = fetcher, sleep
        self.histograms = 0

    async def listed(self, selector: str, start_ms: int, end_ms: int) -> list[dict[str, str]]:
        """Label sets of the series that have samples in a time."""
        ask = {"match[]": selector, "start": seconds(start_ms), "end": seconds(end_ms)}
        try:
            found = await self._ask(_LISTING, ask)
        except TooMuch as exc:
            rule = "has too many series to list; narrow them with --selector"
            raise InputError(PLACE, "", rule, str(exc.outcome)) from exc
        if not isinstance(found, list):
            raise InputError(PLACE, "data", "must be a list of series", describe(found))
        return [_labels(one) for one in found]

    async def raw(self, selector: str, start_ms: int, end_ms: int) -> list[Series]:
        """All samples of start <= time < end; `TooMuch` where a shorter time may do."""
        # Prometheus 2 takes in a range's first millisecond and 3 does not, so it is asked for one
        # more than is wanted.
        query = f"{selector}[{end_ms - start_ms}ms]"
        found = await self._matrix("query", {"query": query, "time": seconds(end_ms - 1)})
        return [
            Series(one.labels, [point for point in one.points if start_ms <= point[0] < end_ms])
            for one in found
        ]

    async def steps(self, query: str, start_ms: int, end_ms: int, step_ms: int) -> list[Series]:
        """Values at start, start + step, … up to end; `TooMuch` where a shorter time may do."""
        ask = {"query": query, "start": seconds(start_ms), "end": seconds(end_ms)}
        return await self._matrix("query_range", ask | {"step": seconds(step_ms)})

    async def _matrix(self, path: str, ask: Mapping[str, str]) -> list[Series]:
        data = await self._ask(path, ask)
        if not isinstance(data, dict) or data.get("resultType") != "matrix":
            raise InputError(PLACE, "data.resultType", "must be matrix")
        found = data.get("result")
        if not isinstance(found, list):
            raise InputError(PLACE, "data.result", "must be a list of series", describe(found))
        self.histograms += sum("histograms" in one for one in found if isinstance(one, dict))
        return [_series(one) for one in found]

    async def _ask(self, path: str, ask: Mapping[str, str]) -> Any:
        url = f"{self._fetcher.urls.base}/api/v1/{path}?{urlencode(ask, quote_via=quote)}"
        for attempt in range(_ATTEMPTS):
            answer = await self._fetcher.get(url, MOST_ANSWER_BYTES)
            outcome = answer.outcome
            if outcome is Outcome.OK and answer.body is not None:
                return _data(answer.body)
            too_much = outcome in {Outcome.TOO_LARGE, Outcome.TIMEOUT, Outcome.HTTP_503}
            # With these matchers its series were listed, so what is bad is how much is asked for.
            beyond = answer.status == _BAD_REQUEST and path != _LISTING
            if too_much or beyond or answer.status == _UNPROCESSABLE:
                raise TooMuch(outcome)
            if answer.status == _BAD_REQUEST:
                rule = "must accept the query; is --selector right?"
                raise InputError(PLACE, path, rule, "status 400")
            if outcome not in _AGAIN and answer.status != _SLOW_DOWN:
                break
            if attempt + 1 < _ATTEMPTS:
                await self._sleep(_FIRST_PAUSE_S * 2**attempt)
        rule = _WAY_OUT.get(outcome, "must answer queries")
        raise InputError(PLACE, path, rule, str(outcome))


def seconds(milliseconds: int) -> str:
    """A moment or duration as the API takes it, without a float's rounding."""
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _data(body: bytes) -> Any:
    answer = parse_json(decode(body, PLACE), PLACE)
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise InputError(PLACE, "status", "must be success: is this a Prometheus?")
    return answer.get("data")


def _series(found: Any) -> Series:
    if not isinstance(found, dict):
        raise InputError(PLACE, "series", "must be an object", describe(found))
    values = found.get("values", [])
    if not isinstance(values, list):
        raise InputError(PLACE, "values", "must be a list", describe(values))
    points = [_point(one) for one in values]
    if any(after[0] <= before[0] for before, after in pairwise(points)):
        raise InputError(PLACE, "values", "must rise in time")
    return Series(_labels(found.get("metric")), points)


def _point(found: Any) -> tuple[int, float]:
    match found:
        case [float() | int() as moment, str() as text] if math.isfinite(moment):
            try:
                return round(moment * 1000), float(text)
            except ValueError as exc:
                raise InputError(PLACE, "values", "must be numbers", describe(text)) from exc
    raise InputError(PLACE, "values", "must be pairs of a time and a value", describe(found))


def _labels(found: Any) -> dict[str, str]:
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return found
    raise InputError(PLACE, "metric", "must be an object of strings", describe(found))
