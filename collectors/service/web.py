"""The service's own pages: /metrics for a Prometheus, /healthz for people and alerts, /livez."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from replay.errors import InputError

if TYPE_CHECKING:
    from aiohttp import web
    from prometheus_client import CollectorRegistry


@asynccontextmanager
async def serving(
    listen: tuple[str, int], registry: "CollectorRegistry", health: Callable[[], dict[str, Any]]
) -> AsyncIterator[int]:
    """Serve while the block runs; gives the port, which the system chooses for port 0."""
    async with listening(_app(registry, health), listen, "collect.listen") as port:
        yield port


@asynccontextmanager
async def listening(
    app: "web.Application", listen: tuple[str, int], place: str
) -> AsyncIterator[int]:
    """Serve an application while the block runs; errors call where it listens `place`."""
    from aiohttp import web

    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, *listen).start()
        except OSError as exc:
            rule = f"cannot be listened on: {exc.strerror or 'no such address'}"
            raise InputError(place, "", rule) from exc
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _app(registry: "CollectorRegistry", health: Callable[[], dict[str, Any]]) -> "web.Application":
    from aiohttp import web
    from prometheus_client import exposition

    async def metrics(request: "web.Request") -> "web.Response":
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    async def healthz(_: "web.Request") -> "web.Response":
        """200 while evidence comes in from everywhere, else 503; JSON with the reasons."""
        found = health()
        text = f"{json.dumps(found, indent=1)}\n"
        status = 503 if found["reasons"] else 200
        return web.Response(text=text, status=status, content_type="application/json")

    async def livez(_: "web.Request") -> "web.Response":
        """200 as long as this process answers: an engine that is down is no reason to kill it."""
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes(
        [web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/livez", livez)]
    )
    return app
