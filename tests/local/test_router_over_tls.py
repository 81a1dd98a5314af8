"""Real routers that serve HTTPS: who is trusted by operator and trainer, and who is not."""

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from support.fleet import (
    FLAVORS,
    ROUTER_LAUNCHER,
    SERVED_NAME,
    Program,
    eventually,
    loopback_flags,
    server_python,
)
from support.ports import free_port
from support.processes import RealProcess
from support.reward_functions import expected_score

from cluster.certificates import Authority
from rewardpool import FunctionSample, Pool, RewardConfig, Sample
from rewardpool.errors import DeadlineError, PoolAccessError
from rewardpool_api import names
from rewardpool_api.pool import RouterFlavor
from rewardpool_operator.kubernetes.credentials.tls import trust
from rewardpool_operator.routers.admin import RouterAdmin, RouterCertificateError
from rewardpool_operator.routers.flags import TlsFiles
from rewardpool_operator.routers.programs import PROGRAMS

pytestmark = pytest.mark.real

HOST = "fleet-router.rl.svc"
ADMIN_KEY = "admin-key-of-the-test"
SAMPLE = Sample(function=FunctionSample(data_source="", solution_str="x", ground_truth="", extra_info={}))


@dataclass
class TlsRouter:
    """A running router and what verifies it."""

    flavor: RouterFlavor
    url: str
    metrics_url: str
    authority: Authority
    session: aiohttp.ClientSession

    def admin(self, ca: Path, *, host: str = HOST) -> RouterAdmin:
        """As the operator calls it: by address, with the certificate of its host's name."""
        return RouterAdmin(
            self.session,
            flavor=self.flavor,
            url=self.url,
            metrics_url=self.metrics_url,
            admin_key=ADMIN_KEY,
            served_name=SERVED_NAME,
            trust=trust(base64.b64encode(ca.read_bytes()).decode(), host),
        )


@pytest.fixture(params=FLAVORS)
async def router(
    tmp_path: Path, session: aiohttp.ClientSession, request: pytest.FixtureRequest
) -> AsyncIterator[TlsRouter]:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", common_name=HOST, hosts=[HOST, "127.0.0.1"])
    (tmp_path / "admin-key").write_text(ADMIN_KEY)
    port, metrics_port = free_port(), free_port()
    flags = loopback_flags(
        request.param, port, metrics_port=metrics_port, tls=TlsFiles(certificate=certificate, key=key)
    )
    env = {
        names.ENV_ADMIN_KEY_FILE: str(tmp_path / "admin-key"),
        names.ENV_ROUTER_PACKAGE: PROGRAMS[request.param].package,
    }
    argv = [server_python(), str(ROUTER_LAUNCHER), *flags]
    metrics_url = f"http://127.0.0.1:{metrics_port}"
    with RealProcess(argv, env=env, log=tmp_path / "router.log", cwd=tmp_path):
        router = TlsRouter(request.param, f"https://127.0.0.1:{port}", metrics_url, authority, session)

        async def answers() -> bool:
            return (await router.admin(authority.certificate).observe("router")).answering

        await eventually(answers, what="the router answers")
        yield router


async def test_the_operator_trusts_the_pools_authority(router: TlsRouter) -> None:
    assert await router.admin(router.authority.certificate).workers() == ()


async def test_the_operator_trusts_a_certificate_without_an_authority(router: TlsRouter) -> None:
    assert await router.admin(router.authority.directory / "server.crt").workers() == ()


async def test_the_operator_refuses_another_authority(router: TlsRouter, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = router.admin(Authority(tmp_path / "other").certificate)
    with pytest.raises(RouterCertificateError, match=r"spec\.router\.tls is refused"):
        await stranger.workers()
    seen = await stranger.observe("router")
    assert seen.failure is not None
    assert (seen.answering, seen.failure.reason) == (False, "CertificateRefused")


async def test_the_operator_refuses_a_certificate_for_another_host(router: TlsRouter) -> None:
    with pytest.raises(RouterCertificateError, match=r"not valid for 'fleet-router\.other\.svc'"):
        await router.admin(router.authority.certificate, host="fleet-router.other.svc").workers()


async def test_a_trainer_scores_over_https_and_refuses_another_authority(
    router: TlsRouter, tmp_path: Path, worker: Program
) -> None:
    await router.admin(router.authority.certificate).add(worker.url)
    (tmp_path / "other").mkdir()
    settings = {"url": router.url, "served_name": SERVED_NAME, "timeout": 20.0}
    async with Pool(RewardConfig(**settings, ca_file=router.authority.certificate)) as pool:  # type: ignore[arg-type]
        assert await pool.score(SAMPLE) == expected_score("x")
    settings["timeout"] = 2.0
    stranger = RewardConfig(**settings, ca_file=Authority(tmp_path / "other").certificate)  # type: ignore[arg-type]
    async with Pool(stranger) as pool:
        with pytest.raises(DeadlineError, match="certificate verify failed"):
            await pool.score(SAMPLE)


async def test_a_file_without_certificates_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("none")
    with pytest.raises(PoolAccessError, match=r"ca\.crt cannot be used"):
        async with Pool(RewardConfig(url="https://127.0.0.1:1", ca_file=tmp_path / "ca.crt")):
            pass
