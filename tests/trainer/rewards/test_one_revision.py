"""One group, one scorer: which revision a group shall have, and that no group is rated by two."""

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool import Endpoint, RewardConfig
from rewardpool.client.pool import Pool, injected_pool
from rewardpool.discovery.pool_sources import LocalSource
from rewardpool.rewards.composite import CompositeReward, OpenPart
from rewardpool.rewards.config import parse_reward
from rewardpool.rewards.discriminative import PoolFunctionScorer
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.one_revision import Answered, is_split, wanted_of
from rewardpool_api.contract import OTHER_REVISION, REQUEST_ID_HEADER, SCORE_PATH, WANTED_REVISION

POOL = "rl/checker"
GROUPS = int(os.environ.get("ONE_REVISION_GROUPS", "100"))
A, B = frozenset({"a"}), frozenset({"b"})


def by(*revisions: frozenset[str]) -> list[Answered]:
    return [Answered({POOL: revision} if revision else {}) for revision in revisions]


@pytest.mark.parametrize(
    ("members", "split", "wanted"),
    [
        ([], False, {}),
        (by(A, A), False, {POOL: "a"}),
        (by(frozenset(), frozenset()), False, {}),
        (by(A, frozenset()), False, {POOL: "a"}),
        (by(A, A, B), True, {POOL: "a"}),
        (by(A, B, B), True, {POOL: "b"}),
        (by(A, B), True, {POOL: "b"}),
        (by(A | B, A), True, {POOL: "a"}),
        ([*by(A, A), Answered(gone={POOL: "b"})], True, {POOL: "b"}),
        ([*by(A, A), Answered(gone={POOL: None})], True, {POOL: "a"}),
        ([Answered(gone={POOL: None})], True, {}),
        ([Answered({POOL: A, "rl/other": B}), Answered({POOL: B, "rl/other": B})], True, {POOL: "b", "rl/other": "b"}),
    ],
)
def test_the_revision_of_a_group(members: list[Answered], split: bool, wanted: dict[str, str]) -> None:
    assert (is_split(members), wanted_of(members)) == (split, wanted)


class Workers:
    """A stand-in for a router and workers of two revisions; the next one in turn answers."""

    def __init__(self, *revisions: str, refuse: bool = True) -> None:
        self.revisions = list(revisions)
        self.refuse = refuse
        """Whether a worker refuses what is for another revision, as RewardPool's do."""
        self.scored = 0
        self.refused = 0
        self._turns = itertools.count()

    async def serve(self, request: web.Request) -> web.Response:
        revision = self.revisions[next(self._turns) % len(self.revisions)]
        header = request.headers[REQUEST_ID_HEADER]
        _, _, wanted = header.partition(WANTED_REVISION)
        said = {"request_id": header, "revision": revision}
        if self.refuse and wanted and wanted != revision:
            self.refused += 1
            return web.json_response({**said, "data": [], "error": {"code": OTHER_REVISION, "message": "another"}})
        self.scored += 1
        return web.json_response({**said, "data": [{"index": 0, "embedding": [1.0 if revision == "a" else 2.0]}]})


@asynccontextmanager
async def reward_by(workers: Workers, **settings: Any) -> AsyncIterator[tuple[CompositeReward, Pool]]:
    app = web.Application()
    app.router.add_post(SCORE_PATH, workers.serve)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")

        async def find(config: RewardConfig, **_: Any) -> Endpoint:
            source = LocalSource({})
            names = {"pool": POOL, "served_name": "checker", "origin": "a test", "model_type": "Function"}
            return Endpoint(url=url, source=source, **names)

        config = RewardConfig(pool=POOL, batch=1, **settings)
        async with injected_pool(config, find=find) as pool:
            [part] = parse_reward({"pool": POOL, **settings}, path="reward").parts
            yield CompositeReward([OpenPart(part, "reward", PoolFunctionScorer(pool))], pools={POOL: pool}), pool


def group(number: int = 0, *, size: int = 8) -> list[Episode]:
    return [Episode(prompt="p", response=f"{number}-{member}", id=f"{number}-{member}") for member in range(size)]


async def test_a_group_that_two_revisions_scored_is_asked_again_of_one() -> None:
    workers = Workers("a", "a", "b")
    async with reward_by(workers) as (reward, pool):
        ratings = await reward.rate_group(group())
        report = pool.report()
    assert len({rating.total for rating in ratings}) == 1
    assert report.asked_again > 0


async def test_a_group_of_one_revision_is_asked_once() -> None:
    workers = Workers("a")
    async with reward_by(workers) as (reward, pool):
        await reward.rate_group(group())
        report = pool.report()
    assert (workers.scored, report.asked_again) == (8, 0)


async def test_the_key_switches_it_off() -> None:
    workers = Workers("a", "b")
    async with reward_by(workers, one_revision=False) as (reward, _):
        ratings = await reward.rate_group(group())
    assert {rating.total for rating in ratings} == {1.0, 2.0}
    assert workers.scored == 8


async def test_members_that_never_agree_are_unscored_and_never_mixed() -> None:
    workers = Workers("a", "b", refuse=False)  # of an earlier version, which ignores the wanted revision
    settings = {"on_failure": "skip", "timeout": 0.5}
    async with reward_by(workers, **settings) as (reward, _):
        ratings = await reward.rate_group(group(size=3))
    totals = {rating.total for rating in ratings if rating.total is not None}
    assert len(totals) <= 1


def plays(groups: int) -> Iterator[list[str]]:
    """Yield the workers that serve while each group is rated: a rollout, a rollback, and one that is killed."""
    phases = (["a", "a", "a"], ["a", "a", "b"], ["a", "b", "b"], ["b"], ["b", "b", "a"], ["a", "a"], ["a"])
    for number in range(groups):
        yield list(phases[number * len(phases) // groups])


async def test_no_group_is_split_while_the_pool_is_rolled_out_and_back() -> None:
    chance = random.Random(7)
    workers = Workers("a")
    split = scored = 0
    async with reward_by(workers, timeout=60) as (reward, pool):
        for number, revisions in enumerate(plays(GROUPS)):
            chance.shuffle(revisions)
            rating = asyncio.ensure_future(reward.rate_group(group(number)))
            await asyncio.sleep(0)
            workers.revisions = revisions  # while the group is on its way
            ratings = await rating
            split += len({one.total for one in ratings}) > 1
            scored += sum(one.total is not None for one in ratings)
        report = pool.report()
    assert (split, scored) == (0, GROUPS * 8)
    assert report.asked_again > 0


async def test_a_wanted_revision_that_is_gone_has_the_group_asked_of_the_other() -> None:
    workers = Workers("a", "a", "b")
    async with reward_by(workers, timeout=30) as (reward, _):
        rating = asyncio.ensure_future(reward.rate_group(group()))
        while workers.scored < 8:  # noqa: ASYNC110 - the stand-in tells nobody
            await asyncio.sleep(0)
        workers.revisions = ["b"]
        ratings = await rating
    assert {rating.total for rating in ratings} == {2.0}
