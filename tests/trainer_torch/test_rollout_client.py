"""What the client of a vLLM makes of its answers; the servers here are stand-ins that say what a test has them say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rewardpool.errors import RolloutError
from rewardpool_train.actor.rollout import vllm_client
from rewardpool_train.actor.rollout.vllm_client import (
    Response,
    Sampling,
    SocketAddress,
    VllmClient,
    read_response,
)
from rewardpool_train.actor.rollout.vllm_engine import to_rollout

SAMPLING = Sampling(served_name="policy", end_ids=[7, 9], max_new_tokens=3, temperature=0.5)


def answer(**changes: Any) -> dict[str, Any]:
    """Three tokens, the last of them by newer weights."""
    choice = {
        "token_ids": [5, 6, 7],
        "logprobs": {"content": [{"token_id": 5, "logprob": -1}, {"logprob": -2}, {"logprob": -3}]},
        "weight_versions": [{"version": "4", "start": 0, "end": 2}, {"version": "5", "start": 2, "end": 3}],
        "finish_reason": "stop",
    }
    return {"choices": [choice | changes]}


def test_a_request_names_every_token_that_ends_a_response() -> None:
    assert SAMPLING.request([1])["sampling_params"]["stop_token_ids"] == [7, 9]


SILENCE = 0
"""In the place of a status: it is asked and never answers."""


class StandInVllm:
    """Answers each path with the next of its scripted statuses, 200 after the last; remembers what it was asked."""

    def __init__(self, **statuses: list[int]) -> None:
        self._statuses = statuses
        self.asked: list[str] = []

    async def _answer(self, request: web.Request) -> web.Response:
        name = request.path.rsplit("/", 1)[-1]
        self.asked.append(name)
        scripted = self._statuses.get(name)
        status = scripted.pop(0) if scripted else 200
        if status == SILENCE:
            await asyncio.Event().wait()
        return web.json_response(answer(), status=status)

    @asynccontextmanager
    async def client(self, folder: Path, *, attempts: int) -> AsyncIterator[VllmClient]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        await web.UnixSite(runner, str(folder / "vllm")).start()
        async with VllmClient.connect(SocketAddress(folder / "vllm"), attempts=attempts) as client:
            yield client
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewardpool_train.actor.rollout.vllm_client.random.uniform", lambda low, high: 0.0)


def test_each_token_has_the_version_of_its_span() -> None:
    expected = Response(token_ids=[5, 6, 7], log_probs=[-1, -2, -3], versions=[4, 4, 5], ended=True)
    assert read_response(answer()) == expected


def test_a_response_at_the_limit_has_not_ended_by_itself() -> None:
    assert not read_response(answer(finish_reason="length")).ended


@pytest.mark.parametrize(
    "changes",
    [
        {"weight_versions": None},  # of an older vLLM
        {"weight_versions": [{"version": "4", "start": 0, "end": 2}]},
        {"weight_versions": [{"version": "default", "start": 0, "end": 3}]},  # nobody named its weights
        {"logprobs": None},
        {"logprobs": {"content": [{"logprob": -1}]}},
        {"finish_reason": "abort"},
        {"token_ids": []},
    ],
)
def test_a_response_without_all_of_its_parts_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(RolloutError, match="vLLM"):
        read_response(answer(**changes))


def test_versions_are_kept_by_token_only_where_they_differ() -> None:
    mixed, pure = read_response(answer()), Response(token_ids=[5], log_probs=[-1.0], versions=[4], ended=False)
    rollouts = [to_rollout(response, group=0, member=0, prompt_ids=[1]) for response in (mixed, pure)]
    assert [(rollout.version, rollout.token_versions) for rollout in rollouts] == [(4, [4, 4, 5]), (4, None)]


async def test_a_failure_is_tried_again_and_a_refusal_is_not(tmp_path: Path) -> None:
    failing, refusing = StandInVllm(generate=[500, 503]), StandInVllm(generate=[400])
    async with failing.client(tmp_path, attempts=3) as client:
        assert (await client.sample(SAMPLING.request([1]), deadline_seconds=30)).token_ids == [5, 6, 7]
    async with refusing.client(tmp_path, attempts=3) as client:
        with pytest.raises(RolloutError, match="HTTP 400"):
            await client.sample(SAMPLING.request([1]), deadline_seconds=30)
    assert (len(failing.asked), len(refusing.asked)) == (3, 1)


async def test_attempts_are_bounded(tmp_path: Path) -> None:
    server = StandInVllm(generate=[500] * 9)
    async with server.client(tmp_path, attempts=2) as client:
        with pytest.raises(RolloutError, match="HTTP 500"):
            await client.sample(SAMPLING.request([1]), deadline_seconds=30)
    assert len(server.asked) == 2


async def test_weights_change_between_a_pause_and_a_resume_even_when_they_are_refused(tmp_path: Path) -> None:
    taking, refusing = StandInVllm(), StandInVllm(collective_rpc=[500])
    async with taking.client(tmp_path, attempts=3) as client:
        await client.change_weights(tmp_path, 5)
    async with refusing.client(tmp_path, attempts=3) as client:
        with pytest.raises(RolloutError, match="collective_rpc"):
            await client.change_weights(tmp_path, 5)
    assert taking.asked == ["pause", "collective_rpc", "update_weight_version", "resume"]
    assert refusing.asked == ["pause", "collective_rpc", "resume"]


async def test_a_response_that_does_not_come_is_an_error_that_says_so(tmp_path: Path) -> None:
    async with StandInVllm(generate=[SILENCE]).client(tmp_path, attempts=3) as client:
        with pytest.raises(RolloutError, match=r"vLLM gave no response within 0\.1 s"):
            await client.sample(SAMPLING.request([1]), deadline_seconds=0.1)


@pytest.mark.parametrize(
    ("silent", "problem", "asked"),
    [
        ("collective_rpc", "did not take the weights", ["pause", "collective_rpc", "resume"]),
        ("resume", "did not go on", ["pause", "collective_rpc", "update_weight_version", "resume"]),
    ],
)
async def test_a_change_of_weights_ends_though_the_server_falls_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: str, problem: str, asked: list[str]
) -> None:
    shortened = {"collective_rpc": "CHANGE_DEADLINE_SECONDS", "resume": "RESUME_DEADLINE_SECONDS"}
    monkeypatch.setattr(vllm_client, shortened[silent], 0.1)
    server = StandInVllm(**{silent: [SILENCE]})
    async with server.client(tmp_path, attempts=1) as client:
        with pytest.raises(RolloutError, match=f"vLLM {problem}.* within 0.1 s"):
            await client.change_weights(tmp_path, 5)
    assert server.asked == asked
