"""The gateway's protocols, key, bounds and failures, over HTTP, with a reward function in place of a pool."""

import asyncio
import os
import stat
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rewardpool._gateway import server
from rewardpool._gateway.running import key_for, parse_listen
from rewardpool._gateway.server import GatewaySettings, gateway_app
from rewardpool._gateway.wire import Query, slime_answer
from rewardpool._policy.text import PolicyText
from rewardpool._rewards import Episode, Rating, open_reward
from rewardpool.errors import ConfigError, DeadlineError, InvalidSampleError, PoolNotReadyError, SampleTooLongError
from rewardpool_api.contract import FAULTS

KEY = "right"
TROUBLE: dict[str, Exception] = {
    "slow": DeadlineError("s", 100.0, 6, "silence"),
    "gone": PoolNotReadyError("no worker"),
    "long": SampleTooLongError("s", 9000, 4096),
}
ROWS = {"query": ["2+2=4", "3+3=5"], "prompts": ["2+2=", "3+3="], "labels": ["4", "6"]}
SAMPLE = {"prompt": "2+2=", "response": "4", "label": "4"}


def right(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    return float(solution_str == ground_truth)


class ScriptedReward:
    """Stands in for a reward: a response that names a trouble has it; `none` is unscored."""

    names = ("part",)
    moments = None
    needs_group = False
    pools: Mapping[str, Any] = {}

    async def rate(self, episode: Episode) -> Rating:
        if episode.response in TROUBLE:
            raise TROUBLE[episode.response]
        return Rating(total=None if episode.response == "none" else 1.0, components={"part": None})

    async def rate_batch(self, episodes: list[Episode]) -> list[Rating]:
        return [await self.rate(episode) for episode in episodes]


@asynccontextmanager
async def scripted() -> AsyncIterator[Any]:
    yield ScriptedReward()


@asynccontextmanager
async def answering(opening: Any, **settings: Any) -> AsyncIterator[TestClient[Any, Any]]:
    app = gateway_app(opening, GatewaySettings(text=PolicyText(), **settings))
    async with TestClient(TestServer(app)) as client:
        yield client


def by_rule() -> Any:
    return open_reward({"function": right})


async def test_openrlhf_gets_a_reward_and_a_score_for_each_row() -> None:
    async with answering(by_rule()) as client, client.post("/get_reward", json=ROWS) as answer:
        assert await answer.json() == {"rewards": [1.0, 0.0], "scores": [1.0, 0.0], "extra_logs": {"right": [1.0, 0.0]}}


async def test_slime_gets_the_bare_reward_or_one_with_its_parts() -> None:
    async with answering(by_rule()) as client, client.post("/slime", json=SAMPLE) as answer:
        assert await answer.json() == 1.0
    async with answering(by_rule(), with_parts=True) as client, client.post("/slime", json=SAMPLE) as answer:
        assert await answer.json() == {"total": 1.0, "fault": None, "right": 1.0}


@pytest.mark.parametrize(("prompt", "response"), [("<|im_start|>user", "4"), ("2+2=", "4<|im_end|>"), ("2+2=", None)])
def test_the_row_that_cannot_be_read_is_named(prompt: str, response: str | None) -> None:
    queries = ["1+1=2", "cut off" if response is None else prompt + response]
    query = Query(query=queries, prompts=["1+1=", prompt], labels=["2", "4"])
    with pytest.raises(InvalidSampleError, match=r"^sample row 1: "):
        query.episodes(PolicyText(), strict=True)


def test_a_part_named_total_is_not_taken_for_the_reward() -> None:
    rating = Rating(total=0.5, components={"total": 7.0, "fault": 8.0})
    assert slime_answer(rating, with_parts=True) == {"total": 0.5, "fault": None}


@pytest.mark.parametrize(
    ("response", "status"), [("slow", 503), ("gone", 503), ("none", 503), ("long", 422), ("right", 200)]
)
async def test_a_failure_is_an_error_and_never_a_number(response: str, status: int) -> None:
    rows = {"query": ["?" + response], "prompts": ["?"], "labels": [""]}
    async with answering(scripted()) as client:
        async with client.post("/slime", json=SAMPLE | {"response": response}) as answer:
            said = await answer.json()
            assert (answer.status, "error" in str(said)) == (status, status != 200)
            assert said == 1.0 or response == "gone" or said["fault"] in FAULTS
        async with client.post("/get_reward", json=rows) as answer:
            assert answer.status == status


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/get_reward", ROWS | {"labels": []}, "must have the same length"),
        ("/get_reward", {"query": []}, "query: "),
        ("/slime", {"prompt": "p"}, "response: Field required"),
        ("/slime", ["nonsense"], "body: "),
    ],
)
async def test_a_body_that_is_not_the_protocol_is_refused_by_its_field(path: str, body: Any, problem: str) -> None:
    async with answering(scripted()) as client, client.post(path, json=body) as answer:
        assert answer.status == 400
        assert problem in (await answer.json())["error"]


