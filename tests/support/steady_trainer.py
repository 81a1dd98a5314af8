"""A trainer that scores without a pause, by way of the real client, while something happens to its pool."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.operator_cluster import NAMESPACE, Cluster
from support.reward_functions import expected_score
from support.stand_in_service import StandInService

from rewardpool import Endpoint, FunctionSample, Pool, RewardConfig, Sample, Scored
from rewardpool._client.pool import injected_pool
from rewardpool._client.report import Report
from rewardpool._discovery.find import find_pool

SAMPLE_SECONDS = 0.05
"""As long as a sample takes, so many are in flight at every moment; with shorter ones they would only be more."""


class SteadyTrainer:
    """Finds its pool on the API server, and reaches it by the Service's stand-in.

    Attributes:
        outcomes: how many samples were right, wrong, or failed with which error.
        report: the client's own counts, once it is done.
        done: set it to end.
    """

    def __init__(self, cluster: Cluster, pool: str, service: StandInService, *, concurrency: int = 8) -> None:
        self.outcomes: Counter[str] = Counter()
        self.report: Report
        self.done = threading.Event()
        self._kubeconfig = str(cluster.plane.kubeconfig)
        self._address = service.url.partition("://")[2]
        self._config = RewardConfig(
            pool=f"{NAMESPACE}/{pool}", concurrency=concurrency, on_failure="skip", wait_seconds=30
        )

    def run(self) -> None:
        """Score until told to stop."""
        asyncio.run(self._score())

    async def _find(self, config: RewardConfig, **how: Any) -> Endpoint:
        found = await find_pool(config, environ={"KUBECONFIG": self._kubeconfig}, **how)
        return replace(found, url=f"{found.url.partition('://')[0]}://{self._address}")

    async def _score(self) -> None:
        async with injected_pool(self._config, find=self._find) as pool:
            await asyncio.gather(*(self._until_done(pool, number) for number in range(self._config.concurrency)))
            self.report = pool.report()

    async def _until_done(self, pool: Pool, number: int) -> None:
        while not self.done.is_set():
            text = f"{number}-{self.outcomes.total()}"
            arguments = {"data_source": "test", "ground_truth": None, "extra_info": {"seconds": SAMPLE_SECONDS}}
            outcome = await pool.outcome(Sample(function=FunctionSample(solution_str=text, **arguments)))
            if isinstance(outcome, Scored):
                self.outcomes["right" if outcome.value == expected_score(text) else "wrong"] += 1
            else:
                self.outcomes[repr(outcome.error)] += 1


@contextmanager
def training(cluster: Cluster, pool: str, service: StandInService) -> Iterator[SteadyTrainer]:
    """Score all the while the body runs, and some more; what came of it is for the body's test to look at after."""
    trainer = SteadyTrainer(cluster, pool, service)
    thread = threading.Thread(target=trainer.run)
    thread.start()
    try:
        cluster.eventually(lambda: trainer.outcomes["right"] > 20, seconds=20, what="the trainer has scores")
        yield trainer
        before = trainer.outcomes["right"]
        cluster.eventually(lambda: trainer.outcomes["right"] > before + 20, seconds=20, what="it goes on having scores")
    finally:
        trainer.done.set()
        thread.join(timeout=60)
    if thread.is_alive():
        pytest.fail("the trainer did not end")
