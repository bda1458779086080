"""What tests leave behind that says of itself it may be shared, for the privacy check.

A file made from raw ids is no fault. One that was sanitized, a public trace's or a result file's
workload, a shareable run and a ledger of pseudonymous requests are, if anything is found in them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from collectors.sanitize.check import Finding, check
from collectors.sanitize.provenance import known_sources
from collectors.sanitize.words import contracts, is_pseudonymous
from preempt.ledger_words import ledger_words

_MOST_BYTES = 2**20
_NONE_OF_OURS = (  # a test made it so
    *(OSError, ValueError, TypeError, LookupError, RecursionError),
    pl.exceptions.PolarsError,
)


def findings(folder: Path) -> list[tuple[Path, Finding]]:
    """What the check finds in everything below a folder that may be shared."""
    known = contracts().with_more(ledger_words())
    small = (path for path in _shareable(folder) if _bytes(path) <= _MOST_BYTES)
    return [(path, one) for path in small for one in check(path, known)]


def _bytes(path: Path) -> int:
    return sum(one.stat().st_size for one in (path, *path.rglob("*")) if one.is_file())


def _shareable(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            continue
        try:
            if path.name == "manifest.json":
                if json.loads(path.read_bytes())["privacy"] == "shareable":
                    yield path.parent
            elif path.name == "receipt.json":
                ids = pl.read_parquet(path.with_name("requests.parquet"))["request_id"]
                if all(map(is_pseudonymous, ids)):
                    yield path.parent
            elif path.suffix in (".json", ".parquet") and _says_so(_provenance(path)):
                yield path
        except _NONE_OF_OURS:
            continue


def _provenance(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_bytes())["provenance"]
    return json.loads(pl.read_parquet_metadata(path)["provenance"])


def _says_so(provenance: dict[str, Any]) -> bool:
    return "sanitized" in provenance or provenance["source"] in known_sources()
