"""A closed loop by way of the trainer's own client: each request that is answered is followed by another."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from rewardpool import Endpoint, FunctionSample, RewardConfig, Sample, Scored
from rewardpool._client.pool import injected_pool
from rewardpool._discovery.find import find_pool
from rewardpool_api import names

CONCURRENCY = 4096
"""More than are ever in flight, or the client's own limit would be the load."""


class Load:
    """Requests to one pool; an async context manager.

    Args:
        pool: namespace/name.
        address: of the router's Service, since its name is known inside of the cluster only.
        kubeconfig: by which the pool is found.

    Attributes:
        scored: samples that got a score.
        failed: what befell those that got none.
    """

    def __init__(self, pool: str, *, address: str, kubeconfig: Path) -> None:
        self._address = address
        self._kubeconfig = kubeconfig
        self._config = RewardConfig(pool=pool, concurrency=CONCURRENCY, on_failure="skip", wait_seconds=60)
        self._held = 0
        self._callers: list[asyncio.Task[None]] = []
        self.scored = 0
        self.failed: list[str] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._pool = await stack.enter_async_context(injected_pool(self._config, find=self._find))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.hold(0)
        await self._stack.aclose()

    async def hold(self, requests: int) -> None:
        """Have so many in flight from now on; fewer than before once those that are too many are answered."""
        self._held = requests
        surplus = self._callers[requests:]
        self._callers += [asyncio.create_task(self._ask_on(number)) for number in range(len(self._callers), requests)]
        await asyncio.gather(*surplus)
        del self._callers[requests:]

    async def _ask_on(self, number: int) -> None:
        while number < self._held:
            sample = Sample(function=FunctionSample(data_source="bench", solution_str="a sample", ground_truth=None))
            outcome = await self._pool.outcome(sample)
            if isinstance(outcome, Scored):
                self.scored += 1
            else:
                self.failed.append(repr(outcome.error))

    async def _find(self, config: RewardConfig, **how: Any) -> Endpoint:
        found = await find_pool(config, environ={"KUBECONFIG": str(self._kubeconfig)}, **how)
        port = urlsplit(found.url).port or names.ROUTER_PORT
        return replace(found, url=f"http://{self._address}:{port}")
