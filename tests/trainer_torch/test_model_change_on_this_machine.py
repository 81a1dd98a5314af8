"""Model a to model b under an open reward, on a real pool of this machine: real workers, router, rollout and status."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support.byte_tokenizer import ROLES, TEMPLATE, byte_tokenizer
from support.fleet import eventually
from support.local_machine import LocalMachine, local_machine
from support.local_pool import on_this_machine

from rewardpool._rewards import Episode, Rating, open_reward
from rewardpool._rewards.chat.chat_template import ChatTokenizer
from rewardpool._rewards.opened import OpenReward

pytestmark = pytest.mark.real

EPISODES = [Episode(prompt=f"2 + {n}?", response=str(n + 2) * (1 + n % 5), id=f"e{n}") for n in range(20)]
TOKENIZERS: dict[str, dict[str, Any]] = {
    "a": {"template": TEMPLATE},
    # Another order of its control tokens, and another template: the same words in other tokens.
    "b": {"template": TEMPLATE.replace("<|{{", "<|end|><|{{"), "controls": [*reversed(ROLES), "<|tool|>"]},
}
Truth = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny reward models whose tokenizers differ."""
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, given) in enumerate(TOKENIZERS.items()):
        words = byte_tokenizer(**given)
        words.save_pretrained(folder / name)
        write_weights(folder / name, words, seed=seed)
    return folder


def write_weights(folder: Path, words: Any, *, seed: int) -> None:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        num_labels=1,
        initializer_range=0.2,
        pad_token_id=words.pad_token_id,
    )
    transformers.LlamaForSequenceClassification(config).save_pretrained(folder)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalMachine]:
    on_this_machine(monkeypatch, tmp_path / "state")
    with local_machine(tmp_path) as machine:
        yield machine


async def truth_of(models: Path, model: str, *, written_by: str) -> dict[str, float]:
    """What a model says of each episode in the tokens of one of the tokenizers, by transformers itself."""
    loaded = transformers.LlamaForSequenceClassification.from_pretrained(models / model).eval()
    chat = ChatTokenizer(byte_tokenizer(**TOKENIZERS[written_by]))
    found = {}
    for episode in EPISODES:
        ids = await chat.token_ids(episode.messages())
        with torch.no_grad():
            found[episode.label] = float(loaded(input_ids=torch.tensor([ids])).logits[0, 0])
    chat.close()
    return found


def spec(models: Path, model: str) -> dict[str, Any]:
    return {
        "model": {"source": f"file://{models / model}"},
        "engine": {"name": "transformers", "dtype": "float32"},
        "replicas": 1,
    }


async def keep_rating(reward: OpenReward, ratings: list[tuple[str, Rating]], *, stop: asyncio.Event) -> None:
    """Rate all episodes at a time, over and over."""
    while not stop.is_set():
        found = await asyncio.gather(*(reward.rate(episode) for episode in EPISODES))
        ratings += zip((episode.label for episode in EPISODES), found, strict=True)
        await asyncio.sleep(0.02)


async def test_no_score_is_one_by_the_wrong_tokenizer(models: Path, here: LocalMachine) -> None:
    truth: Truth = {name: await truth_of(models, name, written_by=name) for name in TOKENIZERS}
    wrong = await truth_of(models, "b", written_by="a")
    assert all(abs(wrong[label] - score) > 0.01 for label, score in truth["b"].items()), "the test could not fail"
    await here.up(**spec(models, "a"))
    first = here.pool().status.current_revision
    ratings: list[tuple[str, Rating]] = []
    stop = asyncio.Event()
    async with open_reward(here.pool_key, timeout=120, on_failure="raise") as reward:
        rating = asyncio.create_task(keep_rating(reward, ratings, stop=stop))
        await here.up(**spec(models, "b"))
        second = here.pool().status.current_revision
        await here.serves(1)
        scored_before = len(ratings)

        async def has_gone_on() -> bool:
            return len(ratings) >= scored_before + 5 * len(EPISODES) or rating.done()

        await eventually(has_gone_on, what="the new model scored", seconds=60)
        stop.set()
        await rating
    model_of = {first: "a", second: "b"}
    by = [(label, one, model_of[one.revisions[here.pool_key][0]]) for label, one in ratings]
    strays = [
        (label, model, one.total)
        for label, one, model in by
        if one.total != pytest.approx(truth[model][label], abs=1e-3)
    ]
    print(
        f"{len(by)} scores, {[model for *_, model in by].count('b')} of model b, {len(strays)} by the wrong tokenizer"
    )
    assert strays == []
    assert {model for *_, model in by} == {"a", "b"}
    assert [model for *_, model in by[-len(EPISODES) :]] == ["b"] * len(EPISODES)


@pytest.mark.long  # what decides it is tested on snapshots
async def test_a_replica_that_loaded_other_weights_is_kept_from_the_router(tmp_path: Path, here: LocalMachine) -> None:
    words, model = byte_tokenizer(**TOKENIZERS["a"]), tmp_path / "a"
    words.save_pretrained(model)
    write_weights(model, words, seed=0)
    truth = await truth_of(tmp_path, "a", written_by="a")
    await here.up(**spec(tmp_path, "a"))
    await here.serves(1)
    write_weights(model, words, seed=7)  # somebody overwrites the files that the second replica then loads
    code, said = await here.run("scale", here.pool_key, "2", "--no-wait")
    assert code == 0, said

    async def is_found_out() -> bool:
        degraded = here.pool().status.condition("Degraded")
        return degraded is not None and degraded.reason == "ReplicasDisagree"

    await eventually(is_found_out, what="the second replica is found to differ", seconds=60)
    async with open_reward(here.pool_key, timeout=60, on_failure="raise") as reward:
        ratings = await asyncio.gather(*(reward.rate(episode) for episode in EPISODES))
    for episode, rating in zip(EPISODES, ratings, strict=True):
        assert rating.total == pytest.approx(truth[episode.label], abs=1e-3)
