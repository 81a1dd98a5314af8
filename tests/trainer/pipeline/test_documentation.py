"""The example of docs/pipelines.md is run."""

import re
from pathlib import Path
from typing import Any

from rewardpool_train import GroupTask, Pipeline, RolledGroup
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan

PAGE = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()


def examples() -> dict[str, Any]:
    """Everything that the page's code defines."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/pipelines.md", "exec"), names)
    return names


async def test_the_documented_loop_trains_on_every_group_one_step_behind() -> None:
    async def score(text: str) -> float:
        return float(len(text))

    assert await examples()["train"](score, ["a", "b"]) == ["aaaa", "bbbb", "aaaa", "bbbb", "aaaaaa", "bbbbbb"]


async def test_the_documented_judge_of_groups_prefers_the_shortest() -> None:
    task = GroupTask(index=0, prompt="?", size=3, version=0)
    group = RolledGroup(task=task, rollouts=["ccc", "a", "bb"])
    assert await examples()["score"].judge(group) == [0.0, 1.0, 0.5]


def test_the_documented_checkpoint_is_one() -> None:
    pipeline: Pipeline[str, str] = Pipeline(
        plan=Plan(steps=1, groups_per_step=1, groups_per_minibatch=1, group_size=1),
        prompts=str,
        rollouts=None,  # type: ignore[arg-type]
        score=None,  # type: ignore[arg-type]
        learner=None,  # type: ignore[arg-type]
    )
    names = examples()
    assert names["resumed"](names["saved"](pipeline)) == pipeline.state()


def test_every_schedule_is_in_the_table() -> None:
    assert set(re.findall(r"^\| `(\w+)`(?: \(default\))? \| R", PAGE, re.MULTILINE)) == set(SCHEDULES)
