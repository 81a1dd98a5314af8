import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support import checkpoint_job, update_job
from support.rank_jobs import CHECKPOINTS
from support.torchrun import RanksDid, run_job

from rewardpool_train.actor import checkpoint
from rewardpool_train.actor.ranks import Ranks, join_job


def run(mode: str, checkpoints: Path, *, ranks: int) -> subprocess.CompletedProcess[str]:
    file = result_of(mode, checkpoints, ranks)
    return run_job("support.checkpoint_job", mode, checkpoints, file, ranks=ranks, seconds=180)


def result_of(mode: str, checkpoints: Path, ranks: int) -> Path:
    return checkpoints.with_suffix(f".{mode}-{ranks}")


def done(mode: str, checkpoints: Path, *, ranks: int) -> Any:
    ended = run(mode, checkpoints, ranks=ranks)
    assert ended.returncode == 0, ended.stderr
    return torch.load(result_of(mode, checkpoints, ranks), weights_only=False)


@pytest.fixture(scope="module")
def begun(ranks_did: dict[int, RanksDid]) -> dict[int, tuple[Path, Any]]:
    """By the number of ranks: the checkpoints of a job that stopped half way, and what one without a stop ends with."""
    return {ranks: (did.folder / CHECKPOINTS, did.results["begun"]) for ranks, did in ranks_did.items()}


@pytest.fixture
def alone() -> Iterator[Ranks]:
    """This process as a job of its own."""
    with join_job(deadline_seconds=60) as ranks:
        yield ranks


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_resumed_job_ends_where_one_without_a_stop_does(begun: dict[int, Any], ranks: int) -> None:
    folder, straight = begun[ranks]
    resumed = done("resume", folder, ranks=ranks)
    assert all(torch.equal(resumed["weights"][name], weight) for name, weight in straight["weights"].items())
    assert resumed["drawn"] == straight["drawn"]
    assert [resumed["resumed"].state(rank) for rank in range(ranks)] == [{"rank": rank} for rank in range(ranks)]


@pytest.mark.parametrize(("before", "after"), [pytest.param(1, 2, marks=pytest.mark.long), (2, 1)])
def test_a_job_can_be_resumed_by_another_number_of_ranks(begun: dict[int, Any], before: int, after: int) -> None:
    folder, straight = begun[before]
    resumed = done("resume", folder, ranks=after)
    for name, weight in straight["weights"].items():
        assert torch.allclose(resumed["weights"][name], weight, atol=1e-4)
    assert resumed["resumed"].step == checkpoint_job.STOP
    assert [resumed["resumed"].state(rank) for rank in range(before)] == [{"rank": rank} for rank in range(before)]


def test_a_killed_save_leaves_the_checkpoint_before_it(begun: dict[int, Any], tmp_path: Path, alone: Ranks) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(begun[1][0], folder)
    ended = run("killed", folder, ranks=1)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (folder / "step-000003.part").is_dir()
    actor = update_job.make_actor(alone)
    resumed = checkpoint.load(folder, actor, ranks=alone)
    assert resumed is not None
    assert resumed.step == checkpoint_job.STOP
    checkpoint.save(folder, actor, ranks=alone, step=3, state={}, keep=2)
    assert [path.name for path in checkpoint.list_checkpoints(folder)] == ["step-000002", "step-000003"]
    assert not (folder / "step-000003.part").exists()


def test_the_newest_checkpoints_are_kept(tmp_path: Path, alone: Ranks) -> None:
    actor = update_job.make_actor(alone)
    for step in (8, 9, 10):
        checkpoint.save(tmp_path, actor, ranks=alone, step=step, state={}, keep=2)
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path)] == ["step-000009", "step-000010"]


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path, alone: Ranks) -> None:
    assert checkpoint.load(tmp_path, update_job.make_actor(alone), ranks=alone) is None


def test_the_learning_rate_of_a_resumed_job_is_its_own(tmp_path: Path, alone: Ranks) -> None:
    checkpoint.save(tmp_path, update_job.make_actor(alone), ranks=alone, step=1, state={}, keep=1)
    slower = update_job.make_actor(alone, learning_rate=1e-5)
    checkpoint.load(tmp_path, slower, ranks=alone)
    assert [group["lr"] for group in slower.optimizer.param_groups] == [1e-5]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_sharded_policy_is_written_as_transformers_reads_it(begun: dict[int, Any], ranks: int) -> None:
    policy, info = transformers.AutoModelForCausalLM.from_pretrained(
        begun[ranks][0] / "policy", output_loading_info=True
    )
    assert policy.config.architectures == ["Qwen2ForCausalLM"]
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    trained = update_job.tiny_policy.make_policy(seed=0).state_dict()
    assert not torch.equal(policy.state_dict()["lm_head.weight"], trained["lm_head.weight"])
