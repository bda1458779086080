"""What an engine says of itself beside its metrics; whatever it does not say is unknown."""

import asyncio
from dataclasses import dataclass
from typing import Any

from collectors.scrape.fetch import Fetcher
from collectors.scrape.outcome import Outcome
from replay.errors import InputError
from replay.strict import decode, parse_json

_MOST_BYTES = 2**20
_MOST_TEXT = 128
_DEADLINE_S = 2.0  # for each question: both are answered from memory


@dataclass(frozen=True)
class Probed:
    """Release, served base model, and the longest context it takes; None is unknown."""

    version: str | None = None
    model: str | None = None
    max_model_len: int | None = None

    def facts(self) -> dict[str, dict[str, Any]]:
        """The same in the manifest's words."""
        return {
            "engine": {"version": self.version},
            "model": {"name": self.model},
            "scheduler": {"max_model_len": self.max_model_len},
        }


async def probe(fetcher: Fetcher) -> Probed:
    """Ask /version and /v1/models, once each; neither is waited for longer than two seconds."""
    version = await _json(fetcher, fetcher.urls.version)
    models = await _json(fetcher, fetcher.urls.models)
    found = version.get("version") if isinstance(version, dict) else None
    model, longest = _base_model(models)
    return Probed(_text(found), model, longest)


def _base_model(models: Any) -> tuple[str | None, int | None]:
    """The first model that is no adapter of another one."""
    listed = models.get("data") if isinstance(models, dict) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and one.get("parent") is None:
            longest = one.get("max_model_len")
            known = type(longest) is int and 0 < longest < 2**31
            return _text(one.get("id")), longest if known else None
    return None, None


async def _json(fetcher: Fetcher, url: str) -> Any:
    try:
        async with asyncio.timeout(_DEADLINE_S):
            answer = await fetcher.get(url, _MOST_BYTES)
    except TimeoutError:
        return None
    if answer.outcome is not Outcome.OK or answer.body is None:
        return None
    try:
        return parse_json(decode(answer.body, url), url)
    except InputError:
        return None


def _text(value: object) -> str | None:
    """A short text without control characters."""
    if isinstance(value, str) and 0 < len(value) <= _MOST_TEXT and value.isprintable():
        return value
    return None
