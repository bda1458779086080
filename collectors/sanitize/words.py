"""What says nothing about anybody: the names our contracts use, and by field the texts they allow.

Runs, workloads and attempts are known here; who writes more (ledgers) brings a `Vocabulary` along.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from collectors import results, traces
from collectors.columns import EVENT_KINDS, RUN_KINDS, SCHEMA, STATUSES, TABLES
from collectors.manifest import manifest_schema
from collectors.sanitize.manifest import (
    KINDS,
    UNNAMED,
    is_known_metric,
    is_known_text,
)
from collectors.sanitize.options import Blur
from collectors.sanitize.own import NOT_MODELLED, clocks, definitions
from collectors.sanitize.provenance import (
    FACTOR,
    OTHER,
    REASONS,
    TOOLS,
    blur_words,
    known_sources,
)
from collectors.sanitize.pseudonyms import RARE_TENANT, REQUEST_ID, TENANT
from collectors.sanitize.tables import FINISH_REASONS, own_labels
from collectors.scrape.outcome import Outcome
from collectors.traces.result import ATTEMPTS, ATTEMPTS_SCHEMA
from replay.workload import FIELDS
from replay.workload import SCHEMA as WORKLOAD_SCHEMA

Rule = Callable[[str], bool]
_HASH = re.compile(r"[0-9a-f]{64}")
# What importers and workload tools call requests: a number, and what gave it.
_NUMBERED = re.compile(r"(?:attempt-)?[0-9]{8,9}-(?P<by>[a-z0-9-]{1,32})")
_GIVERS = {*traces.FORMATS, *results.FORMATS, *TOOLS}
# Who wrote a Parquet file: a library, its release and what it was built from.
_WRITER = re.compile(
    r"(?:Polars(?: \(python\))?|DuckDB|fastparquet-python|parquet-(?:cpp-(?:arrow|velox)|mr|rs|go))"
    r" version v?[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}(?:-SNAPSHOT|-dev[0-9]{1,6})?"
    r"(?: \(build [0-9a-f]{1,40}\))?"
)
_RUN_ID = re.compile(r"run-[0-9a-f]{32}")
_MODEL = re.compile(r"model-[0-9a-f]{32}")
_WINDOW = re.compile(r"run-[0-9a-f]{32}\[[0-9]{1,16}:[0-9]{1,16}\]")
_COUNTED = re.compile(rf"{re.escape(UNNAMED)}: [0-9]{{1,4}}")


@dataclass(frozen=True)
class Vocabulary:
    """Names of columns, keys and metadata, and by field the rules of which a text keeps one."""

    names: frozenset[str]
    rules: Mapping[str, tuple[Rule, ...]]

    def says_nothing(self, field: str, text: str) -> bool:
        """Whether a text may stand in a field of this name."""
        return any(rule(text) for rule in self.rules.get(field, ()))

    def with_more(self, other: "Vocabulary") -> "Vocabulary":
        """What both know."""
        fields = {**self.rules, **other.rules}
        rules = {name: self.rules.get(name, ()) + other.rules.get(name, ()) for name in fields}
        return Vocabulary(self.names | other.names, rules)


def among(*words: str) -> Rule:
    """Texts that are one of these words."""
    known = frozenset(words)
    return lambda text: text in known


def matching(pattern: re.Pattern[str]) -> Rule:
    """Texts that are whole what the pattern says."""
    return lambda text: pattern.fullmatch(text) is not None


def is_pseudonymous(text: str) -> bool:
    """Whether an id is a pseudonym, or a number that this project gave."""
    if REQUEST_ID.fullmatch(text) or TENANT.fullmatch(text) or text == RARE_TENANT:
        return True
    numbered = _NUMBERED.fullmatch(text)
    return numbered is not None and numbered["by"] in _GIVERS


@cache
def contracts() -> Vocabulary:
    """The vocabulary of workloads, attempts and runs."""
    names = {
        *FIELDS,
        *ATTEMPTS,
        *(column for table in TABLES.values() for column in table),
        *_keys(manifest_schema()),
        *("schema", "name", "provenance", "requests", "prefix_block_tokens", "ARROW:schema"),
        *("format", "source", "license", "attribution", "notes", "rows_read", "attempts"),
        *("dropped", "sanitized", *blur_words(Blur())),
        *("run_id", "engine_version", "engine", "arrivals", "window", "start", "count", "shaped"),
        *("tool", "from_us", "until_us", "time", "prompt", "output", "times", "period_us"),
        *("of", "renumbered", "same_prefixes"),
        *("timestamp", "input_length", "output_length", "hash_ids"),  # what exporters write
        *REASONS,
        OTHER,
        *Outcome,
    }
    return Vocabulary(frozenset(names), _rules())


def _keys(schema: Mapping[str, Any]) -> Iterator[str]:
    for key, inner in schema.get("properties", {}).items():
        yield key
        yield from _keys(inner)
    if "items" in schema:
        yield from _keys(schema["items"])


def _rules() -> dict[str, tuple[Rule, ...]]:
    ids, version = (is_pseudonymous,), (_known_text("version"),)
    sources = tuple(known_sources().values())
    notes = among(*(note for one in sources for note in one.notes))
    return {
        "request_id": ids,
        "tenant": ids,
        "run_id": (matching(_RUN_ID),),
        "model": (matching(_MODEL),),
        "status": (among(*STATUSES),),
        "kind": (among(*EVENT_KINDS, *RUN_KINDS, *KINDS),),
        "finish_reason": (among(*FINISH_REASONS),),
        "reason": (among(*REASONS, OTHER),),
        "labels": (own_labels,),
        "created_by": (matching(_WRITER),),
        "schema": (among(SCHEMA, WORKLOAD_SCHEMA, ATTEMPTS_SCHEMA),),
        "name": (
            is_known_metric,
            _known_text("name"),
            among(*(one.name for one in sources)),
            matching(_WINDOW),
        ),
        "privacy": (among("shareable"),),
        "format": (among(*(one.name for one in sources)),),
        "source": (among("run", *(one.title for one in sources)),),
        "license": (among(*(one.license for one in sources)),),
        "attribution": (among(*(one.attribution for one in sources)),),
        "notes": (notes,),
        "tenants": (among("pseudonyms", "dropped"),),
        "tool": (among(*TOOLS),),
        **dict.fromkeys(("time", "prompt", "output"), (matching(FACTOR),)),
        "arrivals": (among("steps", "time"),),
        **dict.fromkeys(("version", "collector_version", "engine_version", "driver"), version),
        "dtype": (_known_text("dtype"),),
        "scheduling_policy": (among("fcfs", "priority"),),
        "side": (among("baseline", "candidate"),),
        **dict.fromkeys(("arrival", "engine", "scrape"), (among(*clocks()),)),
        **dict.fromkeys(("ttft", "tpot", "itl", "e2e"), (among(*definitions()),)),
        "tool_version": version,
        **dict.fromkeys(("workload_sha256", "configuration_sha256"), (matching(_HASH),)),
        "metric_names_not_found": (is_known_metric,),
        "not_modelled": (among(*NOT_MODELLED), matching(_COUNTED)),
    }


def _known_text(field: str) -> Rule:
    return lambda text: is_known_text(field, text)
