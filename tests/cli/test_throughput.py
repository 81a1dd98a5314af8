"""Samples per second, from counters that a fake API server passes on."""

from functools import partial
from typing import Any

from support.decide_builders import a_pool

from rewardpool_cli.rates import Rates
from rewardpool_cli.throughput import requests_of
from rewardpool_kube.errors import KubeError

POOL = a_pool()


class FakeKube:
    """One router pod, whose counter the test sets; None stands for a refusal."""

    def __init__(self) -> None:
        self.requests: int | None = 0

    async def list(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return [{"metadata": {"name": "router-0"}, "status": {"phase": "Running"}}]

    async def text(self, path: str) -> str:
        assert path.endswith("/pods/router-0:9090/proxy/metrics")
        if self.requests is None:
            raise KubeError("get", status=403, reason="Forbidden", message="no")
        return f"# TYPE smg_router_requests_total counter\nsmg_router_requests_total {self.requests}\n"


class FakeCluster:
    def __init__(self) -> None:
        self.kube = FakeKube()


class Looks:
    """Looks two seconds apart."""

    def __init__(self, *, limit: int = 10) -> None:
        self.cluster = FakeCluster()
        self.now = 0.0
        total = partial(requests_of, self.cluster)  # type: ignore[arg-type]
        self._throughput = Rates(total, limit=limit, clock=lambda: self.now)

    async def at(self, requests: int | None) -> dict[str, float]:
        self.cluster.kube.requests = requests
        self.now += 2
        return await self._throughput.measure([POOL])


async def test_a_rate_takes_two_looks() -> None:
    looks = Looks()
    assert await looks.at(100) == {}
    assert await looks.at(150) == {POOL.key: 25.0}


async def test_a_router_that_was_replaced_has_no_rate_for_one_look() -> None:
    looks = Looks()
    await looks.at(100)
    assert await looks.at(4) == {}
    assert await looks.at(10) == {POOL.key: 3.0}


async def test_who_may_not_ask_the_routers_sees_no_rate() -> None:
    looks = Looks()
    await looks.at(100)
    assert await looks.at(None) == {}
    assert await looks.at(150) == {}


async def test_only_so_many_pools_are_measured() -> None:
    looks = Looks(limit=0)
    await looks.at(100)
    assert await looks.at(150) == {}
