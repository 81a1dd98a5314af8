"""A revision that a request names, through real routers to real workers of two revisions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fleet import FLAVORS, ROOT, SERVED_NAME, Fleet, Program, server_python

from rewardpool import FunctionSample, Pool, RewardConfig, Sample
from rewardpool._client.answering import Answering, answering
from rewardpool._rewards import Episode, open_reward
from rewardpool.errors import RevisionGoneError
from rewardpool_api.names import ENV_KEY_FILE, ENV_MODEL_TYPE, ENV_REVISION, ENV_SERVED_NAME
from rewardpool_api.pool import RouterFlavor

pytestmark = pytest.mark.real
BOTH = pytest.mark.parametrize("flavor", FLAVORS)

REVISIONS = ("0ld00000", "4e3w0000")
EACH = 20
BUSY: dict[str, Any] = {"seconds": 0.1}
"""What makes the function take that long: a router gives all to one worker that has always answered in time."""


def sample(number: int, *, revision: str | None) -> Sample:
    function = FunctionSample(solution_str=f"solution {number}", data_source="test", ground_truth=None, extra_info=BUSY)
    return Sample(function=function, revision=revision)


def config(fleet: Fleet) -> RewardConfig:
    return RewardConfig(url=fleet.router.url, key_file=fleet.key_file, served_name=SERVED_NAME, timeout=60)


@asynccontextmanager
async def judges(folder: Path, flavor: RouterFlavor) -> AsyncIterator[Fleet]:
    """Two workers for chats, of which the score middleware is real."""
    key_file = folder / "judges-key"
    key_file.write_text("for the judges")
    script = str(ROOT / "tests/support/judging_worker.py")
    env = {ENV_KEY_FILE: str(key_file), ENV_MODEL_TYPE: "Generative", ENV_SERVED_NAME: SERVED_NAME}
    workers = [
        Program(
            lambda port: [server_python(), script, str(port)],
            env={**env, ENV_REVISION: revision},
            log=folder / f"{revision}.log",
        )
        for revision in REVISIONS
    ]
    try:
        await asyncio.gather(*(worker.start(seconds=30) for worker in workers))
        urls = [worker.url for worker in workers]
        async with Fleet(folder, workers=0, others=urls, key=key_file.read_text(), flavor=flavor) as fleet:
            yield fleet
    finally:
        for worker in workers:
            worker.kill()


@BOTH
async def test_only_the_wanted_revision_scores(tmp_path: Path, flavor: RouterFlavor) -> None:
    async with (
        Fleet(tmp_path, workers=2, flavor=flavor, revisions=REVISIONS) as fleet,
        Pool(config(fleet)) as pool,
    ):
        wanted = [revision for revision in REVISIONS for _ in range(EACH)]
        scored = await asyncio.gather(*(pool.scored(sample(n, revision=one)) for n, one in enumerate(wanted)))
        free = await asyncio.gather(*(pool.scored(sample(n, revision=None)) for n in range(EACH)))
        report = pool.report()
    assert [one.revision for one in scored] == wanted
    assert {one.revision for one in free} == set(REVISIONS), "both served"
    assert report.retries["other_revision"] > 0, "a worker of the other revision refused"


@BOTH
async def test_a_request_to_an_idle_pool_comes_to_the_wanted_revision(tmp_path: Path, flavor: RouterFlavor) -> None:
    """Where nothing is in flight a router gives the same text to the same worker again and again."""
    async with (
        Fleet(tmp_path, workers=4, flavor=flavor, revisions=[*REVISIONS[:1] * 3, REVISIONS[1]]) as fleet,
        Pool(config(fleet)) as pool,
    ):
        scored = [await pool.scored(sample(number % 2, revision=REVISIONS[1])) for number in range(6)]
    assert {one.revision for one in scored} == {REVISIONS[1]}


@BOTH
async def test_only_the_wanted_revision_judges(tmp_path: Path, flavor: RouterFlavor) -> None:
    messages = [{"role": "user", "content": "good?"}]
    async with judges(tmp_path, flavor) as fleet, Pool(config(fleet)) as pool:
        for revision in REVISIONS:
            noted = Answering({pool.endpoint.pool: revision})
            with answering(noted):
                words = await asyncio.gather(*(pool.judge(messages) for _ in range(EACH)))
            assert (set(words), noted.seen) == ({revision}, {pool.endpoint.pool: {revision}})
        free = await asyncio.gather(*(pool.judge(messages) for _ in range(EACH)))
        report = pool.report()
    assert set(free) == set(REVISIONS), "both served"
    assert report.retries["other_revision"] > 0, "a worker of the other revision refused"


@BOTH
async def test_a_wanted_revision_whose_worker_was_killed_is_gone(tmp_path: Path, flavor: RouterFlavor) -> None:
    async with (
        Fleet(tmp_path, workers=2, flavor=flavor, revisions=REVISIONS) as fleet,
        Pool(config(fleet)) as pool,
    ):
        fleet.workers[0].kill()
        with pytest.raises(RevisionGoneError) as gone:
            await pool.scored(sample(0, revision=REVISIONS[0]))
    assert (gone.value.wanted, gone.value.found, gone.value.fault) == (*REVISIONS, "infra")


@pytest.mark.parametrize("flavor", ["sglang-router", pytest.param("smg", marks=pytest.mark.long)])
@pytest.mark.parametrize("kills", [False, True])
async def test_no_group_that_is_rated_one_by_one_is_split(tmp_path: Path, flavor: RouterFlavor, kills: bool) -> None:
    groups = [
        [
            Episode(prompt="p", response=f"{group}-{member}", group=group, id=f"{group}-{member}", extra_info=BUSY)
            for member in range(8)
        ]
        for group in range(20)
    ]
    async with Fleet(tmp_path, workers=2, flavor=flavor, revisions=REVISIONS) as fleet:
        spec = {"url": fleet.router.url, "key_file": str(fleet.key_file), "type": "Function", "timeout": 60}
        async with open_reward(spec) as reward:
            rated = [await asyncio.gather(*map(reward.rate, group)) for group in groups]
            assert any(len({one.revisions[fleet.router.url] for one in ratings}) > 1 for ratings in rated)
            if kills:
                fleet.workers[0].kill()
            settled = await asyncio.gather(*map(reward.settled, groups, rated))
    assert all(len({one.revisions[fleet.router.url] for one in ratings}) == 1 for ratings in settled)
    assert all(one.total is not None for ratings in settled for one in ratings)
