"""Server-sent events of a completion, read as they come: tokens are counted, text is never kept.

Chunks are not tokens: several tokens can share one, so counts come from `usage`, which vLLM can
send with every chunk.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MOST_EVENT_BYTES = 2**20
_MOST_COUNT = 2**53 - 1
_MOST_TEXT = 64


class BadStream(Exception):
    """The stream is not what a completion looks like, or too large."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one event says; None where it says nothing about it."""

    token: bool = False  # it brought a generated token, of any channel
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    failed: bool = False
    done: bool = False


_DONE = Told(done=True)


class Events:
    """Cuts a byte stream into events; holds no more than one event of `MOST_EVENT_BYTES`."""

    def __init__(self, most_bytes: int) -> None:
        self._held = b""
        self._left = most_bytes

    def feed(self, data: bytes) -> Iterator[Told]:
        """Events that are whole with this data; `BadStream` for what cannot be one."""
        self._left -= len(data)
        if self._left < 0:
            raise BadStream
        lines = (self._held + data).split(b"\n")
        self._held = lines.pop()
        if len(self._held) > MOST_EVENT_BYTES:
            raise BadStream
        for line in lines:
            if line.startswith(b"data:"):
                yield told(line[5:].strip())


def told(data: bytes) -> Told:
    """What the data of one event says."""
    if data == b"[DONE]":
        return _DONE
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise BadStream from exc
    if not isinstance(event, dict):
        raise BadStream
    if event.get("error") is not None:
        return Told(failed=True)
    usage, choices = event.get("usage"), event.get("choices")
    prompt = completion = None
    if isinstance(usage, dict):
        prompt, completion = (
            count(usage.get("prompt_tokens")),
            count(usage.get("completion_tokens")),
        )
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return Told(prompt_tokens=prompt, completion_tokens=completion)
    reason = choice.get("finish_reason")
    # A chunk may have no text and yet be a token: a special one, or a part of a character.
    token = reason is None or bool(choice.get("text"))
    return Told(token, prompt, completion, word(reason))


def count(value: Any) -> int | None:
    """A count, or None for anything else."""
    return value if type(value) is int and 0 <= value <= _MOST_COUNT else None


def word(value: Any) -> str | None:
    """A short word of a server's own vocabulary, or None; never text that could be content."""
    if isinstance(value, str) and 0 < len(value) <= _MOST_TEXT and value.isascii():
        return value if value.replace("_", "").replace("-", "").isalnum() else None
    return None
