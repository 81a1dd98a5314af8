"""The means to break a control plane: each fault is there while its context is, and over when that is left."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from cluster.breaking import Breaker
from cluster.control_plane import ControlPlane
from cluster.fault_proxy import FaultProxy, Rule
from cluster.kubectl import kubectl, write_kubeconfig
from cluster.processes import ClusterError

pytestmark = pytest.mark.real

SECRETS = frozenset({"secrets"})


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane"), controllers=False) as plane:
        yield plane


@pytest.fixture(scope="module")
def breaker(plane: ControlPlane) -> Iterator[Breaker]:
    breaker = Breaker(plane, {})
    yield breaker
    breaker.close()


@pytest.fixture(scope="module")
def proxy(breaker: Breaker) -> FaultProxy:
    return breaker.proxy()


class ThroughTheProxy:
    """kubectl as the administrator, by way of the proxy."""

    def __init__(self, plane: ControlPlane, proxy: FaultProxy, path: Path) -> None:
        self._plane = plane
        self._proxy = proxy
        self._path = path

    def __call__(self, *args: str) -> str:
        url = f"https://{self._proxy.address}:{self._proxy.port}"
        trust = self._plane.authority.certificate
        write_kubeconfig(self._path, url=url, authority=trust, token=self._plane.admin_token)
        return kubectl("kubectl", self._path, *args)


@pytest.fixture
def through(plane: ControlPlane, proxy: FaultProxy, tmp_path: Path) -> ThroughTheProxy:
    return ThroughTheProxy(plane, proxy, tmp_path / "proxy.kubeconfig")


def test_without_a_rule_the_proxy_is_the_api_server(through: ThroughTheProxy) -> None:
    through("create", "configmap", "made-through-the-proxy", "--from-literal=key=value")
    assert through("get", "configmap", "made-through-the-proxy", "-o", "jsonpath={.data.key}") == "value"
    through("delete", "configmap", "made-through-the-proxy")


def test_a_rule_refuses_its_kind_and_no_other_and_only_while_it_holds(
    through: ThroughTheProxy, proxy: FaultProxy
) -> None:
    with proxy.broken(Rule(status=403, resources=SECRETS)):
        with pytest.raises(ClusterError, match="refused by a test"):
            through("get", "secrets")
        through("get", "configmaps")
    through("get", "secrets")


def test_a_watch_that_a_rule_is_about_is_cut_when_it_begins(plane: ControlPlane, proxy: FaultProxy) -> None:
    async def lines_of_a_watch() -> list[str]:
        url = f"https://{proxy.address}:{proxy.port}/api/v1/namespaces/default/secrets?watch=1"
        headers = {"Authorization": f"Bearer {plane.admin_token}"}
        seen = []
        async with aiohttp.ClientSession(headers=headers) as session, session.get(url, ssl=False) as answer:
            plane.kubectl("create", "secret", "generic", "seen", "--from-literal=key=value")
            first = await asyncio.wait_for(answer.content.readline(), timeout=10)
            seen.append(json.loads(first)["type"])
            with proxy.broken(Rule(status=500, resources=SECRETS)):
                try:
                    seen.append((await asyncio.wait_for(answer.content.read(), timeout=10)).decode())
                except aiohttp.ClientError:
                    seen.append("")
        return seen

    assert asyncio.run(lines_of_a_watch()) == ["ADDED", ""]


def test_a_full_etcd_takes_nothing_and_then_everything_again(plane: ControlPlane, breaker: Breaker) -> None:
    with breaker.etcd_full():
        with pytest.raises(ClusterError, match="space exceeded"):
            plane.kubectl("create", "configmap", "too-much")
        plane.kubectl("get", "configmaps")
    plane.kubectl("create", "configmap", "too-much")


def test_a_restarted_etcd_has_what_it_had(plane: ControlPlane, breaker: Breaker) -> None:
    plane.kubectl("create", "configmap", "kept")
    breaker.restart_etcd()
    assert plane.kubectl("get", "configmap", "kept", "-o", "name") == "configmap/kept\n"
