"""What a worker's answers mean; the worker is a scripted stand-in."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.decide_builders import a_pool
from support.ports import free_port

from rewardpool_api import contract
from rewardpool_api.status import CertificateStatus
from rewardpool_control.snapshot import Failure
from rewardpool_local.replica import Replica
from rewardpool_operator.probe import ProbeResult, probe_score, read_in_flight, score_text
from rewardpool_worker.engine_side.middleware import answers

Answers = dict[str, tuple[int, Any]]
Scripted = Callable[[Answers], Awaitable[str]]

LISTED = {"data": [{"id": "other", "max_model_len": 1}, {"id": "rm", "max_model_len": 512}]}


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """Starts a worker that gives these answers by path, and 404 elsewhere."""
    servers: list[TestServer] = []

    async def start(answers: Answers) -> str:
        async def answer(request: web.Request) -> web.Response:
            status, body = answers.get(request.path, (404, {}))
            return web.json_response(body, status=status)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        servers.append(TestServer(app))
        await servers[-1].start_server()
        return str(servers[-1].make_url(""))

    yield start
    await asyncio.gather(*(server.close() for server in servers))


async def probe(session: aiohttp.ClientSession, url: str) -> ProbeResult:
    return await probe_score(session, url, key="k", served_name="rm", model_type="Discriminative")


async def test_a_ready_worker_says_its_longest_sample(scripted: Scripted, session: aiohttp.ClientSession) -> None:
    url = await scripted({"/rewardpool/ready": (200, {"ready": True, "max_model_len": 512})})
    assert await probe(session, url) == ProbeResult(ok=True, max_model_len=512)


async def test_a_ready_worker_says_its_score_of_the_probe_text(
    scripted: Scripted, session: aiohttp.ClientSession
) -> None:
    url = await scripted({"/rewardpool/ready": (200, {"ready": True, "probe_score": -1.25})})
    assert await probe(session, url) == ProbeResult(ok=True, probe_score=-1.25)


@pytest.mark.parametrize("stated", ["0.5", True, None, [0.5], float("nan"), float("inf"), 10**400])
async def test_what_is_no_finite_number_is_no_score_of_the_probe_text(
    scripted: Scripted, session: aiohttp.ClientSession, stated: object
) -> None:
    url = await scripted({"/rewardpool/ready": (200, {"ready": True, "probe_score": stated})})
    assert await probe(session, url) == ProbeResult(ok=True)


async def test_a_worker_that_is_not_ready_says_why(scripted: Scripted, session: aiohttp.ClientSession) -> None:
    url = await scripted({"/rewardpool/ready": (503, {"ready": False, "reason": "loading weights"})})
    result = await probe(session, url)
    assert (result.ok, "loading weights" in (result.error or "")) == (False, True)


async def test_an_engine_without_the_ready_path_is_asked_for_a_score(
    scripted: Scripted, session: aiohttp.ClientSession
) -> None:
    scored = {"data": [{"index": 0, "embedding": [0.5]}]}
    url = await scripted({"/v1/embeddings": (200, scored), "/v1/models": (200, LISTED)})
    assert await probe(session, url) == ProbeResult(ok=True, max_model_len=512, probe_score=0.5)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((200, {"data": [{"index": 0, "embedding": ["NaN"]}]}), id="no number"),
        pytest.param((200, {"data": [], "error": {"code": "invalid_sample", "message": "no"}}), id="an error object"),
        pytest.param((500, {}), id="a failure"),
        pytest.param((404, {}), id="no such path"),
    ],
)
async def test_no_real_score_is_not_ok(
    scripted: Scripted, session: aiohttp.ClientSession, answer: tuple[int, Any]
) -> None:
    result = await probe(session, await scripted({"/v1/embeddings": answer}))
    assert (result.ok, bool(result.error)) == (False, True)


async def test_a_worker_that_is_gone_is_an_outcome(session: aiohttp.ClientSession) -> None:
    result = await probe(session, f"http://127.0.0.1:{free_port()}")
    assert (result.ok, result.reached) == (False, False)


async def test_a_worker_that_listens_without_a_score_is_reached_and_says_why(
    scripted: Scripted, session: aiohttp.ClientSession
) -> None:
    unready = {"ready": False, "reason": "The model `sn` does not exist."}
    result = await probe(session, await scripted({"/rewardpool/ready": (503, unready)}))
    assert (result.ok, result.reached) == (False, True)
    assert "The model `sn` does not exist." in str(result.error)


async def test_a_worker_whose_numbers_vary_fails_for_a_reason_of_its_own(
    scripted: Scripted, session: aiohttp.ClientSession
) -> None:
    unready = {"ready": False, "reason": "in a batch by 0.5; set --x", "code": "numbers_vary"}
    result = await probe(session, await scripted({"/rewardpool/ready": (503, unready)}))
    assert result.failure == Failure(reason="NumbersVary", message="in a batch by 0.5; set --x")


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (
            {"outcome": "Certified", "max_abs_diff": 0.5, "message": "m" * 1000},
            CertificateStatus(outcome="Certified", max_abs_diff=0.5, message="m" * 500),
        ),
        ({"outcome": "NotCertified", "max_abs_diff": -1}, CertificateStatus(outcome="NotCertified")),
        ({"outcome": "Fine"}, None),
        ("Certified", None),
    ],
)
async def test_a_ready_workers_certificate_is_read_as_far_as_it_is_one(
    scripted: Scripted, session: aiohttp.ClientSession, said: object, read: CertificateStatus | None
) -> None:
    url = await scripted({"/rewardpool/ready": (200, {"ready": True, "certificate": said})})
    assert (await probe(session, url)).certificate == read


@pytest.mark.parametrize("version", [1, 2])
async def test_a_score_is_asked_for_in_this_version_of_the_wire_contract(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async def answer(request: web.Request) -> web.Response:
        header = request.headers.get(contract.REQUEST_ID_HEADER)
        refused = answers.refused_for_another(None if header is None else header.encode(), "5f1c")
        return web.json_response(refused or {"data": [{"index": 0, "embedding": [0.5]}]})

    for module in (contract, answers):
        monkeypatch.setattr(module, "WIRE_VERSION", version)
    app = web.Application()
    app.router.add_post(contract.SCORE_PATH, answer)
    async with TestServer(app) as server:
        assert await score_text(session, str(server.make_url("")), "k", "rm", "a text") == 0.5


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param((200, {"in_flight": 3}), 3, id="a count"),
        pytest.param((200, {"in_flight": -1}), None, id="negative"),
        pytest.param((200, {"in_flight": float("nan")}), None, id="NaN"),
        pytest.param((200, {"in_flight": float("inf")}), None, id="infinite"),
        pytest.param((200, {"in_flight": "many"}), None, id="a text"),
        pytest.param((200, {"in_flight": True}), None, id="a truth"),
        pytest.param((404, {}), None, id="an engine that does not count"),
    ],
)
async def test_requests_in_flight(
    scripted: Scripted, session: aiohttp.ClientSession, answer: tuple[int, Any], expected: int | None
) -> None:
    assert await read_in_flight(session, await scripted({"/rewardpool/load": answer}), key="k") == expected


@pytest.mark.parametrize(
    ("code", "failure"), [({}, None), ({"code": "numbers_vary"}, "NumbersVary")], ids=["none yet", "none ever"]
)
async def test_a_local_worker_without_a_score_is_observed_with_its_reason(
    scripted: Scripted, session: aiohttp.ClientSession, code: dict[str, str], failure: str | None
) -> None:
    unready = {"ready": False, "reason": "The model `sn` does not exist.", **code}
    url = await scripted({"/rewardpool/ready": (503, unready)})
    news = asyncio.Event()
    run: Any = SimpleNamespace(changed=news.set)
    never: Any = None
    pool = a_pool()
    replica = Replica(
        "w", pool, created=datetime.now(UTC), run=run, command=never, acquire_gpus=never, session=session, key=None
    )

    async def listens() -> bool:
        return True

    started = {
        "listens": listens,
        "running": True,
        "stopping": False,
        "running_seconds": 0.0,
        "failure": None,
        "restarts": 0,
    }
    replica.process = SimpleNamespace(pid=1, url=url, **started)  # type: ignore[assignment]
    await asyncio.wait_for(news.wait(), 30)
    seen = replica.observe()
    assert "The model `sn` does not exist." in str(seen.no_score)
    assert (seen.failure.reason if seen.failure else None) == failure
    replica.process.pid = 2  # type: ignore[misc]
    assert (replica.observe().no_score, replica.observe().failure) == (None, None)
    replica._looking.cancel()
