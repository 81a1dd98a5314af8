"""A pool of a cluster, opened from outside: its address is a name that the cluster's pods alone know."""

import socket
from typing import Any

import pytest

from rewardpool import Endpoint, RewardConfig
from rewardpool._client.pool import injected_pool
from rewardpool._discovery.pool_sources import KubernetesSource, PoolSource
from rewardpool.errors import PoolAccessError

BY_KUBECONFIG = KubernetesSource({"KUBECONFIG": "/home/ann/.kube/config"})


async def opened_by(source: PoolSource | None) -> str:
    """The URL of a pool that was opened."""

    async def find(_: RewardConfig, **__: Any) -> Endpoint:
        url = "http://skywork-router.rl.svc:8080"
        return Endpoint(url=url, pool="rl/skywork", served_name="skywork", origin="a test", source=source)

    async with injected_pool(RewardConfig(pool="rl/skywork"), find=find) as pool:
        return pool.endpoint.url


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The error with which names are looked up."""
    errors = [socket.EAI_NONAME]

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        raise socket.gaierror(errors[-1], f"{host} is not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return errors


async def test_a_name_that_is_not_known_outside_is_an_error_at_once_that_says_what_to_do(resolver: list[int]) -> None:
    with pytest.raises(PoolAccessError) as caught:
        await opened_by(BY_KUBECONFIG)
    assert "`kubectl --namespace rl port-forward service/skywork-router 8080`" in str(caught.value)
    assert "set $REWARDPOOL_URL and $REWARDPOOL_KEY_FILE" in str(caught.value)


async def test_a_name_server_that_is_away_may_be_back(resolver: list[int]) -> None:
    resolver.append(socket.EAI_AGAIN)
    assert await opened_by(BY_KUBECONFIG) == "http://skywork-router.rl.svc:8080"


async def test_in_a_pod_samples_wait_for_the_name(resolver: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewardpool._discovery.pool_sources.is_in_pod", lambda environ: True)
    assert await opened_by(KubernetesSource({})) == "http://skywork-router.rl.svc:8080"
