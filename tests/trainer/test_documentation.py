"""The example of docs/trainer.md is run, and its tables are compared with the code."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from support.fake_worker import FakeWorker

from rewardpool import RewardConfig, errors

PAGE = (Path(__file__).parents[2] / "docs" / "trainer.md").read_text()


async def test_the_documented_loop_trains_on_every_group_once() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/trainer.md", "exec"), names)
    updates: dict[str, list[float]] = {}

    async def rollouts() -> AsyncIterator[tuple[str, str]]:
        for length in range(16):
            yield f"prompt {length % 2}", "x" * length

    async with FakeWorker() as worker:
        report = await names["train_on_groups"]({"reward": {"url": worker.url}}, rollouts(), updates.__setitem__)

    assert {prompt: sorted(scores) for prompt, scores in updates.items()} == {
        "prompt 0": [float(length) for length in range(0, 16, 2)],
        "prompt 1": [float(length) for length in range(1, 16, 2)],
    }
    assert report.scored == 16


def test_every_setting_and_every_error_is_in_a_table() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    places = {"reward_pool", "url", "key_file"}  # explained in the text
    bases = {"RewardPoolError", "PoolError", "SampleError"}
    settings = set(RewardConfig.model_fields) - places
    kinds = {name for name in vars(errors) if name.endswith("Error")} - bases
    assert rows - {"raise", "skip"} == settings | kinds
