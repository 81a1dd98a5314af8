"""`python -m rewardpool_train` by torchrun, against the folder of a local pool that FakeWorker serves."""

import asyncio
import json
import os
from pathlib import Path

import pytest
import yaml
from support import torchrun
from support.fake_worker import FakeWorker
from support.local_pool import JOB, POOL, announced, demand_file, environ_of, write_local_pool

from rewardpool_api.demand import Demand

SECONDS = 180.0
"""Deadline of a job that takes half a minute on two cores."""


async def heard_until(ended: asyncio.Task[int], folder: Path) -> list[Demand]:
    """Everything that is announced until then, the same word once."""
    heard: list[Demand] = []
    while not ended.done():
        await asyncio.sleep(0.05)
        demand = announced(folder)
        if demand is not None and demand not in heard[-1:]:
            heard.append(demand)
    return heard


@pytest.mark.parametrize("schedule", ["minibatch", pytest.param("fully_async", marks=pytest.mark.long)])
async def test_a_job_of_two_ranks_is_announced_once_from_its_loading_to_its_end(
    tmp_path: Path, policy_folder: Path, schedule: str
) -> None:
    (tmp_path / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": digit}) for digit in "1234"))
    config = {
        "policy": {"path": str(policy_folder)},
        "data": {"prompts": "prompts.jsonl"},
        "reward": {"pool": POOL},
        "rollout": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 48},
        "update": {"groups_per_minibatch": 2},
        "schedule": schedule,
        "steps": 12,
        "output": "out",
    }
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(config))
    async with FakeWorker() as worker:
        folder = write_local_pool(tmp_path, url=worker.url, source=f"file://{policy_folder}")
        environ = {**os.environ, **environ_of(tmp_path), "OMP_NUM_THREADS": "1"}
        job = await asyncio.create_subprocess_exec(
            *torchrun.command("rewardpool_train", tmp_path / "train.yaml", ranks=2), env=environ
        )
        try:
            async with asyncio.timeout(SECONDS):
                heard = await heard_until(asyncio.create_task(job.wait()), folder)
        finally:
            if job.returncode is None:
                job.kill()
    assert job.returncode == 0
    assert heard[0] == Demand(job=JOB, phase="Starting", samples=16, scored=0)
    last = announced(folder)
    assert last is not None
    assert last.score_wait is not None
    assert last.scored
    assert last.scores is not None
    of_its_samples = {"score_wait": None, "scores": None, "scored": None, "tokens_per_sample": None}
    assert last.model_copy(update=of_its_samples) == Demand(job=JOB, phase="Ended")
    assert {demand.phase for demand in heard} >= {"Starting", "Rollout"}
    assert {demand.samples for demand in heard if demand.phase != "Ended"} == {16}
    assert [file.name for file in demand_file(folder).parent.iterdir()] == [f"{JOB}.json"]
