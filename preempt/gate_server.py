"""A gate's report over HTTP, for rollout controllers that ask for a verdict."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.gate.answers import Answer, answer
from replay.errors import InputError

if TYPE_CHECKING:
    from aiohttp import web

CONFIGURATION = "{configuration:[0-9a-f]{64}}"
PATHS = {
    "argo": f"/argo/{CONFIGURATION}",
    "promotion": f"/flagger/confirm-promotion/{CONFIGURATION}",
    "rollback": f"/flagger/rollback/{CONFIGURATION}",
}


@asynccontextmanager
async def serving(report: Path, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the block runs; gives the port, which the system chooses for port 0.

    The file is read for each question, so that a new report counts from the next one on.
    """
    from aiohttp import web

    runner = web.AppRunner(_app(report), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as exc:
            rule = f"cannot be listened on: {exc.strerror or 'no such address'}"
            raise InputError("--host, --port", "", rule) from exc
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def serve(report: Path, host: str, port: int, started: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM; `started` hears of the port."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(report, host, port) as found:
        started(found)
        await stop.wait()


def _app(report: Path) -> "web.Application":
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

    app = web.Application()
    app.add_routes(
        [
            web.get("/livez", livez),
            web.get(PATHS["argo"], argo),
            web.post(PATHS["promotion"], promotion),
            web.post(PATHS["rollback"], rollback),
        ]
    )
    return app
