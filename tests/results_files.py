"""What the tests of result files share: the recorded files, and reading them by other means."""

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl

RECORDED = Path(__file__).parent.parent / "fixtures" / "results"
FILES = {
    "vllm-bench": sorted(RECORDED.glob("vllm-*/*.json")),
    "guidellm": sorted(RECORDED.glob("guidellm-*/*.json")),
    "aiperf": sorted(RECORDED.glob("aiperf-*/*.jsonl")),
    "inference-perf": sorted(RECORDED.glob("inference-perf-*/*per_request*.json")),
    "otel": sorted(RECORDED.glob("otel/*.jsonl")),
}


def values(path: Path) -> list[Any]:
    """Every JSON value of a file, one after another, numbers as they are written."""
    text, found, at = path.read_text(), [], 0
    decoder = json.JSONDecoder(parse_float=Decimal)
    while text[at:].strip():
        value, end = decoder.raw_decode(text[at:].lstrip())
        at += len(text[at:]) - len(text[at:].lstrip()) + end
        found.append(value)
    return found


def rounded(value: Any, scale: int) -> int:
    """`value * scale` as a whole number, half to even, by fractions."""
    return round(Fraction(value) * scale)


def exact_tpot(first: Any, last: Any, tokens: int | None) -> int | None:
    """Microseconds of a token after the first, of moments in seconds, by fractions."""
    if first is None or last is None or tokens is None or tokens < 2:
        return None
    return round((Fraction(last) - Fraction(first)) * 10**6 / (tokens - 1))


def write(path: Path, *objects: Any, sep: str = "\n") -> Path:
    """A file of these JSON values."""
    path.write_text(sep.join(json.dumps(one) for one in objects))
    return path


def columns(rows: pl.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns, row by row."""
    return rows.select(names).iter_rows()
