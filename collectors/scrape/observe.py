"""Everything a run's manifest says about its scrapes, as a fold over them. Pure.

The same fold runs live, over what a killed collector left in its journals, and over all pages when
they are read again: whoever counts, it comes to the same manifest.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from collectors.exposition.names import KNOWN, not_found
from collectors.exposition.samples import Canonical
from collectors.features import not_modelled
from collectors.scrape.entry import Entry
from collectors.scrape.facts import Identity, cache_facts, identity_of
from collectors.scrape.reading import Reading
from collectors.scrape.watch import MOST_LISTED, Counts, Moment, Series, Watch

_MOST_TEXT = 4000
_UNKNOWN = "names like vLLM's that no table has, kept under their own: "
_UNLISTED = re.compile(r"([0-9]{1,15}) more (.+) found no room here")
_COUNTERS = frozenset(name for name, metric in KNOWN.items() if metric.kind == "counter")
_TOKENS = frozenset({"prompt_tokens", "generation_tokens"})
PREEMPTIONS, RUNNING, USAGE = "num_preemptions", "num_requests_running", "kv_cache_usage_frac"
CLOCK = "collector, monotonic, from the run's start; a scrape's time is when it was sent"


class Observer:
    """The findings of one run so far."""

    def __init__(self, interval_us: int, version: str | None = None) -> None:
        self.watch = Watch(interval_us)
        self.outcomes: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self.page_bytes = 0
        self.names: dict[str, str] = {}
        self.unmatched: set[str] = set()
        self.identity = Identity(version, frozenset(), {})
        self.cache: dict[str, Any] = {}
        self.now: dict[str, float | None] = {}
        self.last_us = 0
        self._cache_labels: object = None
        self._latest: Canonical | None = None

    @classmethod
    def resumed(cls, manifest: Mapping[str, Any], interval_us: int) -> "Observer":
        """What a manifest says was found before."""
        found = cls(interval_us, manifest["engine"]["version"])
        before = manifest.get("collection") or {}
        found.outcomes.update(before.get("outcomes") or {})
        found.problems.update(before.get("problems") or {})
        found.page_bytes = before.get("page_bytes") or 0
        found.names = dict(manifest["metric_names"] or {})
        found.watch.gaps = list(manifest["gaps"] or ())[:MOST_LISTED]
        found.watch.resets = list(manifest["counter_resets"] or ())[:MOST_LISTED]
        found._read_notes(before.get("notes") or ())
        if before.get("several_workers"):
            found.watch.workers.since = 0
        found.last_us = manifest["drain_end_us"] or 0
        return found

    def _read_notes(self, notes: Iterable[str]) -> None:
        """Take notes up again; those that are made anew each time as what they were made of."""
        for note in notes:
            if unlisted := _UNLISTED.fullmatch(note):
                self.watch.unlisted[unlisted[2]] += int(unlisted[1])
            elif note.startswith(_UNKNOWN):
                names = note.removeprefix(_UNKNOWN)
                whole = names if len(names) < _MOST_TEXT else names.rpartition(", ")[0]
                self.unmatched.update(whole.split(", ")[:MOST_LISTED])
            else:
                self.watch.notes.append(note)

    @property
    def seen(self) -> int:
        """Scrapes counted: they are numbered from 0, so the next one's number."""
        return self.outcomes.total()

    def pass_over(self, scrape: int, *, told: bool = False) -> None:
        """Count scrapes before this number that nothing is left of; `told`: a gap names them."""
        lost = scrape - self.seen
        if lost > 0:
            self.outcomes["not_kept"] += lost
            self.watch.missed(lost, told=told)

    def see(self, reading: Reading) -> None:
        """Count one more scrape."""
        entry = reading.entry
        self.outcomes[str(entry.outcome)] += 1
        self.problems.update(reading.problems)
        self.page_bytes += entry.page_bytes
        self.watch.see(moment_of(entry), self._take(reading))
        self.last_us = entry.time_us + entry.duration_us

    def prime(self, reading: Reading) -> None:
        """Remember a scrape that was counted before."""
        self.watch.prime(moment_of(reading.entry), self._take(reading))

    def fill(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest with all of this in it; what others wrote into it stays."""
        filled = {**manifest}
        version = self.identity.version
        filled["engine"] = {
            **manifest["engine"],
            "version": version or manifest["engine"]["version"],
        }
        filled["model"] = {**manifest["model"], "name": self._model(manifest)}
        known = {key: value for key, value in self.cache.items() if value is not None}
        filled["cache"] = {**manifest["cache"], **known}
        filled["metric_names"] = dict(sorted(self.names.items())[:MOST_LISTED])
        missing = sorted(not_found(self.names, version)) if self.names else None
        filled["metric_names_not_found"] = missing and missing[:MOST_LISTED]
        filled["scrapes"] = self.outcomes["ok"]
        filled["scrape_interval_us"] = self.watch.interval_us
        open_gap = self.watch.open_gap()
        filled["gaps"] = [*self.watch.gaps, *([open_gap] if open_gap else [])]
        filled["counter_resets"] = list(self.watch.resets)
        filled["clocks"] = {**manifest["clocks"], "scrape": CLOCK}
        filled["drain_end_us"] = max(self.last_us, manifest["drain_end_us"] or 0)
        if self._latest is not None:
            page = self._latest
            seen = not_modelled(None, page.info, page.names.values(), page.samples)
            known_already = manifest.get("not_modelled") or ()
            filled["not_modelled"] = list(dict.fromkeys([*known_already, *seen]))
        filled["collection"] = {**(manifest.get("collection") or {}), **self._collection()}
        return filled

    def _collection(self) -> dict[str, Any]:
        notes = list(self.watch.notes)
        for what, count in sorted(self.watch.unlisted.items()):
            notes.append(f"{count} more {what} found no room here")
        if self.unmatched:
            names = ", ".join(sorted(self.unmatched))[:_MOST_TEXT]
            notes.append(f"{_UNKNOWN}{names}")
        return {
            "outcomes": dict(sorted(self.outcomes.items())),
            "problems": dict(sorted(self.problems.items())),
            "page_bytes": self.page_bytes,
            "several_workers": None if not self.outcomes["ok"] else self._several(),
            "notes": notes,
        }

    def _several(self) -> bool:
        return self.watch.workers.since is not None

    def _model(self, manifest: Mapping[str, Any]) -> str | None:
        """The served name: what is known already, else the page's if it has only one."""
        known: str | None = manifest["model"]["name"]
        if known is None and len(self.identity.models) == 1:
            (known,) = self.identity.models
        return known

    def _take(self, reading: Reading) -> Counts | None:
        found = reading.canonical
        if found is None:
            return None
        self._latest = found
        room = self._room("metric names", self.names, found.names)
        self.names.update((name, found.names[name]) for name in room)
        self.unmatched.update(self._room("unknown metric names", self.unmatched, found.unmatched))
        page = page_identity(found)
        self.identity = self.identity.joined(page)
        self._count("models", len(page.models - self.identity.models))
        self._count("engines", len(page.cache.keys() - self.identity.cache.keys()))
        if page.cache != self._cache_labels:
            self._cache_labels = page.cache
            infos = found.info.get("cache_config_info", ())[:MOST_LISTED]
            self.cache, notes = cache_facts(infos)
            for note in notes:
                self.watch.note(note)
        self.now = _shown(found)
        return counts_of(found)

    def _room(self, what: str, listed: Collection[str], found: Collection[str]) -> list[str]:
        """Those of a page's names that can be listed; how many others it has is counted."""
        room = max(0, MOST_LISTED - len(listed))
        new = [name for name in found if name not in listed]
        self._count(what, len(new) - room)
        # What is listed already is taken again: a page's own name can change with the release.
        return [*(name for name in found if name in listed), *new[:room]]

    def _count(self, what: str, more: int) -> None:
        """Keep how many of a kind found no room: those of the page that had the most."""
        if more > 0:
            self.watch.unlisted[what] = max(self.watch.unlisted[what], more)


def said_once(notes: Iterable[str]) -> list[str]:
    """Notes without those that every manifest makes anew of what was found."""
    return [n for n in notes if not (n.startswith(_UNKNOWN) or _UNLISTED.fullmatch(n))]


def page_identity(found: Canonical) -> Identity:
    """What a page says of its engine's configuration."""
    models = {sample.model for sample in found.samples}
    return identity_of(None, models, found.info.get("cache_config_info", ()))


def moment_of(entry: Entry) -> Moment:
    """The part of an entry that is about time."""
    return Moment(
        entry.scrape,
        entry.time_us,
        entry.unix_ns,
        entry.monotonic_ns,
        entry.duration_us,
        entry.session,
        str(entry.outcome),
    )


def counts_of(found: Canonical) -> Counts:
    """A page's counters, without what has no value."""
    values, created = {}, {}
    tokens: float | None = None
    running: float | None = None
    for sample in found.samples:
        if sample.value is None:
            continue
        if sample.name in _COUNTERS:
            series = Series(sample.name, sample.engine, sample.model, sample.labels)
            values[series] = sample.value
            key = (sample.name, sample.engine, sample.model, sample.labels)
            if key in found.created:
                created[series] = found.created[key]
            if sample.name in _TOKENS:
                tokens = (tokens or 0.0) + sample.value
        elif sample.name == RUNNING:
            running = (running or 0.0) + sample.value
    return Counts(values, created, found.process_start_s, tokens, running)


def _shown(found: Canonical) -> dict[str, float | None]:
    """What a progress line shows: preemptions over all engines, and the fullest engine's cache."""
    counts = [s.value for s in found.samples if s.name == PREEMPTIONS and s.value is not None]
    usage = [s.value for s in found.samples if s.name == USAGE and s.value is not None]
    return {
        PREEMPTIONS: sum(counts) if counts else None,
        USAGE: max(usage, default=None),
    }
