"""What one page says, and what becomes of its scrape: the only place that calls the parser."""

from collections import Counter
from dataclasses import dataclass, field, replace

from collectors.exposition.names import canonical
from collectors.exposition.parse import parse_page
from collectors.exposition.samples import Canonical
from collectors.scrape.entry import Entry
from collectors.scrape.outcome import WITH_PAGE, Outcome


@dataclass(frozen=True)
class Reading:
    """An entry with the outcome its page gives it; `canonical` only where that is ok.

    `problems` counts the faults on the page by kind.
    """

    entry: Entry
    canonical: Canonical | None = None
    problems: Counter[str] = field(default_factory=Counter)


def read_entry(entry: Entry) -> Reading:
    """Read the page of a scrape, if it has one that is whole."""
    body = entry.body
    if body is None or entry.outcome not in WITH_PAGE:
        return Reading(entry)
    page = parse_page(body, entry.content_type)
    if not page.samples:
        return Reading(replace(entry, outcome=Outcome.UNPARSABLE), None, page.kinds)
    if not page.complete:
        return Reading(replace(entry, outcome=Outcome.TRUNCATED), None, page.kinds)
    if page.cut:
        return Reading(replace(entry, outcome=Outcome.TOO_MANY_SAMPLES), None, page.kinds)
    found = canonical(page)
    if not found.vllm:
        return Reading(replace(entry, outcome=Outcome.NOT_VLLM), None, page.kinds)
    return Reading(replace(entry, outcome=Outcome.OK), found, page.kinds)
