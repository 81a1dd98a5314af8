"""The client outside a cluster: HTTPS, a name and a path of a real HAProxy, with real routers and workers behind it.

HAProxy stands for the gateway of examples/outside/gateway.yaml, whose host, path and method it has.
"""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.command_line import CommandLine, rewardpool
from support.fleet import FLAVORS, SERVED_NAME, Fleet, eventually
from support.local_pool import on_this_machine
from support.ports import free_port
from support.processes import RealProcess
from support.reward_functions import expected_score

from cluster.certificates import Authority
from rewardpool import FunctionSample, Pool, RewardConfig, Sample
from rewardpool.errors import PoolAccessError

__all__ = ["rewardpool"]

pytestmark = pytest.mark.real

GATEWAY = Path(__file__).parents[3] / "examples" / "outside" / "gateway.yaml"
CONFIG = """
defaults
  mode http
  timeout http-request 5s
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend gateway
  bind 127.0.0.1:{port} ssl crt {certificate}
  acl has_route path_beg {path}/
  http-request deny deny_status 404 unless {{ hdr(host),field(1,:) -i {host} }} {{ method {method} }} has_route
  http-request replace-path {path}(/.*) \\1
  default_backend routers
backend routers
  server router {router}
"""


@dataclass(frozen=True)
class Gateway:
    """The gateway, and how it is reached."""

    url: str
    authority: Authority
    fleet: Fleet

    def settings(self, **others: Any) -> dict[str, Any]:
        """Settings of a caller who has the pool's address, key and certificates."""
        own = {"url": self.url, "key_file": self.fleet.key_file, "ca_file": self.authority.certificate}
        return {"served_name": SERVED_NAME, "timeout": 30.0, **own, **others}


@pytest.fixture
async def gateway(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Gateway]:
    program = shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("HAProxy is missing: run `make packages`")
    on_this_machine(monkeypatch, tmp_path)
    _, route = yaml.safe_load_all(GATEWAY.read_text())
    [host], [rule] = route["spec"]["hostnames"], route["spec"]["rules"]
    [match], port = rule["matches"], free_port()
    _known_name(monkeypatch, host)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", common_name=host, hosts=[host])
    both = tmp_path / "both.pem"
    both.write_text(certificate.read_text() + key.read_text())
    async with Fleet(tmp_path, workers=2, flavor=getattr(request, "param", FLAVORS[0])) as fleet:
        router, path = fleet.router.url.removeprefix("http://"), match["path"]["value"]
        config = tmp_path / "haproxy.cfg"
        text = CONFIG.format(port=port, certificate=both, host=host, method=match["method"], path=path, router=router)
        config.write_text(text)
        with RealProcess([program, "-db", "-f", str(config)], env={}, log=tmp_path / "haproxy.log", cwd=tmp_path):

            async def listens() -> bool:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    return False
                writer.close()
                return True

            await eventually(listens, what="HAProxy listens")
            yield Gateway(f"https://{host}:{port}{path}", authority, fleet)


def _known_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have a name lead to this machine, as DNS would."""
    look_up = socket.getaddrinfo

    def known(host: Any, *others: Any, **options: Any) -> Any:
        return look_up("127.0.0.1" if host in (name, name.encode()) else host, *others, **options)

    monkeypatch.setattr(socket, "getaddrinfo", known)


def sample(solution: str) -> Sample:
    arguments: dict[str, Any] = {"data_source": "test", "ground_truth": None, "extra_info": {}}
    return Sample(function=FunctionSample(solution_str=solution, **arguments))


@pytest.mark.parametrize("gateway", FLAVORS, indirect=True)
async def test_samples_are_scored_by_host_and_path_over_https(gateway: Gateway) -> None:
    solutions = [f"solution {number}" for number in range(200)]
    async with Pool(RewardConfig(**gateway.settings())) as pool:
        assert await asyncio.gather(*(pool.score(sample(one)) for one in solutions)) == [
            expected_score(one) for one in solutions
        ]


async def test_another_key_is_refused_at_once(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("wrong")
    async with Pool(RewardConfig(**gateway.settings(key_file=tmp_path / "wrong"))) as pool:
        with pytest.raises(PoolAccessError, match="key"):
            await pool.score(sample("x"))


async def test_samples_wait_while_no_router_is_behind_the_gateway(gateway: Gateway) -> None:
    gateway.fleet.router.kill()
    async with Pool(RewardConfig(**gateway.settings())) as pool:
        waiting = asyncio.create_task(pool.score(sample("x")))

        async def is_tried_again() -> bool:
            return sum(pool.report().retries.values()) > 0

        await eventually(is_tried_again, what="the gateway's 503 is tried again")
        await gateway.fleet.router.start()
        await gateway.fleet.join()
        assert await waiting == expected_score("x")


async def test_the_command_line_scores_a_file_from_a_laptop(
    gateway: Gateway, tmp_path: Path, rewardpool: CommandLine
) -> None:
    rows, reward, out = (tmp_path / name for name in ("rows.jsonl", "reward.yaml", "out.jsonl"))
    rows.write_text("".join(json.dumps({"prompt": "?", "response": f"solution {row}"}) + "\n" for row in range(20)))
    settings = {name: value if isinstance(value, float) else str(value) for name, value in gateway.settings().items()}
    reward.write_text(yaml.safe_dump({**settings, "type": "Function"}))
    ended = await asyncio.to_thread(rewardpool, "score", str(rows), "--reward", str(reward), "--out", str(out))
    assert ended.code == 0, ended.err
    scores = [json.loads(line)["score"] for line in out.read_text().splitlines()]
    assert scores == [expected_score(f"solution {row}") for row in range(20)]
