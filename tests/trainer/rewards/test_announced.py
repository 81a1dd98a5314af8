"""Rewards that tell their pools of the job by the samples that come, in a real pool folder; FakeWorker scores."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.fake_worker import FakeWorker
from support.local_pool import JOB, POOL, announced, environ_of, on_this_machine, write_local_pool

import rewardpool.trl
from cluster.processes import wait_until
from rewardpool._rewards import Episode, JobFacts, LazyReward, open_announced
from rewardpool.errors import ConfigError
from rewardpool.slime import announcement_of
from rewardpool_api import names
from rewardpool_api.demand import Demand, Phase
from rewardpool_api.job_scores import JobScores

EPISODES = [Episode(prompt="2+2?", response="4")] * 3


def ended(*, scored: int) -> Demand:
    """Return the last announcement of a job with so many samples, each with FakeWorker's score."""
    scores = JobScores(count=scored, mean=80.0, standard_deviation=0.0)
    return Demand(job=JOB, phase="Ended", scored=scored, scores=scores)


@pytest.fixture
async def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """Of a function pool that FakeWorker serves; the test's process finds it."""
    on_this_machine(monkeypatch, tmp_path)
    async with FakeWorker() as worker:
        yield write_local_pool(tmp_path, url=worker.url, model_type="Function")


async def says(folder: Path, phase: Phase, samples: int | None) -> None:
    def said() -> bool:
        demand = announced(folder)
        return demand is not None and (demand.phase, demand.samples) == (phase, samples)

    await asyncio.to_thread(wait_until, said, what="the demand says so", deadline_seconds=10)


async def test_the_first_samples_begin_a_rollout_and_closing_ends_the_job(folder: Path) -> None:
    reward = LazyReward(POOL, announcement=JobFacts(samples=64))
    await reward.rate_batch(EPISODES)
    await says(folder, "Rollout", 64)
    reward.close()
    assert announced(folder) == ended(scored=len(EPISODES))


@pytest.mark.parametrize(("group", "requests"), [(8, 8 * 32), (None, None)], ids=["groups of 8", "of what size"])
async def test_a_judge_of_pairs_is_announced_the_requests_that_it_is_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int | None, requests: int | None
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    write_local_pool(tmp_path, model_type="Generative")
    spec = {"pool": POOL, "judge": {"mode": "pairwise", "opponents": 4}}
    async with open_announced(spec, JobFacts(samples=64, group=group)) as reward:
        assert reward.pools[POOL].job_demand.now().samples == requests


async def test_another_part_of_the_job_scores_in_silence(folder: Path) -> None:
    async with open_announced(POOL, JobFacts(rank=1, ranks=2)) as reward:
        assert (await reward.rate(EPISODES[0])).total is not None
        assert "rank 0 does it" in reward.pools[POOL].report().demand.problem
    assert announced(folder) is None


JOB_THAT_ENDS = f"""
from rewardpool._rewards import JobFacts, Episode, LazyReward
reward = LazyReward({POOL!r}, announcement=JobFacts())
reward.rate_batch_blocking([Episode(prompt="p", response="r")])
"""


async def test_a_process_that_exits_says_that_its_job_is_over(folder: Path, tmp_path: Path) -> None:
    environ = {**os.environ, **environ_of(tmp_path)}
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", JOB_THAT_ENDS], env=environ, check=True, timeout=60)
    assert announced(folder) == ended(scored=1)


async def test_a_wrong_switch_is_a_mistake_and_no_surprise_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.ENV_ANNOUNCE, "perhaps")
    with pytest.raises(ConfigError, match=names.ENV_ANNOUNCE):
        LazyReward(POOL, announcement=JobFacts()).opened()


async def test_trl_says_when_it_begins_and_when_the_policy_is_updated(folder: Path) -> None:
    reward = rewardpool.trl.reward(POOL)
    await reward(["p"] * 4, ["r"] * 4, trainer_state=SimpleNamespace(max_steps=9, global_step=0))
    await says(folder, "Update", 4)
    reward.close()
    assert announced(folder) == ended(scored=4)


async def test_trl_without_a_state_generates_all_the_time(folder: Path) -> None:
    reward = rewardpool.trl.reward(POOL)
    for _ in range(3):
        await reward(["p"] * 4, ["r"] * 4)
    await says(folder, "Rollout", None)
    reward.close()


@pytest.mark.parametrize(
    ("arguments", "samples", "group"),
    [
        ({"rollout_batch_size": 32, "n_samples_per_prompt": 8}, 256, 8),
        ({"rollout_batch_size": 32, "n_samples_per_prompt": 8, "dynamic_sampling_filter_path": "a.b"}, None, None),
        ({}, None, None),
    ],
    ids=["known", "filtered, so that more are sampled", "unknown"],
)
def test_slime_tells_how_many_samples_a_rollout_has(
    arguments: dict[str, object], samples: int | None, group: int | None
) -> None:
    said = announcement_of(SimpleNamespace(**arguments))
    assert said == JobFacts(samples=samples, group=group, rank=0, ranks=1)
