"""The examples of docs/trainer.md are run, and its errors are compared with the code."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_worker import FakeWorker
from support.local_pool import on_this_machine, write_local_pool

from rewardpool import Sample, errors
from rewardpool_api.contract import FAULTS

README = (Path(__file__).parents[2] / "README.md").read_text()
PAGE = (Path(__file__).parents[2] / "docs" / "trainer.md").read_text()


def example(function: str) -> Any:
    """The function of that name in the page."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/trainer.md", "exec"), names)
    return names[function]


@pytest.fixture
async def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeWorker]:
    """The pool of the pages, which scores functions' arguments by their length."""
    async with FakeWorker() as worker:
        write_local_pool(tmp_path, url=worker.url, model_type="Function")
        on_this_machine(monkeypatch, tmp_path)
        yield worker


async def test_the_first_example_of_the_readme_scores_each_response(
    pool: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, compile(code, "README.md", "exec"), names)
    await asyncio.to_thread(names["reward"].close)
    assert len(names["scores"]) == len(pool.requests) == 2


async def test_the_documented_calls_score_prompts_and_responses(pool: FakeWorker) -> None:
    short, long = await asyncio.to_thread(example("scored"), ["?", "?"], ["a", "bb"], ["a", "b"])
    assert long == short + 1
    streamed = await example("scored_as_they_end")([("?", "bb"), ("?", "a")])
    assert streamed[0] == streamed[1] + 1


async def test_the_documented_loop_trains_on_every_group_once() -> None:
    updates: dict[str, list[float]] = {}

    async def rollouts() -> AsyncIterator[tuple[str, list[int]]]:
        for length in range(1, 17):
            yield f"prompt {length % 2}", [7] * length

    async with FakeWorker() as worker:
        train_on_groups = example("train_on_groups")
        report = await train_on_groups({"reward": {"url": worker.url}}, rollouts(), updates.__setitem__)

    assert {prompt: sorted(scores) for prompt, scores in updates.items()} == {
        "prompt 0": [float(length) for length in range(2, 17, 2)],
        "prompt 1": [float(length) for length in range(1, 17, 2)],
    }
    assert report.scored == 16


async def test_the_documented_loop_that_announces_trains_on_every_step() -> None:
    updates: list[list[float]] = []

    def rollout() -> list[Sample]:
        return [Sample(text="x"), Sample(text="xx")]

    async with FakeWorker() as worker:
        config = {"reward": {"url": worker.url}}
        report = await asyncio.to_thread(example("train"), config, rollout, updates.append, 3)

    assert updates == [[1.0, 2.0]] * 3
    assert (report.scored, report.demand.announced) == (6, False)


def test_every_error_is_in_a_table() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    bases = {"RewardPoolError", "PoolError", "SampleError"}
    kinds = {name for name in vars(errors) if name.endswith("Error")} - bases
    assert rows - {"raise", "skip", *FAULTS} == kinds
