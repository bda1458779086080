"""One request to a completion endpoint, from its send to its last byte.

Whatever the server does becomes a status of the row; no message of a server or a library gets any
further than one word.
"""

import asyncio
import errno
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collectors.drive.seen import Seen
from collectors.drive.stream import BadStream, Events, word
from replay.workload import Request

if TYPE_CHECKING:
    import aiohttp

_OK, _BUSY, _SERVERS_FAULT = 200, (429, 503), 500
_MOST_ERROR_BYTES = 64 * 2**10
# A chunk of one token takes some 400 bytes with its usage.
_BYTES, _BYTES_PER_TOKEN = 2**20, 8192
_OURS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class Endpoint:
    """Where requests go; `now_us` is the run's clock, `alive` hears of every sign of life."""

    session: "aiohttp.ClientSession"
    url: str
    tls: Any  # an SSL context, or True
    timeout_s: float
    now_us: Callable[[], int]
    alive: Callable[[int], None]


def body_of(request: Request, model: str, tokens: list[int], *, priorities: bool) -> bytes:
    """Body of one request: lengths come out exactly as asked for."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": tokens,
        "max_tokens": request.output_tokens,
        "min_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if priorities:
        body["priority"] = request.priority
    return json.dumps(body, separators=(",", ":")).encode()


def unanswered(seen: Seen) -> str | None:
    """The problem of a request to which the server had no proper answer; None if it had one.

    Headers are none: they come from in front of the engine, which may be dead.
    """
    status = seen.http_status
    empty = status == _OK and not seen.chunks and seen.status != "ok"
    failed = status is None or empty or (status >= _SERVERS_FAULT and status not in _BUSY)
    return seen.problem or "cancelled" if failed else None


async def send(endpoint: Endpoint, request: Request, body: bytes, seen: Seen) -> None:
    """Send a request and fill in `seen` until its end; a cancelled one stays censored."""
    try:
        async with asyncio.timeout(endpoint.timeout_s):
            await _exchange(endpoint, request, body, seen)
    except TimeoutError:
        seen.status, seen.problem = "aborted", "timeout"
    except BadStream:
        seen.status, seen.problem = "error", "bad_stream"
    except OSError as exc:  # most of aiohttp's connection errors are
        seen.status, seen.problem = "error", _problem(exc, seen)
    except Exception as exc:
        import aiohttp

        if not isinstance(exc, aiohttp.ClientError):
            raise
        seen.status, seen.problem = "error", _problem(exc, seen)


async def _exchange(endpoint: Endpoint, request: Request, body: bytes, seen: Seen) -> None:
    headers = {"X-Request-Id": request.request_id, "Content-Type": "application/json"}
    async with endpoint.session.post(
        endpoint.url, data=body, headers=headers, allow_redirects=False, ssl=endpoint.tls
    ) as response:
        seen.http_status, seen.answered_us = response.status, endpoint.now_us()
        if response.status != _OK:
            if unanswered(seen) is None:
                endpoint.alive(seen.answered_us)
            seen.status = "rejected" if response.status in _BUSY else "error"
            seen.problem = await _refusal(response)
            return
        events = Events(_BYTES + _BYTES_PER_TOKEN * request.output_tokens)
        async for data in response.content.iter_any():
            now_us = endpoint.now_us()
            for told in events.feed(data):
                if told.failed:
                    seen.status, seen.problem = "error", "server"
                    return
                endpoint.alive(now_us)
                if told.done:
                    _ended(seen)
                    return
                tokens = told.completion_tokens
                if tokens is None:
                    new = told.token
                else:
                    new = tokens > (seen.completion_tokens or 0) and (
                        told.token or told.finish_reason is not None or seen.first_us is None
                    )
                    seen.completion_tokens = tokens
                if new:
                    seen.token(now_us)
                seen.prompt_tokens = told.prompt_tokens or seen.prompt_tokens
                seen.finish_reason = told.finish_reason or seen.finish_reason
        _ended(seen)


def _ended(seen: Seen) -> None:
    """Status of a stream that ended by itself."""
    if seen.finish_reason is None:
        seen.status, seen.problem = "error", "truncated"
    elif seen.finish_reason in {"abort", "error"}:
        seen.status = "aborted" if seen.finish_reason == "abort" else "error"
        seen.problem = "server"
    else:
        seen.status = "ok"


async def _refusal(response: "aiohttp.ClientResponse") -> str:
    """Kind of an error answer, e.g. http_400_BadRequestError; its message may hold the prompt."""
    data = b""
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > _MOST_ERROR_BYTES:
            response.close()
            break
    kind = f"http_{response.status}"
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return kind
    error = answer.get("error", answer) if isinstance(answer, dict) else None
    if isinstance(error, dict):
        for name in ("type", "param"):
            if found := word(error.get(name)):
                kind += f"_{found}"
    return kind


def _problem(exc: Exception, seen: Seen) -> str:
    import aiohttp

    if isinstance(exc, OSError) and exc.errno in _OURS:
        return "client_limit"
    if isinstance(exc, aiohttp.ClientSSLError):
        return "tls"
    if isinstance(exc, aiohttp.ClientConnectorError):
        return "refused" if isinstance(exc.os_error, ConnectionRefusedError) else "unreachable"
    return "disconnected" if seen.answered_us is None else "cut_off"
