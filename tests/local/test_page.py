"""The page's view of this machine: state folders, routers' metrics, logs, and the file that opens it."""

import stat
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.local_pool import POOL, environ_of, write_local_pool

from rewardpool_local.folder import AlreadyRunningError, folder_of
from rewardpool_local.page import MachineSource
from rewardpool_local.page_folder import PageFolder
from rewardpool_page.access import Everything
from rewardpool_page.source import MAX_LOG_BYTES, NotShownError, Seen

METRICS = """smg_router_request_duration_seconds_bucket{endpoint="other",le="0.1"} 3
smg_router_request_duration_seconds_bucket{endpoint="other",le="+Inf"} 4
smg_router_request_duration_seconds_sum{endpoint="other"} 0.5
smg_router_request_duration_seconds_count{endpoint="other"} 4
"""


async def look(state: Path, session: aiohttp.ClientSession) -> list[Seen]:
    return list(await MachineSource(environ_of(state), session).observe(counted=True))


async def log_of(state: Path, name: str, session: aiohttp.ClientSession) -> str:
    return await MachineSource(environ_of(state), session).log(POOL, name, Everything())


def write_log(state: Path, text: str) -> None:
    folder = folder_of(POOL, environ_of(state))
    folder.create()
    (folder.logs / "worker-1.log").write_text(text)


async def test_a_router_s_metrics_say_how_many_requests_it_answered(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    write_local_pool(tmp_path)
    async with TestServer(app) as router:
        folder_of(POOL, environ_of(tmp_path)).write_metrics_url(str(router.make_url("")).rstrip("/"))
        (seen,) = await look(tmp_path, session)
    assert seen.counts is not None
    assert (seen.counts.answered, seen.counts.seconds) == (4, 0.5)
    assert seen.counts.within == {0.1: 3, float("inf"): 4}


async def test_a_router_that_does_not_answer_leaves_its_pool_without_a_rate(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    write_local_pool(tmp_path)
    folder_of(POOL, environ_of(tmp_path)).write_metrics_url("http://127.0.0.1:9")
    (seen,) = await look(tmp_path, session)
    assert seen.counts is None


async def test_a_state_that_cannot_be_read_does_not_hide_the_other_pools(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    write_local_pool(tmp_path)
    (tmp_path / "rl" / "other").mkdir()
    (tmp_path / "rl" / "other" / "pool.json").write_text("{}")
    assert [seen.pool.key for seen in await look(tmp_path, session)] == [POOL]


async def test_a_log_has_its_end_and_neither_keys_nor_colours(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    write_local_pool(tmp_path)
    write_log(tmp_path, "")
    folder = folder_of(POOL, environ_of(tmp_path))
    folder.new_keys()
    key = folder.key_file.read_text()
    write_log(tmp_path, "x" * 2 * MAX_LOG_BYTES + f"\n\x1b[32mready\x1b[0m with {key}\n")
    text = await log_of(tmp_path, "worker-1", session)
    assert text.endswith("\nready with [key]\n")
    assert len(text) <= MAX_LOG_BYTES


async def test_a_manifest_is_what_was_declared_last(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    write_local_pool(tmp_path)
    folder = folder_of(POOL, environ_of(tmp_path))
    pool = folder.read_pool()
    assert pool is not None
    folder.write_wanted(pool.model_copy(update={"spec": pool.spec.model_copy(update={"replicas": 3})}))
    manifest = await MachineSource(environ_of(tmp_path), session).manifest(POOL, Everything())
    assert manifest["spec"]["replicas"] == 3


@pytest.mark.parametrize("name", ["worker-2", "../key", "..", ""])
async def test_a_file_that_is_no_log_is_not_found(tmp_path: Path, session: aiohttp.ClientSession, name: str) -> None:
    write_local_pool(tmp_path)
    write_log(tmp_path, "ready\n")
    with pytest.raises(NotShownError):
        await log_of(tmp_path, name, session)


def test_the_token_is_new_each_time_and_only_its_user_reads_it(tmp_path: Path) -> None:
    folder = PageFolder(environ_of(tmp_path))
    with folder.serving("http://127.0.0.1:1"):
        first = folder.token_file.read_text()
    with folder.serving("http://127.0.0.1:1"):
        assert folder.token_file.read_text() != first
    assert len(first) >= 43
    assert stat.S_IMODE(folder.token_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_the_page_is_served_once_and_has_an_address_only_meanwhile(tmp_path: Path) -> None:
    folder = PageFolder(environ_of(tmp_path))
    assert folder.address() is None
    with folder.serving("http://127.0.0.1:1"):
        assert folder.address() == "http://127.0.0.1:1"
        with pytest.raises(AlreadyRunningError), PageFolder(environ_of(tmp_path)).serving("http://127.0.0.1:2"):
            pytest.fail("it is served twice")
    assert folder.address() is None
