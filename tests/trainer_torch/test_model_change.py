"""Another model under an open reward: whose tokens a conversation is written in, and what its score is taken for."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.byte_tokenizer import TEMPLATE, byte_tokenizer
from support.fake_worker import FakeWorker
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool._rewards import Episode, open_reward
from rewardpool._rewards.chat import writers
from rewardpool._rewards.chat.chat_template import tokenizer_digest
from rewardpool._rewards.opened import OpenReward
from rewardpool.errors import ConfigError, ModelChangedError
from rewardpool_worker.engine_side.middleware import checkpoint

TEMPLATE_B = TEMPLATE.replace("<|{{", "<|end|><|{{")
EPISODE = Episode(prompt="2 + 2?", response="4", id="e1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    on_this_machine(monkeypatch, tmp_path / "state")
    monkeypatch.setattr(writers, "RELOAD_SECONDS", 1.0)
    monkeypatch.setattr(writers, "LOOK_AGAIN_SECONDS", 0.05)
    for name, template in {"a": TEMPLATE, "b": TEMPLATE_B}.items():
        byte_tokenizer(template=template).save_pretrained(tmp_path / name)
    return tmp_path


def digest(folder: Path, name: str) -> str:
    found = tokenizer_digest(str(folder / name), revision=None)
    assert found is not None
    return found


def serve(folder: Path, worker: FakeWorker, name: str) -> None:
    """Have the worker serve the model of that name, and the pool's object say so."""
    worker.revision, worker.tokenizer = f"revision-{name}", digest(folder, name)
    announce(folder, worker, name)


def announce(folder: Path, worker: FakeWorker, name: str) -> None:
    source = f"file://{folder / name}"
    one = {"revision": f"revision-{name}", "source": source, "servedName": "skywork", "tokenizer": digest(folder, name)}
    write_local_pool(folder / "state", url=worker.url, source=source, revisions=[one])


@asynccontextmanager
async def opened(folder: Path, **given: Any) -> AsyncIterator[tuple[FakeWorker, OpenReward]]:
    """A reward of a pool that serves model a."""
    async with FakeWorker() as worker:
        serve(folder, worker, "a")
        async with open_reward(POOL, **given) as reward:
            yield worker, reward


def written(folder: Path, name: str, request: dict[str, Any]) -> str:
    return str(byte_tokenizer(template="").decode(request["input"]))


TEXT_A = "<|user|>2 + 2?<|end|><|assistant|>4<|end|>"
TEXT_B = "<|end|><|user|>2 + 2?<|end|><|end|><|assistant|>4<|end|>"


def test_a_worker_computes_the_same_digest_as_a_trainer(folder: Path) -> None:
    assert checkpoint.tokenizer_digest(str(folder / "a")) == digest(folder, "a") != digest(folder, "b")
    assert checkpoint.tokenizer_digest(str(folder / "nowhere")) is None


async def test_another_model_is_sent_conversations_in_its_own_tokens(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(folder) as (worker, reward):
        first = await reward.rate(EPISODE)
        serve(folder, worker, "b")
        with caplog.at_level(logging.WARNING, "rewardpool"):
            second = await reward.rate(EPISODE)
        report = reward.pools[POOL].report()
    assert [written(folder, "b", request) for request in worker.requests] == [TEXT_A, TEXT_A, TEXT_B]
    assert (first.total, second.total) == (
        float(len(worker.requests[0]["input"])),
        float(len(worker.requests[2]["input"])),
    )
    assert (first.revisions, second.revisions) == ({POOL: ("revision-a",)}, {POOL: ("revision-b",)})
    assert (report.samples, report.scored, report.unscored) == (2, 2, 0)
    assert "revision-b answers, whose model has another tokenizer" in caplog.text


async def test_while_two_revisions_serve_each_is_sent_its_own_tokens(folder: Path) -> None:
    async with opened(folder) as (worker, reward):
        totals = {}
        for name in ("a", "b", "a", "b", "a"):
            serve(folder, worker, name)
            rating = await reward.rate(EPISODE)
            totals.setdefault(name, set()).add((rating.total, rating.revisions[POOL][0]))
    ends = {name: len(byte_tokenizer(template="")(text)["input_ids"]) for name, text in (("a", TEXT_A), ("b", TEXT_B))}
    assert totals == {name: {(float(ends[name]), f"revision-{name}")} for name in ("a", "b")}


async def test_a_status_that_comes_later_than_the_workers_is_waited_for(folder: Path) -> None:
    async with opened(folder) as (worker, reward):
        worker.revision, worker.tokenizer = "revision-b", digest(folder, "b")
        rating = asyncio.create_task(reward.rate(EPISODE))
        await worker.arrived.wait()
        announce(folder, worker, "b")
        assert (await rating).revisions == {POOL: ("revision-b",)}


async def test_files_that_are_not_those_of_the_workers_raise_and_say_what_changed(folder: Path) -> None:
    async with opened(folder) as (worker, reward):
        serve(folder, worker, "b")
        worker.tokenizer = "0123456789abcdef"
        with pytest.raises(ModelChangedError, match=r"revision-b has the tokenizer 0123456789abcdef.*/b has here"):
            await reward.rate(EPISODE)


async def test_a_tokenizer_that_was_given_is_not_used_for_another_model(folder: Path) -> None:
    async with opened(folder, tokenizer=byte_tokenizer(template=TEMPLATE)) as (worker, reward):
        assert (await reward.rate(EPISODE)).total == float(len(worker.requests[0]["input"]))
        serve(folder, worker, "b")
        with pytest.raises(ModelChangedError, match="was given as an object"):
            await reward.rate(EPISODE)


async def test_a_folder_with_other_files_than_the_workers_have_is_not_opened(folder: Path) -> None:
    async with FakeWorker() as worker:
        serve(folder, worker, "a")
        byte_tokenizer(template=TEMPLATE_B).save_pretrained(folder / "a")
        with pytest.raises(ConfigError, match=r"reward\.tokenizer: the tokenizer of file:.* at the workers"):
            async with open_reward(POOL):
                pass
