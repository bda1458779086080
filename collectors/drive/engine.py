"""Who is there, before anything is sent: the engine's facts, in the manifest's words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from collectors.scrape.fetch import Fetcher
from collectors.scrape.outcome import Outcome
from collectors.scrape.probe import probe
from replay.errors import InputError
from replay.workload import Request

_MOST_BYTES = 2**20
_KEY = frozenset({Outcome.HTTP_401, Outcome.HTTP_403})
_ANSWERS = frozenset(outcome for outcome in Outcome if str(outcome).startswith("http_")) | {
    Outcome.OK,
    Outcome.EMPTY,
}


@dataclass(frozen=True)
class Engine:
    """What requests are to name as their model, and what is known of the engine."""

    model: str
    facts: Mapping[str, Mapping[str, Any]]

    @property
    def max_model_len(self) -> int | None:
        """Most tokens of one request, prompt and output together."""
        longest: int | None = self.facts.get("scheduler", {}).get("max_model_len")
        return longest

    def too_long(self, requests: Iterable[Request]) -> int | None:
        """How many requests it will refuse for their length; None where its limit is unknown."""
        longest = self.max_model_len
        if longest is None:
            return None
        return sum(one.prompt_tokens + one.output_tokens > longest for one in requests)


async def look(fetcher: Fetcher, model: str | None) -> Engine:
    """Ask the server who it is; `InputError` where nobody answers, or no model can be named."""
    place = fetcher.urls.base
    answer = await fetcher.get(fetcher.urls.models, _MOST_BYTES)
    if answer.outcome in _KEY:
        rule = "needs an API key (--api-key-file, or OPENAI_API_KEY)"
        raise InputError(place, "", rule, str(answer.outcome))
    if answer.outcome not in _ANSWERS:
        raise InputError(place, "", "must be a server that answers at /v1/models", answer.outcome)
    probed = await probe(fetcher)
    named = model or probed.model
    if named is None:
        raise InputError(place, "", "must list a model at /v1/models (--model names one)", "none")
    facts = {key: dict(values) for key, values in probed.facts().items()}
    facts["model"]["name"] = named
    facts["cache"] = await _cache(fetcher)
    return Engine(named, facts)


async def _cache(fetcher: Fetcher) -> dict[str, Any]:
    """What the metrics page says of the KV cache; nothing where there is no such page."""
    page = await fetcher.page()
    if page.outcome is not Outcome.OK or page.body is None:
        return {}
    from collectors.exposition.names import canonical
    from collectors.exposition.parse import parse_page
    from collectors.scrape.facts import cache_facts

    found = canonical(parse_page(page.body, page.content_type))
    return cache_facts(found.info.get("cache_config_info", ()))[0]