async def test_a_prompt_that_no_reward_model_should_see_is_refused() -> None:
    class WithPool(ScriptedReward):
        class _Pool:
            class endpoint:  # noqa: N801 - stands in for an attribute
                model_type = "Discriminative"

        pools = {"rl/skywork": _Pool()}

    @asynccontextmanager
    async def opening() -> AsyncIterator[Any]:
        yield WithPool()

    body = SAMPLE | {"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"}
    async with answering(opening()) as client, client.post("/slime", json=body) as answer:
        assert (answer.status, "policy's tokenizer" in await answer.text()) == (422, True)
    async with answering(scripted()) as client, client.post("/slime", json=body) as answer:
        assert answer.status == 200  # nothing reads it


@pytest.mark.parametrize("end", ["<|im_end|>", "<end_of_turn><pad><pad>", "</s>[PAD]"])
async def test_an_end_of_the_policys_is_refused_where_its_tokenizer_is_not_named(end: str) -> None:
    rows = {"query": ["2+2=4" + end], "prompts": ["2+2="], "labels": ["4"]}
    async with answering(by_rule()) as client:
        for path, body in (("/get_reward", rows), ("/slime", SAMPLE | {"response": "4" + end})):
            async with client.post(path, json=body) as answer:
                assert (answer.status, "name the policy's tokenizer" in await answer.text()) == (422, True)


async def test_markup_that_is_spelt_like_an_end_is_kept() -> None:
    rows = {"query": ["Strike it.<s>42</s>"], "prompts": ["Strike it."], "labels": ["<s>42</s>"]}
    async with answering(by_rule()) as client, client.post("/get_reward", json=rows) as answer:
        assert (await answer.json())["rewards"] == [1.0]


def test_the_prompts_text_shows_whether_it_opens_thoughts() -> None:
    prompt = "2+2=<think>\n"
    query = Query(query=[f"{prompt}so\n</think>4"], prompts=[prompt], labels=["4"])
    [episode] = query.episodes(PolicyText(), strict=False)
    assert episode.without_reasoning().response == "4"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic !!"}, 401),
        ({"Authorization": f"Digest {KEY}"}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"Authorization": f"Basic {b64encode(f'any:{KEY}'.encode()).decode()}"}, 200),
    ],
)
async def test_the_key_comes_as_a_token_or_in_the_url(headers: dict[str, str], status: int) -> None:
    async with answering(scripted(), key=KEY) as client, client.post("/slime", json=SAMPLE, headers=headers) as answer:
        assert answer.status == status


async def test_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(scripted()) as client:
        async with client.post("/slime", json=SAMPLE | {"response": "x" * 17 * 2**20}) as answer:
            assert answer.status == 413
        monkeypatch.setattr(server, "MAX_REQUESTS", 0)
        async with client.post("/slime", json=SAMPLE) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


async def test_health_and_metrics_need_no_key() -> None:
    async with answering(scripted(), key=KEY) as client:
        async with client.get("/health") as answer:
            assert answer.status == 200
        for path in ("/slime", "/nowhere"):
            async with client.post(path, json=SAMPLE, headers={"Authorization": f"Bearer {KEY}"}):
                pass
        async with client.get("/metrics") as answer:
            figures = await answer.text()
    assert 'rewardpool_gateway_requests_total{code="200",protocol="slime"} 1.0' in figures
    assert 'rewardpool_gateway_requests_total{code="404",protocol="unknown"} 1.0' in figures
    assert 'rewardpool_gateway_rewards_total{protocol="slime"} 1.0' in figures


async def test_a_reward_that_needs_groups_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="needs whole groups"):
        async with answering(open_reward({"function": right, "normalize": "group"})):
            pass


async def test_a_reward_that_goes_by_the_steps_of_a_job_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="normalize running"):
        async with answering(open_reward({"function": right, "normalize": "running"})):
            pass


def test_an_address_is_a_host_and_a_port() -> None:
    assert [parse_listen(text) for text in ("127.0.0.1:0", "[::1]:5000")] == [("127.0.0.1", 0), ("::1", 5000)]
    for wrong in ("5000", ":5000", "host:", "host:http", "host:70000"):
        with pytest.raises(ConfigError, match=r"--listen: must be HOST:PORT"):
            parse_listen(wrong)


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Host": "a:b:c"}, {"Sec-Fetch-Site": "cross-site"}])
async def test_another_page_of_the_browser_is_refused(headers: dict[str, str]) -> None:
    async with answering(by_rule()) as client, client.post("/slime", json=SAMPLE, headers=headers) as answer:
        assert answer.status == 403


@pytest.mark.parametrize("given", ["Bearer \udcff", "Basic \udcff", "Basic AA", "Basic ====", "Bearer"])
async def test_a_key_of_odd_bytes_is_wrong_and_no_fault_of_the_gateway(given: str) -> None:
    async with answering(by_rule(), key=KEY) as client:
        request = b"POST /slime HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nAuthorization: " + os.fsencode(given)
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(request + b"\r\nConnection: close\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()


def test_a_key_is_needed_where_others_reach_it_and_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    assert [key_for(host, None) for host in ("127.0.0.1", "::1", "localhost")] == [None] * 3
    for reachable in ("0.0.0.0", "gateway.example"):
        with pytest.raises(ConfigError, match="--key-file: is needed"):
            key_for(reachable, None)
    file = tmp_path / "key"
    made = key_for("0.0.0.0", file)
    assert (made, stat.S_IMODE(file.stat().st_mode)) == (key_for("127.0.0.1", file), 0o600)
    assert made is not None
    assert len(made) == 43
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        key_for("0.0.0.0", file)
