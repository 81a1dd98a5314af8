"""A pool whose workers are of two revisions, and what becomes of them in a rollout, a rollback and a crash."""

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool import Endpoint, RewardConfig
from rewardpool._client.pool import Pool, injected_pool
from rewardpool._discovery.pool_sources import LocalSource
from rewardpool._rewards.composite import CompositeReward, OpenPart
from rewardpool._rewards.config import parse_reward
from rewardpool._rewards.discriminative import PoolFunctionScorer
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.job_claims import ClaimStore
from rewardpool_api.contract import OTHER_REVISION, REQUEST_ID_HEADER, SCORE_PATH, WANTED_REVISION

POOL = "rl/checker"
GROUPS = int(os.environ.get("ONE_REVISION_GROUPS", "30"))
"""That a quick test plays; the long ones play 5,000."""
DEAD = "dead"
"""In the place of a revision: a worker that breaks off the connection."""
SCORES = {"a": 1.0, "b": 2.0}
"""By revision."""


class Workers:
    """A stand-in for a router and workers of two revisions; the next one in turn answers."""

    def __init__(self, *revisions: str, refuse: bool = True) -> None:
        self.revisions = list(revisions)
        self.refuse = refuse
        """Whether a worker refuses what is for another revision, as RewardPool's do."""
        self.scored = 0
        self.refused = 0
        self._turns = itertools.count()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        revision = self.revisions[next(self._turns) % len(self.revisions)]
        if revision == DEAD:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        header = request.headers[REQUEST_ID_HEADER]
        _, _, wanted = header.partition(WANTED_REVISION)
        said = {"request_id": header, "revision": revision}
        if self.refuse and wanted and wanted != revision:
            self.refused += 1
            return web.json_response({**said, "data": [], "error": {"code": OTHER_REVISION, "message": "another"}})
        self.scored += 1
        return web.json_response({**said, "data": [{"index": 0, "embedding": [SCORES[revision]]}]})


@asynccontextmanager
async def served(workers: Workers) -> AsyncIterator[str]:
    """Yield the URL at which they serve."""
    app = web.Application()
    app.router.add_post(SCORE_PATH, workers.serve)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@asynccontextmanager
async def reward_by(
    workers: Workers, *, claims: ClaimStore | None = None, **settings: Any
) -> AsyncIterator[tuple[CompositeReward, Pool]]:
    async with served(workers) as url:

        async def find(config: RewardConfig, **_: Any) -> Endpoint:
            source = LocalSource({})
            names = {"pool": POOL, "served_name": "checker", "origin": "a test", "model_type": "Function"}
            return Endpoint(url=url, source=source, **names)

        config = RewardConfig(pool=POOL, batch=1, **settings)
        async with injected_pool(config, find=find) as pool:
            [part] = parse_reward({"pool": POOL, **settings}, path="reward").parts
            opened = OpenPart(part, "reward", PoolFunctionScorer(pool))
            yield CompositeReward([opened], pools={POOL: pool}, claims=claims), pool


def group(number: int = 0, *, size: int = 8) -> list[Episode]:
    return [
        Episode(prompt="p", response=f"{number}-{member}", group=number, id=f"{number}-{member}")
        for member in range(size)
    ]


def plays(groups: int) -> Iterator[list[str]]:
    """Yield the workers that serve while each group is rated: a rollout, a rollback, and one that is killed."""
    phases = (["a", "a", "a"], ["a", "a", "b"], ["a", "b", "b"], ["b"], ["b", "b", "a"], ["a", "a", DEAD], ["a"])
    for number in range(groups):
        yield list(phases[number * len(phases) // groups])
