"""One scrape over HTTP: one deadline for all of it, bounded size, and exactly one outcome.

Redirects are not followed, proxies of the environment are not used, and no message of a server or
a library gets any further than its outcome.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from collectors.scrape.body import ENCODINGS, Body, Stopped
from collectors.scrape.credentials import Credentials
from collectors.scrape.outcome import Fetched, Outcome, outcome_of_status
from collectors.scrape.urls import Urls
from replay.errors import InputError

if TYPE_CHECKING:
    import aiohttp

ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
MOST_PAGE_BYTES = 8 * 2**20
# Escaped in a journal's line, a page of this size is still one frame.
LARGEST_PAGE_BYTES = 10 * 2**20
_HEADERS = {"Accept": ACCEPT, "Accept-Encoding": ENCODINGS, "User-Agent": "preemption-ledger"}
# uvicorn closes an idle connection after five seconds; a request must not meet that.
_KEEPALIVE_SECONDS = 4.0


class Fetcher:
    """Client of one target; `async with` closes its connections."""

    def __init__(
        self,
        urls: Urls,
        credentials: Credentials,
        timeout_us: int,
        most_bytes: int = MOST_PAGE_BYTES,
    ) -> None:
        self.urls = urls
        self._credentials, self._most_bytes = credentials, most_bytes
        self._timeout_s = timeout_us / 1_000_000
        self._session: aiohttp.ClientSession | None = None
        self._tls_stamp = credentials.tls_stamp()
        self._tls = credentials.tls() if urls.base.startswith("https:") else None
        self._found: str | None = None

    async def __aenter__(self) -> Self:
        self._opened()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def page(self) -> Fetched:
        """The metrics page, from where it was last time or else from wherever it is."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._first_page()
        except TimeoutError:
            return Fetched(Outcome.TIMEOUT)

    async def get(self, url: str, most_bytes: int) -> Fetched:
        """Another page of the target, under the same deadline of its own."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._get(url, most_bytes)
        except TimeoutError:
            return Fetched(Outcome.TIMEOUT)

    async def _first_page(self) -> Fetched:
        answer = Fetched(Outcome.HTTP_404)
        for url in (self._found,) if self._found else self.urls.metrics:
            found = await self._get(url, self._most_bytes)
            if found.outcome not in {Outcome.HTTP_404, Outcome.REDIRECT}:
                self._found = url if found.outcome is Outcome.OK else self._found
                return found
            # A redirect to the other spelling is no redirect if that one answers.
            answer = found if answer.outcome is Outcome.HTTP_404 else answer
        self._found = None
        return answer

    async def _get(self, url: str, most_bytes: int) -> Fetched:
        try:
            return await self._answer(url, self._credentials.headers(), most_bytes)
        except InputError:
            return Fetched(Outcome.CREDENTIALS)
        except Exception as exc:
            outcome = _outcome_of(exc)
            if outcome is None:
                raise
            return Fetched(outcome)

    async def _answer(self, url: str, headers: Mapping[str, str], most_bytes: int) -> Fetched:
        import aiohttp

        async with self._opened().get(
            url, headers=headers, allow_redirects=False, ssl=self._checked_by()
        ) as response:
            status = response.status
            outcome = outcome_of_status(status)
            content_type = response.headers.get("Content-Type")
            if outcome is not Outcome.OK:
                return Fetched(outcome, status)
            if (response.content_length or 0) > most_bytes:
                response.close()
                return Fetched(Outcome.TOO_LARGE, status)
            try:
                body = Body(response.headers.get("Content-Encoding"), most_bytes)
                try:
                    async for chunk in response.content.iter_any():
                        body.feed(chunk)
                except (aiohttp.ClientPayloadError, ConnectionError):
                    return Fetched(Outcome.TRUNCATED, status, content_type, bytes(body.text))
            except Stopped as stopped:
                response.close()
                return Fetched(stopped.outcome, status)
        text = bytes(body.text)
        if not body.whole:
            return Fetched(Outcome.TRUNCATED, status, content_type, text)
        if not text.strip():
            return Fetched(Outcome.EMPTY, status, content_type)
        return Fetched(Outcome.OK, status, content_type, text)

    def _checked_by(self) -> ssl.SSLContext | bool:
        """The context of connections, made again where a certificate was replaced."""
        if self._tls is None:
            return True
        stamp = self._credentials.tls_stamp()
        if stamp != self._tls_stamp:
            # Files that do not fit are half replaced: the old ones serve until they do. Connections
            # of the old context are not used any more, for aiohttp tells contexts apart.
            with suppress(InputError):
                self._tls, self._tls_stamp = self._credentials.tls(), stamp
        return self._tls

    def _opened(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=_HEADERS,
                auto_decompress=False,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=2, keepalive_timeout=_KEEPALIVE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            )
        return self._session


def _outcome_of(exc: Exception) -> Outcome | None:
    """What an error of the network is called; None for one that is our own fault."""
    import aiohttp

    match exc:
        case TimeoutError():
            return Outcome.TIMEOUT
        case aiohttp.ClientConnectorDNSError():
            return Outcome.DNS
        case aiohttp.ClientSSLError() | ssl.SSLError() | aiohttp.ClientConnectorCertificateError():
            return Outcome.TLS
        case aiohttp.ClientConnectorError():
            refused = isinstance(exc.os_error, ConnectionRefusedError)
            return Outcome.REFUSED if refused else Outcome.UNREACHABLE
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | ConnectionError():
            return Outcome.DISCONNECTED
        case aiohttp.ClientError() | aiohttp.http_exceptions.HttpProcessingError():
            return Outcome.BAD_HTTP
        case OSError():
            return Outcome.UNREACHABLE
    return None
