"""A caller's fault behind a real router: no other worker is asked the same, and no score of others is lost by it."""

from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from support.fake_worker import FakeWorker, right, says
from support.fleet import FLAVORS, SERVED_NAME, Fleet

from rewardpool_api.pool import RouterFlavor

pytestmark = [pytest.mark.real, pytest.mark.parametrize("flavor", FLAVORS)]

REFUSALS = (400, 401, 403, 404, 405, 411, 413, 415, 422, 431)
DEEP = "[" * 5000


async def test_no_refusal_of_a_worker_is_asked_for_again(flavor: RouterFlavor, tmp_path: Path) -> None:
    # A score in between, so that no refusals in a row open the router's circuit breaker.
    script = [behaviour for status in REFUSALS for behaviour in (says("{}", status=status), right)]

    async def next_of_script(request: web.Request) -> web.StreamResponse:
        return await script.pop(0)(request)

    async with (
        FakeWorker(afterwards=next_of_script) as one,
        FakeWorker(afterwards=next_of_script) as other,
        Fleet(tmp_path, workers=0, others=[one.url, other.url], flavor=flavor) as fleet,
    ):
        statuses = [await answered(fleet, "x") for _ in range(2 * len(REFUSALS))]
    assert statuses == [status for refusal in REFUSALS for status in (refusal, 200)]
    assert not script


async def test_what_no_worker_can_read_is_refused_at_once_and_others_are_scored(
    flavor: RouterFlavor, tmp_path: Path
) -> None:
    async with Fleet(tmp_path, workers=1, flavor=flavor) as fleet:
        statuses = {await answered(fleet, text) for text in (DEEP, DEEP + "]" * 5000, '{"a":' * 3000, "9" * 5000) * 5}
        assert max(statuses) < 500
        sample = '{"data_source": "math", "solution_str": "1", "ground_truth": "1", "extra_info": {}}'
        assert await answered(fleet, sample) == 200
        assert "Traceback" not in (tmp_path / "worker-0.log").read_text()


async def answered(fleet: Fleet, given: str) -> int:
    """The router's status for this input; retries of half a second each would take it past the deadline."""
    headers = {"Authorization": f"Bearer {fleet.key_file.read_text()}"}
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        body = {"model": SERVED_NAME, "input": given}
        async with session.post(f"{fleet.router.url}/v1/embeddings", json=body) as answer:
            return answer.status
