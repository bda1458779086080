"""A completion server of the tests' own: what vLLM's does, and what a broken one does."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

MODEL = "tiny"


@dataclass
class CompletionServer:
    """Behaves as `modes` says for a request id, else by `mode`; keeps what it was sent.

    After `fails_after` requests everything is a 500. Requests of mode "hold" are answered after
    `release`. A `port` other than 0 is one that the test holds.
    """

    mode: str = "ok"
    modes: dict[str, str] = field(default_factory=dict)
    token_s: float = 0.0
    per_chunk: int = 1
    fails_after: int | None = None
    port: int = 0
    url: str = ""
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    release: Callable[[], object] = lambda: None  # from any thread
    released: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: int = 0
    most_in_flight: int = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer one completion."""
        request_id = request.headers["X-Request-Id"]
        self.headers.append(dict(request.headers))
        body = await request.json()
        self.bodies[request_id] = body
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            mode = self.modes.get(request_id, self.mode)
            if self.fails_after is not None and len(self.headers) > self.fails_after:
                mode = "500"
            return await self._answer(request, body, mode)
        finally:
            self.in_flight -= 1

    async def _answer(
        self, request: web.Request, body: dict[str, Any], mode: str
    ) -> web.StreamResponse:
        if mode.isdigit():
            error = {"message": f"prompt {body['prompt']} is bad", "type": "BadRequestError"}
            return web.json_response({"error": error}, status=int(mode))
        if mode == "hold":
            await self.released.wait()
        if mode == "redirect":
            raise web.HTTPTemporaryRedirect(f"{self.url}/elsewhere")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if mode == "hang":
            await asyncio.sleep(3600)
        await self._tokens(response, request, body, mode)
        return response

    async def _tokens(
        self,
        response: web.StreamResponse,
        request: web.Request,
        body: dict[str, Any],
        mode: str,
    ) -> None:
        most, prompt = body["max_tokens"], len(body["prompt"])
        continuous = body["stream_options"].get("continuous_usage_stats") and mode != "usage_at_end"
        for done in range(0, most, self.per_chunk):
            if self.token_s:
                await asyncio.sleep(self.token_s)
            now = min(done + self.per_chunk, most)
            reason = None
            if now == most:
                reason = "abort" if mode == "engine_abort" else "length"
            if await _breaks(response, request, mode, first=not done):
                return
            event: dict[str, Any] = {"choices": [{"text": "secret text", "finish_reason": reason}]}
            if continuous:
                event["usage"] = {"prompt_tokens": prompt, "completion_tokens": now}
            await _event(response, event)
        if mode == "no_end":
            return
        if mode != "no_usage":
            usage = {"prompt_tokens": prompt + (mode == "template"), "completion_tokens": most}
            await _event(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")


async def _breaks(
    response: web.StreamResponse, request: web.Request, mode: str, *, first: bool
) -> bool:
    """Do what a broken stream does here; True if that is its end."""
    if mode == "garbage":
        await response.write(b"data: {not json\n\n")
    elif mode == "endless":
        await response.write(b"data: " + b"x" * 2_000_000)
    elif not first and mode == "error":
        await _event(response, {"error": {"message": "x", "code": 500}})
    elif not first and mode == "stall":
        await asyncio.sleep(3600)
    elif not first and mode == "cut":
        assert request.transport is not None
        request.transport.abort()
    else:
        return False
    return True


async def _event(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": MODEL, "parent": None, "max_model_len": 4096}]})


async def _version(_: web.Request) -> web.Response:
    return web.json_response({"version": "0.32.0"})


@asynccontextmanager
async def serving(server: CompletionServer) -> AsyncIterator[CompletionServer]:
    """The server on a free port of loopback for as long as the block lasts."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/completions", server.complete)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/version", _version)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", server.port, reuse_port=bool(server.port))
    await site.start()
    loop = asyncio.get_running_loop()
    server.release = partial(loop.call_soon_threadsafe, server.released.set)
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
