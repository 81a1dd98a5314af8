"""Real reward models behind the adapters: a DisRM and a judge on vLLM, behind a router each, and a mixture of both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import trl
from support import tiny_policy
from support.fleet import Fleet
from support.processes import http
from support.vllm_server import VllmServer, quickstart_pool
from transformers import AutoTokenizer

import rewardpool.trl
from rewardpool import slime
from rewardpool.openrlhf import reward_function

# The adapters are tested on pools of functions, and the client's tests score and judge by the same two models.
pytestmark = [pytest.mark.real, pytest.mark.long]

ANSWERS = ["4", "44", "1234567", "9"]


@dataclass
class Models:
    """Two real engines."""

    reward_model: VllmServer
    judge: VllmServer
    tokenizer: str
    """The reward model's, a folder."""

    def direct(self, prompt: str, response: str) -> float:
        """The reward model's own raw logit, without router, client or adapter."""
        turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        text = AutoTokenizer.from_pretrained(self.tokenizer).apply_chat_template(turns, tokenize=False)
        request = {"model": self.reward_model.served_name, "input": text}
        answer = http("POST", self.reward_model.url + "/v1/embeddings", request, key=self.reward_model.key)[2]
        return float(answer["data"][0]["embedding"][-1])


@pytest.fixture
def models(vllm_server: VllmServer, judge_server: VllmServer) -> Models:
    source = quickstart_pool().spec.model.source
    return Models(vllm_server, judge_server, source.removeprefix("file://"))


@asynccontextmanager
async def mixture(models: Models, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """A reward of both, each through a router of its own."""

    def behind(server: VllmServer, name: str) -> Fleet:
        (folder / name).mkdir()
        return Fleet(folder / name, workers=0, others=[server.url], key=server.key)

    def part(server: VllmServer, fleet: Fleet, **further: Any) -> dict[str, Any]:
        place = {"url": fleet.router.url, "key_file": str(fleet.key_file), "served_name": server.served_name}
        return {**place, **further}

    async with behind(models.reward_model, "dis") as dis, behind(models.judge, "gen") as gen:
        judge = {"output": "choice", "labels": {"right": 1, "wrong": 0}, "temperature": 0.0}
        yield {
            "rewards": [
                part(models.reward_model, dis, type="Discriminative", name="disrm", tokenizer=models.tokenizer),
                part(
                    models.judge,
                    gen,
                    type="Generative",
                    name="judge",
                    judge={"prompt": "Is it right? {response}", **judge},
                ),
            ]
        }


def check(totals: list[float], parts: dict[str, list[float]], direct: list[float]) -> None:
    """The reward model's scores are the direct ones, the judge's are of its labels, and the totals their sums."""
    assert parts["disrm"] == pytest.approx(direct, abs=1e-4)
    assert set(parts["judge"]) <= {0.0, 1.0}
    assert totals == pytest.approx([dis + gen for dis, gen in zip(parts["disrm"], parts["judge"], strict=True)])


async def test_trl_trains_on_both(models: Models, tmp_path: Path) -> None:
    rows: list[tuple[float, float, float]] = []

    def trained(reward: rewardpool.trl.AsyncTrlReward) -> None:
        async def compared(prompts: Any, completions: Any, **further: Any) -> list[float | None]:
            parts: dict[str, list[float]] = {}
            further["log_extra"] = lambda name, column: parts.update({name.rpartition("/")[2]: column})
            totals = await reward(prompts, completions, **further)
            texts = [
                (prompt[0]["content"], turns[0]["content"]) for prompt, turns in zip(prompts, completions, strict=True)
            ]
            check(totals, parts, [models.direct(*text) for text in texts])
            rows.extend(zip(totals, parts["disrm"], parts["judge"], strict=True))
            return totals

        digits = [[{"role": "user", "content": digit}] for digit in "12345678"]
        trl.GRPOTrainer(
            model=tiny_policy.make_policy(seed=0),
            reward_funcs=[compared],
            args=trl.GRPOConfig(
                output_dir=str(tmp_path / "out"),
                max_steps=2,
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=8,
                report_to=[],
                save_strategy="no",
                use_cpu=True,
                bf16=False,
            ),
            train_dataset=datasets.Dataset.from_dict({"prompt": digits}),
            processing_class=tiny_policy.make_tokenizer(),
        ).train()

    async with mixture(models, tmp_path) as spec:
        reward = rewardpool.trl.reward(spec)
        await asyncio.to_thread(trained, reward)
        reward.close()
    assert len(rows) == 16


async def test_slime_is_answered_by_both(models: Models, tmp_path: Path) -> None:
    policy = str(Path(models.tokenizer).with_name("policy"))
    async with mixture(models, tmp_path) as spec:
        args = SimpleNamespace(reward=spec, reward_key="total", hf_checkpoint=policy, apply_chat_template=False)
        known = {"prompt": "2+2?", "response_length": 1, "label": None, "metadata": {}, "status": None}
        samples = [
            SimpleNamespace(**known, response=answer, index=index, group_index=0)
            for index, answer in enumerate(ANSWERS)
        ]
        answers: Any = await slime.custom_rm(args, samples)
        slime.close()
    parts = {part: [answer[part] for answer in answers] for part in ("disrm", "judge")}
    check([answer["total"] for answer in answers], parts, [models.direct("2+2?", answer) for answer in ANSWERS])


async def test_openrlhf_is_answered_by_both(models: Models, tmp_path: Path) -> None:
    async with mixture(models, tmp_path) as spec:
        ask = reward_function(spec)
        queries = ["2+2?" + answer for answer in ANSWERS]
        said = await asyncio.to_thread(ask, queries, ["2+2?"] * len(ANSWERS), [None] * len(ANSWERS))
    parts = {part: column.tolist() for part, column in said["extra_logs"].items()}
    check(said["rewards"].tolist(), parts, [models.direct("2+2?", answer) for answer in ANSWERS])
