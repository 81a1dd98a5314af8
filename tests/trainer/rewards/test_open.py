"""From a config to a reward that rates: pools of every type, found and asked as the config says."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.fake_worker import Behaviour, FakeWorker
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool._rewards import BlockingReward, Episode, open_reward
from rewardpool._rewards.discriminative import PROBES
from rewardpool.errors import ConfigError, PoolNotFoundError

EPISODE = Episode(prompt="What is 2 + 2?", response="4", ground_truth="4", id="e1")


class WordTokenizer:
    """Stands in for a tokenizer where a test is not about tokens: a token is a character."""

    chat_template = "any"
    bos_token_id = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) for character in text]}

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> str:
        return "".join(turn["content"] for turn in turns)


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as running:
        yield running


def writes(text: str) -> Behaviour:
    """A chat completion."""

    async def behaviour(_: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": text}}]})

    return behaviour


async def test_a_discriminative_pool_is_sent_the_conversation_as_token_ids(worker: FakeWorker) -> None:
    spec = {"url": worker.url, "type": "Discriminative"}
    async with open_reward(spec, tokenizer=WordTokenizer()) as reward:
        rating = await reward.rate(EPISODE)
    assert worker.requests[0]["input"] == [ord(character) for character in "What is 2 + 2?4"]
    assert (rating.total, rating.components) == (15.0, {"pool": 15.0})
    assert (reward.names, reward.needs_group) == (("pool",), False)


def counting(tokens: int | None, asked: list[Any]) -> Behaviour:
    """Scores everything 1, and says how many tokens a list of texts has."""

    async def behaviour(request: web.Request) -> web.Response:
        given = (await request.json())["input"]
        asked.append(given)
        rows = given if isinstance(given[0], str) else [given]
        data = [{"index": index, "embedding": [1.0]} for index in range(len(rows))]
        return web.json_response({"data": data, "usage": {} if tokens is None else {"prompt_tokens": tokens}})

    return behaviour


OURS = sum(map(len, PROBES))
"""Tokens of the probes, a character each."""


@pytest.mark.parametrize("tokens", [OURS, None])
async def test_a_tokenizer_that_counts_as_the_pools_model_does_is_asked_about_once(tokens: int | None) -> None:
    asked: list[Any] = []
    async with FakeWorker(*[counting(tokens, asked)] * 6) as worker:
        spec = {"url": worker.url, "type": "Discriminative"}
        async with open_reward(spec, tokenizer=WordTokenizer()) as reward:
            ratings = await asyncio.gather(*(reward.rate(EPISODE) for _ in range(5)))
    assert [rating.total for rating in ratings] == [1.0] * 5
    assert asked.count(list(PROBES)) == 1
    assert len(asked) == 6


async def test_a_tokenizer_of_another_model_gives_no_score_under_any_policy() -> None:
    async with FakeWorker(*[counting(OURS - 1, [])] * 3) as worker:
        spec = {"url": worker.url, "type": "Discriminative", "on_failure": "skip"}
        async with open_reward(spec, tokenizer=WordTokenizer()) as reward:
            for _ in range(2):
                with pytest.raises(ConfigError, match=r"reward\.tokenizer: .* it is another model's"):
                    await reward.rate(EPISODE)


PICTURE = Episode(
    prompt=[
        {"role": "user", "content": [{"type": "image", "image": "cat.png"}, {"type": "text", "text": "What is it?"}]}
    ],
    response="4",
    ground_truth="4",
    id="e2",
)


async def test_a_picture_is_refused_under_every_policy_where_a_model_would_see_none(
    worker: FakeWorker,
) -> None:
    spec = {"url": worker.url, "type": "Discriminative", "on_failure": "skip"}
    async with open_reward(spec, tokenizer=WordTokenizer()) as reward:
        with pytest.raises(ConfigError, match="sample e2 has content of type image"):
            await reward.rate(PICTURE)
    assert worker.requests == []


async def test_a_function_scores_an_episode_with_a_picture(worker: FakeWorker) -> None:
    async with open_reward({"url": worker.url, "type": "Function"}) as reward:
        assert (await reward.rate(PICTURE)).total is not None


async def test_a_function_pool_is_sent_the_arguments_of_the_function(worker: FakeWorker) -> None:
    async with open_reward({"url": worker.url, "type": "Function"}) as reward:
        await reward.rate(EPISODE)
    arguments = json.loads(worker.requests[0]["input"])
    assert arguments == {"data_source": "", "solution_str": "4", "ground_truth": "4", "extra_info": {}}


async def test_a_generative_pool_is_asked_as_a_judge() -> None:
    judge = {"max_tokens": 99}
    async with (
        FakeWorker(writes('{"reasoning": "right", "score": 9}')) as worker,
        open_reward({"url": worker.url, "type": "Generative", "judge": judge}) as reward,
    ):
        rating = await reward.rate(EPISODE)
    assert rating.total == 9.0
    assert worker.requests[0]["max_tokens"] == 99
    assert worker.requests[0]["response_format"]["type"] == "json_schema"


async def test_a_teacher_is_no_reward(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_this_machine(monkeypatch, tmp_path)
    write_local_pool(tmp_path, model_type="Teacher")
    with pytest.raises(ConfigError, match="rl/skywork is a Teacher, which gives log-probabilities and no reward"):
        async with open_reward("rl/skywork"):
            pass


async def test_parts_that_name_one_pool_share_its_connection(worker: FakeWorker) -> None:
    pool = {"url": worker.url, "type": "Function"}
    spec = {"rewards": [{**pool, "name": "one"}, {**pool, "name": "other", "weight": -1}]}
    async with open_reward(spec) as reward:
        rating = await reward.rate(EPISODE)
        assert list(reward.pools) == [worker.url]
        assert reward.pools[worker.url].report().scored == 2
    assert rating.total == 0.0


async def test_two_rewards_share_what_is_open_of_a_pool_and_count_for_themselves(worker: FakeWorker) -> None:
    spec = {"url": worker.url, "type": "Function", "concurrency": 2}
    async with open_reward(spec) as one, open_reward(spec) as other:
        await asyncio.gather(*(reward.rate(EPISODE) for reward in (one, other, other) for _ in range(4)))
        ours, theirs = one.pools[worker.url], other.pools[worker.url]
        assert ours.endpoint is theirs.endpoint
        assert (ours.report().scored, theirs.report().scored) == (4, 8)
    assert worker.most_in_flight <= 2


async def test_one_pool_with_two_kinds_of_settings_is_a_mistake(worker: FakeWorker) -> None:
    pool = {"url": worker.url, "type": "Function"}
    spec = {"rewards": [{**pool, "name": "one"}, {**pool, "name": "other", "max_attempts": 2}]}
    with pytest.raises(ConfigError) as caught:
        async with open_reward(spec):
            pass
    assert caught.value.field == "reward.rewards[1]"


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({}, "reward.type", "of a bare URL"),
        ({"type": "Discriminative"}, "reward.tokenizer", "only a URL is known"),
        ({"type": "Discriminative", "tokenizer": "/nowhere"}, "reward.tokenizer", ""),
        ({"type": "Discriminative", "judge": {}}, "reward.judge", "for a Generative pool"),
        ({"type": "Generative", "tokenizer": "x"}, "reward.tokenizer", "for a Discriminative pool"),
        ({"type": "Function", "post_process": "support.nowhere:f"}, "reward.post_process", "cannot load"),
    ],
)
async def test_what_would_fail_at_the_first_episode_fails_when_it_is_opened(
    worker: FakeWorker, fields: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with open_reward({"url": worker.url, **fields}):
            pass
    assert caught.value.field == field
    assert said in caught.value.problem


async def test_a_given_chat_template_has_to_be_there(worker: FakeWorker, tmp_path: Path) -> None:
    spec = {"url": worker.url, "type": "Discriminative", "chat_template": str(tmp_path / "none.jinja")}
    with pytest.raises(ConfigError, match=r"reward\.chat_template: .*none\.jinja cannot be read"):
        async with open_reward(spec, tokenizer=WordTokenizer()):
            pass


async def test_a_tokenizer_without_a_chat_template_is_a_mistake(worker: FakeWorker) -> None:
    tokenizer = WordTokenizer()
    tokenizer.chat_template = ""
    with pytest.raises(ConfigError, match="no chat template"):
        async with open_reward({"url": worker.url, "type": "Discriminative"}, tokenizer=tokenizer):
            pass


async def test_a_pool_that_is_not_there_is_said_when_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    with pytest.raises(PoolNotFoundError, match=POOL):
        async with open_reward(POOL):
            pass


async def test_a_model_whose_tokenizer_a_trainer_cannot_reach_needs_one_in_the_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    write_local_pool(tmp_path, source="s3://models/skywork")
    with pytest.raises(ConfigError, match=r"reward\.tokenizer: set it: .* s3://models/skywork"):
        async with open_reward(POOL):
            pass


async def test_without_transformers_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    write_local_pool(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install transformers jinja2"):
        async with open_reward(POOL):
            pass


async def test_settings_given_beside_the_config_win(worker: FakeWorker) -> None:
    async with open_reward({"url": worker.url, "type": "Function", "name": "a"}, name="b") as reward:
        assert reward.names == ("b",)


async def test_a_reward_for_code_that_is_not_async_rates_the_same(worker: FakeWorker) -> None:
    def rate() -> list[float | None]:
        with BlockingReward({"url": worker.url, "type": "Discriminative"}, tokenizer=WordTokenizer()) as reward:
            futures = [reward.submit(EPISODE), reward.submit(EPISODE)]
            group = reward.rate_group([EPISODE, EPISODE])
            return [
                reward.rate(EPISODE).total,
                *(rating.total for rating in group),
                *(f.result().total for f in futures),
            ]

    assert await asyncio.to_thread(rate) == [15.0] * 5


def test_a_reward_that_cannot_be_opened_says_so_on_the_spot() -> None:
    with pytest.raises(ConfigError, match=r"reward\.colour"):
        BlockingReward({"pool": POOL, "colour": 1})


async def test_thoughts_are_left_out_by_the_declared_tags_and_what_is_not_declared_is_refused() -> None:
    episode = replace(EPISODE, response="so\n</think>\n4")
    for strip, scored in ((True, False), ({"prompt_opens": True}, True), ({"tags": ["so", "</think>"]}, True)):
        async with (
            FakeWorker() as worker,
            open_reward(
                {"url": worker.url, "type": "Function", "strip_reasoning": strip, "on_failure": "skip"}
            ) as reward,
        ):
            rating = await reward.rate(episode)
            assert (rating.total is not None) == scored
            assert [json.loads(request["input"])["solution_str"] for request in worker.requests] == ["4"] * scored
            assert scored or "declare strip_reasoning" in str(rating.error)
