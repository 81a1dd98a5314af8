"""The configs of docs/training.md are what the trainer and the command line take."""

import re
from pathlib import Path
from typing import Any

import yaml

from rewardpool._rewards.config import parse_reward
from rewardpool._rewards.part_config import PoolPart
from rewardpool_api.pool import RewardPool
from rewardpool_train.config import TrainConfig

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
POOL, JOB, MIXTURE, RANKING = (yaml.safe_load(config) for config in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))


def job(**changes: Any) -> TrainConfig:
    """The documented job but for the changes."""
    return TrainConfig.model_validate(JOB | changes)


def test_the_documented_pool_is_the_one_that_the_job_asks() -> None:
    pool = RewardPool.model_validate(POOL)
    assert JOB["reward"]["pool"] == f"{pool.metadata.namespace}/{pool.metadata.name}"


def test_the_documented_job_makes_as_many_updates_as_it_says_on_as_many_ranks() -> None:
    ranks = int(re.search(r"--nproc-per-node (\d+)", PAGE)[1])
    job().check_ranks(ranks)
    assert job().plan(ranks).minibatches_per_step == int(re.search(r"# (\d+) optimiser steps", PAGE)[1])


def test_every_schedule_that_is_advised_can_be_set() -> None:
    advised = re.findall(r"`schedule: (\w+)`", PAGE)
    assert [job(schedule=name).overlap().schedule for name in advised] == ["one_step_off_minibatch", "fully_async"]


def test_the_documented_mixture_is_one_that_rates_single_responses() -> None:
    spec = parse_reward(MIXTURE["reward"])
    assert [part.normalize for part in spec.parts] == [None, None]
    assert spec.post_process is None


def test_the_documented_ranking_has_a_group_of_the_job_in_one_question() -> None:
    [part] = parse_reward(RANKING["reward"]).parts
    assert isinstance(part, PoolPart)
    assert part.judge is not None
    assert (part.judge.mode, part.judge.together >= job().rollout.group_size) == ("listwise", True)
