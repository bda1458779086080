"""What one page says, and what becomes of its scrape: the only place that calls the parser."""

from dataclasses import dataclass, field, replace

from collectors.exposition.names import canonical
from collectors.exposition.parse import parse_page
from collectors.exposition.samples import Canonical
from collectors.scrape.entry import Entry
from collectors.scrape.outcome import WITH_PAGE, Outcome


@dataclass(frozen=True)
class Reading:
    """An entry with the outcome its page gives it; `canonical` only where that is ok."""

    entry: Entry
    canonical: Canonical | None = None
    problems: tuple[str, ...] = field(default=())


def read_entry(entry: Entry) -> Reading:
    """Read the page of a scrape, if it has one that is whole."""
    body = entry.body
    if body is None or entry.outcome not in WITH_PAGE:
        return Reading(entry)
    page = parse_page(body, entry.content_type)
    problems = tuple(problem.kind for problem in page.problems)
    if not page.samples:
        return Reading(replace(entry, outcome=Outcome.UNPARSABLE), None, problems)
    if not page.complete:
        return Reading(replace(entry, outcome=Outcome.TRUNCATED), None, problems)
    found = canonical(page)
    if not found.vllm:
        return Reading(replace(entry, outcome=Outcome.NOT_VLLM), None, problems)
    return Reading(replace(entry, outcome=Outcome.OK), found, problems)
