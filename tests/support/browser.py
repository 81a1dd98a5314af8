"""A headless Chromium that opens the page, and the page of scripted pools for it to open.

It is driven by its own protocol (https://chromedevtools.github.io/devtools-protocol/), so that a test waits for what it
wants to see and not for a time.
"""

import asyncio
import base64
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from support.patience import PATIENCE
from support.scripted_pools import ScriptedCluster, ScriptedSource

from rewardpool_operator.kubernetes.page.access import HINT
from rewardpool_page.access import Everything, TokenFile, Viewer
from rewardpool_page.server import page_app

BROWSER_SECONDS = 60.0 * PATIENCE
LOOK_SECONDS = 0.1
TOKEN = "scripted"
OPTIONS = (
    "--headless",
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",  # a container has hardly any shared memory
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "about:blank",
)


def chromium() -> str | None:
    """The program; None where it is not installed."""
    return shutil.which("chromium")


class ScriptedAccess:
    """Takes one token, in place of an API server."""

    hosts: frozenset[str] | None = None
    hint: str = HINT

    async def viewer(self, token: str) -> Viewer | None:
        """Whose token it is; None for one that is not valid."""
        return Everything() if token == TOKEN else None


@asynccontextmanager
async def serving_scripted_pools(folder: Path, *, cluster: bool = False) -> AsyncIterator[str]:
    """Serve the page of a machine or of a cluster; gives the link that opens it."""
    (folder / "token").write_text(TOKEN)
    source = (ScriptedCluster if cluster else ScriptedSource)(time.time(), clock=time.time)
    access = ScriptedAccess() if cluster else TokenFile(folder / "token")
    app = page_app(source, access, history=source.history())
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/#token={TOKEN}"
    finally:
        await runner.cleanup()


class Tab:
    """A page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = count(1)
        self.problems: list[str] = []
        """What its scripts threw, and what its policy refused."""

    async def call(self, method: str, **parameters: Any) -> Any:
        """One call of the protocol."""
        wanted = next(self._ids)
        await self._socket.send_json({"id": wanted, "method": method, "params": parameters})
        async with asyncio.timeout(BROWSER_SECONDS):
            while True:
                said = await self._socket.receive_json()
                if said.get("method") == "Runtime.exceptionThrown":
                    self.problems.append(json.dumps(said["params"]["exceptionDetails"])[:500])
                if said.get("method") == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                    self.problems.append(said["params"]["entry"]["text"])
                if said.get("id") == wanted:
                    return said["result"]

    async def open(self, link: str, *, width: int = 1440, height: int = 1200, dark: bool = False) -> None:
        """Go there; sizes are in CSS pixels."""
        await self.call("Runtime.enable")
        await self.call("Log.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=width < 600
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[theme])
        await self.call("Page.navigate", url=link)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    async def wait_for(self, selector: str) -> str:
        """Wait until there is such an element that shows a text; returns it."""
        expression = f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"
        async with asyncio.timeout(BROWSER_SECONDS):
            while not (text := await self.evaluate(expression)):  # noqa: ASYNC110 - the browser tells nobody
                await asyncio.sleep(LOOK_SECONDS)
        return str(text)

    async def picture(self) -> bytes:
        """A PNG of what is visible."""
        answer = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Tab]:
    """A browser with one tab.

    Args:
        profile: a folder of its own.
    """
    program = chromium()
    if program is None:
        raise FileNotFoundError("chromium is not installed: `make packages` installs it")
    process = await asyncio.create_subprocess_exec(
        *(program, f"--user-data-dir={profile}", *OPTIONS),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as session:
            address = await _tab_address(profile / "DevToolsActivePort", session)
            async with session.ws_connect(address, max_msg_size=1 << 26) as socket:
                yield Tab(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _tab_address(port_file: Path, session: aiohttp.ClientSession) -> str:
    async with asyncio.timeout(BROWSER_SECONDS):
        while not (port := _first_line(port_file)):  # noqa: ASYNC110 - the browser tells nobody
            await asyncio.sleep(LOOK_SECONDS)
        while True:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                tabs = [tab for tab in await response.json() if tab["type"] == "page"]
            if tabs:
                return str(tabs[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(LOOK_SECONDS)


def _first_line(file: Path) -> str:
    return file.read_text().partition("\n")[0].strip() if file.exists() else ""
