"""What a real router holds for callers: nothing after a request, and bounded memory for heads that do not end."""

import asyncio
import json
from pathlib import Path

import aiohttp
import psutil
import pytest
from support.fleet import FLAVORS, SERVED_NAME, Fleet

from rewardpool_api.names import ENV_MEMORY_BYTES
from rewardpool_api.pool import RouterFlavor
from rewardpool_operator.routers.flags import MAX_BODY_BYTES
from rewardpool_worker.router_launcher import LEAST_FILES

pytestmark = pytest.mark.real

each_flavor = pytest.mark.parametrize("flavor", FLAVORS)
UNFINISHED = b"POST /v1/embeddings HTTP/1.1\r\nHost: router\r\nX-Filler: a"
SAMPLE = {"data_source": "math", "solution_str": "1", "ground_truth": "1", "extra_info": {}}


@each_flavor
async def test_a_holder_of_the_key_leaves_nothing_behind_and_sends_no_more_than_a_worker_takes(
    flavor: RouterFlavor, tmp_path: Path
) -> None:
    async with Fleet(tmp_path, workers=1, flavor=flavor) as fleet, aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {fleet.key_file.read_text()}"}

        async def status(method: str, path: str, **body: object) -> tuple[int, str]:
            url = fleet.router.url + path
            async with session.request(method, url, headers=headers, json=body or None) as answer:
                return answer.status, await answer.text()

        _, said = await status("POST", "/v1/conversations", metadata={"a": "b"})
        kept = said.partition('"id":"')[2].partition('"')[0]
        assert (await status("GET", f"/v1/conversations/{kept}"))[0] == 404
        large = {"model": SERVED_NAME, "input": "x" * MAX_BODY_BYTES}
        assert (await status("POST", "/v1/embeddings", **large))[0] == 413


@each_flavor
async def test_heads_that_do_not_end_take_a_bounded_number_of_connections_and_those_that_are_open_go_on(
    flavor: RouterFlavor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_MEMORY_BYTES, "1")
    async with Fleet(tmp_path, workers=1, flavor=flavor) as fleet, aiohttp.ClientSession() as session:

        async def score() -> int:
            body = {"model": SERVED_NAME, "input": json.dumps(SAMPLE)}
            headers = {"Authorization": f"Bearer {fleet.key_file.read_text()}"}
            async with session.post(fleet.router.url + "/v1/embeddings", json=body, headers=headers) as answer:
                return answer.status

        assert await score() == 200
        held = [await asyncio.open_connection("127.0.0.1", fleet.router.port) for _ in range(LEAST_FILES + 100)]
        for _, writer in held:
            writer.write(UNFINISHED)
        assert await score() == 200
        assert psutil.Process(fleet.router.pid).num_fds() <= LEAST_FILES
        for _, writer in held:
            writer.close()
        async with aiohttp.ClientSession() as another, another.get(fleet.router.url + "/health") as answer:
            assert answer.status == 200
