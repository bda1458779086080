"""A page in Debian's chromium, headless, driven over the DevTools protocol."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

DEADLINE_S = 300  # some ten seconds where nobody else is at work


class Page:
    """One tab: commands in, results out; what the browser reports in between is kept."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.events: list[dict[str, Any]] = []

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Result of a command, after everything the browser said before it."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            message = json.loads(await self._socket.receive_str())
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    async def open(self, path: Path) -> None:
        """Load a file and wait until every figure is drawn."""
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            await self.send(f"{domain}.enable")
        await self.send("Page.setLifecycleEventsEnabled", enabled=True)
        loader = (await self.send("Page.navigate", url=path.as_uri()))["loaderId"]
        # Not the empty page before it, which was complete long ago.
        while not self._loaded(loader):
            self.events.append(json.loads(await self._socket.receive_str()))
        await self.drawn()

    def _loaded(self, loader: str) -> bool:
        """Whether the document of a navigation is there with all that it names."""
        return any(
            (loader, "load") == (e["params"]["loaderId"], e["params"]["name"])
            for e in self.events
            if e["method"] == "Page.lifecycleEvent"
        )

    async def value(self, expression: str) -> Any:
        """What an expression comes to on the page, promises awaited."""
        found = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def drawn(self) -> int:
        """Number of charts, once all of them show their rows."""
        return int(await self.value("window.figuresDrawn()"))

    async def choose(self, name: str, value: str) -> None:
        """Pick an option of a select as a person would, and wait for the charts."""
        await self.value(
            f"(() => {{ const s = document.getElementById('choose-{name}');"
            f" s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})()"
        )
        await self.drawn()

    async def media(self, *, scheme: str = "light", medium: str = "screen") -> None:
        """Colour scheme and medium."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", media=medium, features=features)

    async def size(self, width: int, height: int = 900) -> None:
        """Width of the window; charts follow it."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        # Charts hear of it one frame later.
        await self.value(
            "new Promise(done => { const look = () => requestAnimationFrame(() =>"
            f" innerWidth === {width} ? requestAnimationFrame(done) : look()); look(); }})"
        )
        await self.drawn()

    async def picture(self) -> bytes:
        """The whole page as PNG."""
        found = await self.send("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def problems(self) -> list[Any]:
        """Errors and warnings of scripts, the console and the policy."""
        return [
            e["params"]
            for e in self.events
            if e["method"] == "Runtime.exceptionThrown"
            or (
                e["method"] == "Runtime.consoleAPICalled"
                and e["params"]["type"] in ("error", "warning", "assert")
            )
            or (
                e["method"] == "Log.entryAdded"
                and e["params"]["entry"]["level"] in ("error", "warning")
            )
        ]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        return [
            e["params"]["request"]["url"]
            for e in self.events
            if e["method"] == "Network.requestWillBeSent"
        ]


@asynccontextmanager
async def page(profile: Path) -> AsyncIterator[Page]:
    """A tab of a browser of its own, which ends with the block."""
    program = shutil.which("chromium")
    assert program is not None, "apt-get install chromium"
    command = [program, "--headless=new", "--remote-debugging-port=0", "--no-first-run"]
    command += ["--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []  # which root cannot have
    browser = await asyncio.create_subprocess_exec(
        *command,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as session:
            port = await _port(profile / "DevToolsActivePort", browser)
            tab = await _tab(session, port)
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        browser.terminate()
        try:
            await asyncio.wait_for(browser.wait(), 20)
        except TimeoutError:
            browser.kill()
            await browser.wait()


async def _tab(session: aiohttp.ClientSession, port: int) -> dict[str, Any]:
    """The only tab; a browser listens before it has one."""
    while True:
        async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            tabs = [tab for tab in await answer.json() if tab["type"] == "page"]
        if tabs:
            (tab,) = tabs
            return dict(tab)
        await asyncio.sleep(0.05)


async def _port(path: Path, browser: asyncio.subprocess.Process) -> int:
    while (port := _written_port(path)) is None:
        assert browser.returncode is None, "chromium ended"
        await asyncio.sleep(0.05)
    return port


def _written_port(path: Path) -> int | None:
    """The port the browser chose, None until it has written it down, and a path below it."""
    try:
        port, _ = path.read_text().splitlines()
    except (OSError, ValueError):
        return None
    return int(port)
