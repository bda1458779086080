"""What a refused file seems to be, so that the error can say who takes it.

Only what its first bytes show beyond doubt is said; of the file itself nothing is.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from collectors.traces.lines import place_of, read_some, unpacked
from replay.errors import InputError
from replay.strict import open_regular

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_BYTES = 2**16
_NUMBER = rb"-?[0-9.eE+]+"
_OF_MOONCAKE = rb',\s*"'.join(
    rb'%s":\s*%s' % (key, _NUMBER) for key in (b"timestamp", b"input_length", b"output_length")
)
_MARKS: tuple[tuple[bytes, tuple[str, ...], str], ...] = (
    (rb"TIMESTAMP,(?:NumImages,)?ContextTokens,GeneratedTokens\r?\n", ("azure",), "an Azure trace"),
    (
        rb"Timestamp,(?:Session ID,Elapsed time,)?Model,Request tokens,",
        ("burstgpt",),
        "a BurstGPT trace",
    ),
    (rb'\{\s*"chat_id":\s*[0-9]+,\s*"parent_chat_id"', ("bailian",), "a Bailian trace"),
    (
        rb'\{\s*"' + _OF_MOONCAKE + rb',\s*"hash_ids"',
        ("mooncake", "timed-trace"),
        "a Mooncake trace (milliseconds) or a timed trace (seconds)",
    ),
    (
        rb'\{\s*"date":\s*"[0-9]{8}-[0-9]{6}",\s*"(?:endpoint_type|backend)"',
        ("vllm-bench",),
        "a result of vllm bench serve",
    ),
    (
        rb'\{\s*"(?:metadata":\s*\{\s*"version":\s*[0-9]+,\s*"guidellm_version"'
        rb'|benchmarks":\s*\[\s*\{\s*"type_":\s*"generative_benchmark")',
        ("guidellm",),
        "a report of GuideLLM",
    ),
    (
        rb'\{\s*"metadata":\s*\{\s*"(?:session_num|x_request_id)"',
        ("aiperf",),
        "AIPerf's profile_export.jsonl",
    ),
    (
        rb'\[\s*\{\s*"start_time":\s*' + _NUMBER + rb',\s*"end_time"',
        ("inference-perf",),
        "inference-perf's per_request_lifecycle_metrics.json",
    ),
    (rb'\{\s*"resourceSpans"', ("otel",), "spans by OpenTelemetry's file exporter"),
    (
        rb'\{[^\n]*"schema":\s*"preemption-workload/|PAR1.*preemption-workload/',
        (),
        "a workload of this project already: replay, sanitize and workload take it as it is",
    ),
    (rb"PAR1", (), "a Parquet file"),
    (rb"version https://git-lfs", (), "a Git LFS pointer, not the file: git lfs pull fetches it"),
    (rb"\s*<(?i:!doctype|html)", (), "a web page, not the file: download the raw one"),
    (rb"\xff\xfe|\xfe\xff", (), "UTF-16: write it as UTF-8"),
    (rb"\x1f\x8b", (), "gzip inside gzip: unpack it"),
    (
        rb"\x28\xb5\x2f\xfd|\xfd7zXZ|BZh[1-9]|PK\x03\x04",
        (),
        "an archive other than gzip: unpack it",
    ),
)


def says_what_else(
    own: str,
) -> Callable[[Callable[Concatenate[Path, P], T]], Callable[Concatenate[Path, P], T]]:
    """A reader of files whose errors say which reader a file that is not of `own` is for."""

    def decorate(read: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
        @wraps(read)
        def told(path: Path, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(path, *args, **kwargs)
            except InputError as exc:
                seems = _likely(path, own)
                if seems is None or exc.rule.startswith("looks like"):
                    raise
                rule, found = (f"{exc.rule}; {seems}", None)
                if exc.found:
                    rule, found = exc.rule, f"{exc.found}; {seems}"
                raise InputError(exc.place, exc.field, rule, found) from None

        return told

    return decorate


def _likely(path: Path, own: str) -> str | None:
    """What the file looks like, in words; None if it is of `own` or nobody can tell."""
    start = b""
    with suppress(InputError):  # of a file that cannot be read at all that is said already
        start = _start(path)
    found = next((one for one in _MARKS if re.match(one[0], start, re.DOTALL)), None)
    if found is None or own in found[1]:
        return None
    _, formats, words = found
    use = " or ".join(f"preempt import {name}" for name in formats)
    return f"the file looks like {words}" + (f"; use {use}" if use else "")


def _start(path: Path) -> bytes:
    """A file's first bytes, unpacked, of Parquet also its last; none of standard input."""
    if str(path) == "-":
        return b""  # it cannot be read again
    with unpacked(path) as file:
        start = read_some(file, _LOOK_BYTES, place_of(path))
    if start.startswith(b"PAR1"):
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, 2) - _LOOK_BYTES))
            start += file.read()
    return start
