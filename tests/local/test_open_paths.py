"""What real routers of both flavours answer to callers without the pool's key: the table of docs/security.md."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from support.fleet import FLAVORS, ROOT, SERVED_NAME, Fleet

from rewardpool_api.pool import RouterFlavor

pytestmark = pytest.mark.real

GETS = (
    "/",
    "/liveness",
    "/readiness",
    "/health",
    "/health_generate",
    "/engine_metrics",
    "/metrics",
    "/loads",
    "/v1/loads",
    "/get_loads",
    "/v1/models",
    f"/v1/models/{SERVED_NAME}",
    "/model_info",
    "/get_model_info",
    "/server_info",
    "/get_server_info",
    "/heap_profile",
    "/workers",
    "/wasm",
    "/v1/tokenizers",
    "/v1/realtime",
    "/v1/responses/one",
    "/v1/conversations/one",
    "/ha/status",
    "/ha/workers",
    "/ha/config",
    "/rewardpool/ready",
    "/rewardpool/load",
    "/version",
)
POSTS = (
    "/generate",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/classify",
    "/v1/messages",
    "/v1/conversations",
    "/v1/tokenize",
    "/v1/detokenize",
    "/rerank",
    "/v1/rerank",
    "/flush_cache",
    "/parse/function_call",
    "/start_profile",
    "/stop_profile",
    "/workers",
    "/wasm",
    "/v1/tokenizers",
    "/ha/shutdown",
    "/rewardpool/sleep",
)


@pytest.fixture(params=FLAVORS)
async def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[RouterFlavor, Fleet]]:
    async with Fleet(tmp_path, workers=1, flavor=request.param) as fleet:
        yield request.param, fleet


def documented(flavor: RouterFlavor) -> set[str]:
    """Return the paths that docs/security.md says this router answers without a key."""
    page = (ROOT / "docs" / "security.md").read_text()
    table = page.split("### What needs no key\n")[1].split("\n## ")[0]
    found = set[str]()
    for row in re.findall(r"^\| (`/.*?) \| (.*?) \|", table, flags=re.MULTILINE):
        if row[1] in ("both", flavor):
            found |= {path.replace("MODEL", SERVED_NAME) for path in re.findall(r"`(/[^`]*)`", row[0])}
    return found


async def test_a_router_answers_the_documented_paths_without_a_key_and_no_other(
    fleet: tuple[RouterFlavor, Fleet],
) -> None:
    flavor, running = fleet
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:

        async def status(method: str, path: str) -> tuple[str, int]:
            body = {"model": SERVED_NAME, "input": "x"} if method == "POST" else None
            async with session.request(method, running.router.url + path, json=body) as answer:
                return path, answer.status

        asked = [status("GET", path) for path in GETS] + [status("POST", path) for path in POSTS]
        answers = await asyncio.gather(*asked)
    assert {path for path, code in answers if code not in (401, 404, 405)} == documented(flavor)


async def test_what_a_router_answers_without_a_key_names_neither_model_nor_key(
    fleet: tuple[RouterFlavor, Fleet],
) -> None:
    flavor, running = fleet
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        texts = {}
        for path in documented(flavor):
            async with session.get(running.router.url + path) as answer:
                texts[path] = await answer.text()
    assert {path for path, text in texts.items() if SERVED_NAME in text} == {
        path for path in documented(flavor) if path.startswith("/v1/models")
    }
    assert not any(running.key_file.read_text() in text for text in texts.values())
