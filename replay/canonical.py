"""Canonical JSON (RFC 8785) and the SHA-256 over it: the same bytes on every machine."""

import hashlib
import json
from collections.abc import Mapping

import rfc8785

_LINE = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def canonical_json(value: object) -> bytes:
    """RFC 8785 form of a JSON value; integers must be safe, floats finite (ValueError)."""
    return rfc8785.dumps(value)  # type: ignore[arg-type]  # its type is a private union


def canonical_line(record: Mapping[str, object]) -> bytes:
    """RFC 8785 form of a flat record of safe integers, strings and integer lists, with a newline.

    The standard library's encoder gives the same bytes for such records, many times faster;
    a test holds the two together.
    """
    return _LINE.encode(record).encode() + b"\n"


def sha256(data: bytes) -> str:
    """64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()
