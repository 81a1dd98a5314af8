"""The cluster as a source, against FakeApiServer: one that answers two paths with what a test sets."""

import base64
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool._discovery.pool_sources import KubernetesSource, PoolNotHere
from rewardpool.errors import PoolAccessError, PoolNotReadyError
from rewardpool_api import RewardPool

POOL_PATH = "/apis/rewardpool.dev/v1alpha1/namespaces/rl/rewardpools/skywork"
SECRET_PATH = "/api/v1/namespaces/rl/secrets/skywork-key"
POOL = {
    "metadata": {"name": "skywork", "namespace": "rl", "resourceVersion": "7"},
    "spec": {"model": {"source": "hf://org/model"}},
    "status": {"auth": {"secretName": "skywork-key"}},
}
SECRET = {
    "kind": "Secret",
    "apiVersion": "v1",
    "metadata": {"name": "skywork-key", "namespace": "rl", "resourceVersion": "8"},
    "data": {"key": base64.b64encode(b"secret-key").decode()},
}


class FakeApiServer:
    """Answers a path with a status and a JSON body; 404 for the rest."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.tokens: list[str | None] = []
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        self.server = TestServer(app)

    async def _serve(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization"))
        status, body = self.answers.get(request.path, (404, {"kind": "Status", "code": 404}))
        return web.json_response(body, status=status)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiServer]:
    cluster = FakeApiServer()
    await cluster.server.start_server()
    yield cluster
    await cluster.server.close()


@pytest.fixture
def source(cluster: FakeApiServer, tmp_path: Path) -> KubernetesSource:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": str(cluster.server.make_url(""))}}],
        "users": [{"name": "u", "user": {"token": "job-token"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return KubernetesSource({"KUBECONFIG": str(path)})


async def test_a_pool_and_its_key_are_read_with_the_jobs_own_rights(
    cluster: FakeApiServer, source: KubernetesSource
) -> None:
    cluster.answers = {POOL_PATH: (200, POOL), SECRET_PATH: (200, SECRET)}
    pool = await source.read_pool("rl", "skywork")
    assert (pool.key, await source.read_keys(pool)) == ("rl/skywork", ("secret-key",))
    assert set(cluster.tokens) == {"Bearer job-token"}


@pytest.mark.parametrize(
    "status",
    [
        {"url": "http://evil.example:8080"},
        {"url": "http://skywork-router.rl.svc.evil.example:8080"},
        {"url": "http://skywork-router.rl.svc:8080@evil.example"},
        {"url": "http://other-router.rl.svc:8080"},
        {"url": "http://skywork-router.rl.svc:8081"},
        {"auth": {"secretName": "hub-token"}},
    ],
)
async def test_a_status_that_names_another_address_or_secret_than_the_pools_own_is_refused(
    cluster: FakeApiServer, source: KubernetesSource, status: dict[str, Any]
) -> None:
    cluster.answers[POOL_PATH] = (200, {**POOL, "status": status})
    with pytest.raises(
        PoolAccessError, match=r"^status\.(url|auth\.secretName) of RewardPool rl/skywork is .*who may patch"
    ):
        await source.read_pool("rl", "skywork")


@pytest.mark.parametrize("url", ["http://skywork-router.rl.svc:8080", "https://skywork-router.rl.svc:8080"])
async def test_the_address_that_an_operator_writes_is_taken(
    cluster: FakeApiServer, source: KubernetesSource, url: str
) -> None:
    cluster.answers[POOL_PATH] = (200, {**POOL, "status": {"url": url}})
    assert (await source.read_pool("rl", "skywork")).status.url == url


async def test_a_pool_the_cluster_does_not_have_is_not_here(source: KubernetesSource) -> None:
    with pytest.raises(PoolNotHere, match=r"no rewardpools\.rewardpool\.dev/skywork in namespace rl"):
        await source.read_pool("rl", "skywork")


async def test_the_pools_of_a_namespace_are_listed(cluster: FakeApiServer, source: KubernetesSource) -> None:
    items = [{"metadata": {"name": name, "resourceVersion": "7"}} for name in ("judge", "a")]
    listed = {"kind": "RewardPoolList", "metadata": {"resourceVersion": "9"}, "items": items}
    cluster.answers = {POOL_PATH.rpartition("/")[0]: (200, listed)}
    assert await source.pool_names("rl") == ["rl/a", "rl/judge"]


async def test_pools_that_may_not_be_listed_are_an_access_error(
    cluster: FakeApiServer, source: KubernetesSource
) -> None:
    cluster.answers = {POOL_PATH.rpartition("/")[0]: (403, {"kind": "Status", "code": 403})}
    with pytest.raises(PoolAccessError, match=r"no right to list rewardpools\.rewardpool\.dev in namespace rl"):
        await source.pool_names("rl")


async def test_a_missing_right_names_verb_resource_and_role(cluster: FakeApiServer, source: KubernetesSource) -> None:
    cluster.answers = {POOL_PATH: (403, {"kind": "Status", "code": 403})}
    with pytest.raises(PoolAccessError, match=r"no right to get rewardpools.* in namespace rl .*rewardpool-trainer"):
        await source.read_pool("rl", "skywork")


async def test_a_secret_that_may_not_be_read_is_named(cluster: FakeApiServer, source: KubernetesSource) -> None:
    cluster.answers = {SECRET_PATH: (403, {"kind": "Status", "code": 403})}
    with pytest.raises(PoolAccessError, match="no right to get secrets/skywork-key in namespace rl"):
        await source.read_keys(RewardPool.model_validate(POOL))


async def test_expired_credentials_are_called_that(cluster: FakeApiServer, source: KubernetesSource) -> None:
    cluster.answers = {POOL_PATH: (401, {"kind": "Status", "code": 401})}
    with pytest.raises(PoolAccessError, match="does not accept the credentials"):
        await source.read_pool("rl", "skywork")


async def test_an_api_server_that_does_not_answer_is_named(cluster: FakeApiServer, source: KubernetesSource) -> None:
    await cluster.server.close()
    with pytest.raises(PoolAccessError, match=r"the API server http://127\.0\.0\.1.* does not answer"):
        await source.read_pool("rl", "skywork")


async def test_no_key_is_logged_at_any_level(
    cluster: FakeApiServer, source: KubernetesSource, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.answers = {SECRET_PATH: (200, SECRET)}
    with caplog.at_level(logging.DEBUG):
        await source.read_keys(RewardPool.model_validate(POOL))
    assert SECRET["data"]["key"] not in caplog.text  # type: ignore[index]
    assert "secret-key" not in caplog.text


async def test_a_secret_in_rotation_has_every_valid_key(cluster: FakeApiServer, source: KubernetesSource) -> None:
    data = {name: base64.b64encode(name.encode()).decode() for name in ("previous-key", "key", "next-key", "other")}
    cluster.answers = {SECRET_PATH: (200, {**SECRET, "data": data})}
    assert await source.read_keys(RewardPool.model_validate(POOL)) == ("key", "next-key", "previous-key")


@pytest.mark.parametrize("data", [None, {}, {"key": ""}, {"key": "***"}, {"key": base64.b64encode(b"\xff").decode()}])
async def test_a_secret_without_a_usable_key_is_named(
    cluster: FakeApiServer, source: KubernetesSource, data: dict[str, str] | None
) -> None:
    cluster.answers = {SECRET_PATH: (200, {**SECRET, "data": data})}
    with pytest.raises(PoolNotReadyError, match=r"secrets/skywork-key .*no usable entry 'key'"):
        await source.read_keys(RewardPool.model_validate(POOL))


async def test_a_missing_secret_is_named(source: KubernetesSource) -> None:
    with pytest.raises(PoolNotReadyError, match=r"secrets/skywork-key .*does not exist"):
        await source.read_keys(RewardPool.model_validate(POOL))


async def test_a_pool_without_authentication_has_no_key(source: KubernetesSource) -> None:
    pool = RewardPool.model_validate({**POOL, "status": {}})
    assert await source.read_keys(pool) == ()


async def test_without_a_cluster_the_place_says_that_none_is_configured(tmp_path: Path) -> None:
    with pytest.raises(PoolNotHere, match="no cluster is configured"):
        await KubernetesSource({"KUBECONFIG": str(tmp_path / "none")}).read_pool("rl", "skywork")


async def test_a_broken_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({"kind": "Config"}))
    with pytest.raises(PoolAccessError, match="credentials cannot be used"):
        await KubernetesSource({"KUBECONFIG": str(path)}).read_pool("rl", "skywork")


@pytest.mark.parametrize("text", ["", "a: [", "just words"], ids=["empty", "no YAML", "no mapping"])
async def test_a_kubeconfig_that_is_none_is_said_to_be_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    source = KubernetesSource({"KUBECONFIG": str(tmp_path / "kubeconfig")})
    with pytest.raises(PoolAccessError, match="the cluster's credentials cannot be used"):
        await source.read_pool("rl", "skywork")
