"""A gate's report over HTTP, for rollout controllers that ask for a verdict."""

import asyncio
import base64
import hmac
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.gate.answers import Answer, answer
from collectors.scrape.credentials import Credentials
from collectors.service.web import listening
from replay.errors import InputError

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Middleware

CONFIGURATION = "{configuration:[0-9a-f]{64}}"
PATHS = {
    "argo": f"/argo/{CONFIGURATION}",
    "promotion": f"/flagger/confirm-promotion/{CONFIGURATION}",
    "rollback": f"/flagger/rollback/{CONFIGURATION}",
}


@asynccontextmanager
async def serving(
    report: Path, host: str, port: int, token_file: Path | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; gives the port, which the system chooses for port 0.

    Both files are read for each question, so that a new report, or a new token, counts from the
    next one on. A token file that is none, or none for an address that others reach, is an
    `InputError`.
    """
    if token_file is None and not _only_here(host):
        rule = "must be a loopback address, or --token-file must say what whoever asks has to know"
        raise InputError("--host", "", rule)
    guards = [] if token_file is None else [_guard(Credentials(token_file))]
    async with listening(_app(report, guards), (host, port), "--host, --port") as found:
        yield found


async def serve(
    report: Path, host: str, port: int, token_file: Path | None, started: Callable[[int], None]
) -> None:
    """Serve until SIGINT or SIGTERM; `started` hears of the port."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(report, host, port, token_file) as found:
        started(found)
        await stop.wait()


def _only_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _guard(credentials: Credentials) -> "Middleware":
    """401 to whoever asks for a verdict without the token, as a bearer or as a password."""
    from aiohttp import web

    credentials.headers()  # a file that is none is said at once

    def known(given: str) -> bool:
        try:
            ours = credentials.headers()["Authorization"]
            if given.startswith("Basic "):
                pair = base64.b64decode(given.removeprefix("Basic "), validate=True)
                given = f"Bearer {pair.decode('latin-1').partition(':')[2]}"
        except (InputError, ValueError):
            return False
        return hmac.compare_digest(ours.encode(), given.encode("utf-8", "replace"))

    @web.middleware
    async def guard(
        request: "web.Request", handler: "Callable[[web.Request], Awaitable[web.StreamResponse]]"
    ) -> "web.StreamResponse":
        given = request.headers.get("Authorization", "")
        if request.path == "/livez" or await asyncio.to_thread(known, given):
            return await handler(request)
        challenge = {"WWW-Authenticate": "Bearer, Basic"}
        return web.Response(text="a token is needed\n", status=401, headers=challenge)

    return guard


def _app(report: Path, guards: "list[Middleware]") -> "web.Application":
    from aiohttp import web

    async def found(request: "web.Request") -> Answer:
        return await asyncio.to_thread(answer, report, request.match_info["configuration"])

    async def argo(request: "web.Request") -> "web.Response":
        return web.json_response((await found(request)).argo())

    async def promotion(request: "web.Request") -> "web.Response":
        told = await found(request)
        return web.Response(text=f"{told.sentence}\n", status=told.promotion())

    async def rollback(request: "web.Request") -> "web.Response":
        told = await found(request)
        return web.Response(text=f"{told.sentence}\n", status=told.rollback())

    async def livez(_: "web.Request") -> "web.Response":
        return web.Response(text="ok\n")

    app = web.Application(middlewares=guards)
    app.add_routes(
        [
            web.get("/livez", livez),
            web.get(PATHS["argo"], argo),
            web.post(PATHS["promotion"], promotion),
            web.post(PATHS["rollback"], rollback),
        ]
    )
    return app
