"""Distillation: from a teacher's answers to a policy that is nearer to it."""

import asyncio
import json
import math
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny_policy
from support.distillation_job import DIGITS, FORWARD, RESULTS, TinyTeacher
from support.rates_single import RatesSingle
from support.tiny_job import tiny_job
from support.torchrun import run_job

from rewardpool._config import RewardConfig
from rewardpool._rewards import Episode, Rating
from rewardpool.errors import ConfigError, PoolError, SampleError
from rewardpool_train.actor import distillation
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.distillation import Distillation, NoReward, Teachers, open_teachers
from rewardpool_train.actor.grpo import top_divergence
from rewardpool_train.actor.ranks import join_job
from rewardpool_train.actor.records import StepRecord
from rewardpool_train.actor.scoring import OutcomeTally
from rewardpool_train.actor.teacher_rows import TeacherRows
from rewardpool_train.actor.tokens import Forward
from rewardpool_train.actor.trainer import Trainer
from rewardpool_train.config import TrainConfig
from rewardpool_train.distillation_config import DistillationConfig
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, RatedGroup, SettledScore
from rewardpool_train.pipeline.schedule import SCHEDULES

CONFIG = DistillationConfig(teacher="default/none")


class Sevens(RatesSingle):
    """Stands in for a BlockingReward: the share of sevens."""

    names = ("only",)

    def submit(self, episode: Episode) -> Future[Rating]:
        value = episode.response.count("7") / max(1, len(episode.response))
        answer: Future[Rating] = Future()
        answer.set_result(Rating(total=value, components={"only": value}))
        return answer


def config_of(tmp_path: Path, policy_folder: Path, **changes: Any) -> TrainConfig:
    right = {
        "distillation": {"teacher": "default/none"},
        "rollout": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 12},
        "update": {"groups_per_minibatch": 2, "learning_rate": 1e-2, "order": "prompt", "loss_agg_mode": "token-mean"},
        "steps": 15,
    }
    return tiny_job(tmp_path, policy_folder, **right | changes)


def trained(
    config: TrainConfig, teacher: TinyTeacher, *, stop_after: int | None = None
) -> tuple[list[StepRecord], OutcomeTally]:
    """Train alone, in this process."""
    with join_job(deadline_seconds=60) as ranks:
        reward = NoReward() if config.reward is None else Sevens()
        trainer = Trainer(config, ranks=ranks, reward=reward, teachers=teacher)
        done: list[StepRecord] = []
        records = trainer.run(done.append, should_stop=lambda: len(done) + 1 == stop_after)
        return records, trainer.tally


@pytest.mark.parametrize("top_k", [0, 4])
def test_the_policy_comes_nearer_to_its_teacher(tmp_path: Path, policy_folder: Path, top_k: int) -> None:
    teacher = {"teacher": "default/none", "top_k": top_k}
    rollout = {"prompts_per_step": 4, "group_size": 16, "max_new_tokens": 12}
    records, tally = trained(
        config_of(tmp_path, policy_folder, distillation=teacher, rollout=rollout), TinyTeacher(top_k=top_k)
    )
    first, *_, one, two, three = (record.teacher_kl for record in records)
    assert (one + two + three) / 3 < first / 2
    assert (tally.submitted, tally.scored, tally.lost) == (15 * 64, 15 * 64, 0)


# Two ranks make the same updates by every schedule, see test_schedules.py.
@pytest.mark.parametrize("schedule", ["minibatch", pytest.param("fully_async", marks=pytest.mark.long)])
def test_ranks_that_share_a_policy_bring_it_nearer_to_its_teacher(
    tmp_path: Path, policy_folder: Path, schedule: str
) -> None:
    rollout = {"prompts_per_step": 4, "group_size": 16, "max_new_tokens": 12}
    config_of(tmp_path, policy_folder, rollout=rollout, schedule=schedule)
    job = run_job("support.distillation_job", tmp_path / "train.yaml", ranks=2, seconds=180)
    assert job.returncode == 0, job.stderr
    found = json.loads((tmp_path / RESULTS).read_text())
    first, *_, one, two, three = found["kl"]
    assert (one + two + three) / 3 < first / 2
    assert found["scored"] == [64] * 15
    # Rollouts that go on at the end are for nothing; each rank asks about its own.
    assert sum(found["asked"]) == 15 * 64 or (schedule == "fully_async" and sum(found["asked"]) > 15 * 64)
    assert min(found["asked"]) > 0.3 * sum(found["asked"])


def test_without_a_reward_a_score_is_minus_the_divergence_in_nats_per_token(
    tmp_path: Path, policy_folder: Path
) -> None:
    update = {"groups_per_minibatch": 4, "learning_rate": 1e-9}
    rollout = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 1}
    [record], _ = trained(config_of(tmp_path, policy_folder, steps=1, update=update, rollout=rollout), TinyTeacher())
    assert record.reward_mean == pytest.approx(-record.teacher_kl, abs=1e-5)


def test_a_reward_and_a_teacher_both_count(tmp_path: Path, policy_folder: Path) -> None:
    both = config_of(
        tmp_path, policy_folder, reward={"pool": "default/none"}, distillation={"teacher": "a/b", "weight": 0.1}
    )
    records, _ = trained(both, TinyTeacher())
    assert records[-1].reward_mean > 2 * records[0].reward_mean
    alone, _ = trained(replace_weight(both, 1e-9), TinyTeacher())
    assert records[-1].teacher_kl < alone[-1].teacher_kl


@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_under_every_schedule_each_response_has_its_reward_and_its_teachers_answer(
    tmp_path: Path, policy_folder: Path, schedule: str, top_k: int
) -> None:
    both = {"reward": {"pool": "default/none"}, "distillation": {"teacher": "a/b", "top_k": top_k}}
    config = config_of(tmp_path, policy_folder, **both, schedule=schedule, steps=3)
    teacher = TinyTeacher(top_k=top_k)
    records, tally = trained(config, teacher)
    assert [(record.scored, record.unscored) for record in records] == [(16, 0)] * 3
    assert all(math.isfinite(record.teacher_kl) and record.teacher_kl > 0 for record in records)
    assert tally.lost == 0
    # Rollouts that go on at the end are for nothing.
    asked = teacher.asked.total()
    assert asked == 48 or (schedule == "fully_async" and asked > 48)


def replace_weight(config: TrainConfig, weight: float) -> TrainConfig:
    assert config.distillation is not None
    return config.model_copy(update={"distillation": config.distillation.model_copy(update={"weight": weight})})


@pytest.mark.parametrize("reward", [None, {"pool": "default/none"}])
def test_a_response_without_an_answer_is_unscored(tmp_path: Path, policy_folder: Path, reward: Any) -> None:
    [record], _ = trained(config_of(tmp_path, policy_folder, reward=reward, steps=1), TinyTeacher(silent_about=[1]))
    assert (record.scored, record.unscored) == (12, 4)


@pytest.mark.parametrize(("schedule", "top_k"), [("minibatch", 0), ("one_step_off_minibatch", 3)])
def test_a_stopped_job_goes_on_as_if_it_had_not_stopped(
    tmp_path: Path, policy_folder: Path, schedule: str, top_k: int
) -> None:
    teacher = {"teacher": "default/none", "top_k": top_k}
    same = {"schedule": schedule, "steps": 4, "checkpoint": {"every_steps": 2}, "distillation": teacher}
    straight, _ = trained(config_of(tmp_path, policy_folder, **same, output="straight"), TinyTeacher(top_k=top_k))
    config = config_of(tmp_path, policy_folder, **same, output="stopped")
    stopped = [
        record for after in (2, None) for record in trained(config, TinyTeacher(top_k=top_k), stop_after=after)[0]
    ]
    figures = [(record.loss, record.teacher_kl, record.grad_norm) for record in straight]
    assert figures == [(record.loss, record.teacher_kl, record.grad_norm) for record in stopped]


@pytest.mark.parametrize("before", [{"reward": {"pool": "a/b"}, "distillation": None}, {}])
def test_scores_of_a_checkpoint_without_such_answers_are_left_out(
    tmp_path: Path, policy_folder: Path, before: Any
) -> None:
    same = {"schedule": "one_step_off_minibatch", "checkpoint": {"every_steps": 2}}
    trained(config_of(tmp_path, policy_folder, **same, **before), TinyTeacher(), stop_after=2)
    for state in (tmp_path / "out" / "checkpoints").glob("*/state.0.json"):
        if before:  # it was saved before there were teachers
            fields = json.loads(state.read_text())
            del fields["teacher_rows"]
            state.write_text(json.dumps(fields))
    teacher = {"teacher": "default/none", "top_k": 3}
    records, _ = trained(
        config_of(tmp_path, policy_folder, **same, distillation=teacher, steps=4), TinyTeacher(top_k=3)
    )
    # Step 3 was rolled out, and its scores requested, before the stop.
    assert [math.isnan(record.teacher_kl) for record in records] == [True, False]


def random_log_probs(seed: int, rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(torch.randn(rows, DIGITS, generator=generator), dim=-1)


def test_over_all_tokens_the_divergence_is_that_of_the_distributions() -> None:
    own, teacher = random_log_probs(0, 50), random_log_probs(1, 50)
    whole = (own.exp() * (own - teacher)).sum(dim=-1)
    assert torch.allclose(top_divergence(own, teacher), whole, atol=1e-4)


def test_over_fewer_tokens_the_divergence_is_smaller_and_never_negative() -> None:
    own, teacher = random_log_probs(0, 50), random_log_probs(1, 50)
    whole = (own.exp() * (own - teacher)).sum(dim=-1)
    for top_k in range(DIGITS):
        ids = teacher.topk(top_k).indices
        part = top_divergence(own.gather(1, ids), teacher.gather(1, ids))
        assert (part >= -1e-6).all()
        assert (part <= whole + 1e-4).all()


def test_a_policy_that_equals_its_teacher_has_no_divergence_and_no_gradient() -> None:
    own = random_log_probs(0, 5).requires_grad_()
    divergence = top_divergence(own[:, :4], own[:, :4].detach())
    divergence.sum().backward()
    assert torch.allclose(divergence, torch.zeros(5), atol=1e-6)
    assert own.grad is not None
    # Of a sum over pi * (log pi - log pi_teacher) alone it is pi; the remainder takes it back.
    assert torch.allclose(own.grad, torch.zeros_like(own), atol=1e-5)


@pytest.mark.parametrize("forward", [FORWARD, replace(FORWARD, pack_tokens=20)])
def test_log_probs_of_further_tokens_are_those_of_their_positions(policy: Any, forward: Forward) -> None:
    part = [
        Trajectory(group=0, member=0, prompt_ids=[1, 2], response_ids=[3, 4, tiny_policy.END], ended=True),
        Trajectory(group=0, member=1, prompt_ids=[5], response_ids=[6, tiny_policy.END], ended=True),
    ]
    ids = [torch.tensor([[3, 0], [4, 1], [10, 2]]), torch.tensor([[6, 3], [10, 4]])]
    with torch.no_grad():
        own, further = forward.log_probs_at(policy, part, ids)
        whole = torch.log_softmax(policy(torch.tensor([[1, 2, 3, 4, 10]])).logits[0, 1:-1], dim=-1)
        alone = forward.log_probs(policy, part)
    assert torch.allclose(own[0], alone[0], atol=1e-5)
    assert torch.allclose(further[0], whole.gather(1, ids[0]), atol=1e-5)
    assert torch.allclose(further[1, :2, 0], own[1, :2], atol=1e-5)


def test_the_teachers_tokens_beyond_the_policys_vocabulary_are_part_of_the_remainder(policy: Any) -> None:
    part = [Trajectory(group=0, member=0, prompt_ids=[1, 2], response_ids=[3], ended=False)]
    teacher = torch.tensor([[[-1.0, -1.5, -2.0]]])
    _, own = FORWARD.log_probs_at(policy, part, [torch.tensor([[3, DIGITS, DIGITS + 40]])])
    divergence = top_divergence(own, teacher)
    p, rest = own[0, 0, 0].exp(), 1 - teacher.exp().sum()
    assert divergence.item() == pytest.approx((p * (p.log() + 1) + (1 - p) * ((1 - p) / rest).log()).item(), abs=1e-5)
    divergence.sum().backward()
    assert all(bool(one.grad.isfinite().all()) for one in policy.parameters() if one.grad is not None)


TASK = GroupTask(index=3, prompt=Prompt(prompt="1"), size=2, version=0)
ROLLOUTS = [
    Trajectory(group=3, member=member, prompt_ids=[1], response_ids=[2, 3], ended=False, log_probs=[-1.0, -2.0])
    for member in (0, 1)
]


async def test_a_group_that_is_judged_as_a_whole_is_asked_about_one_by_one() -> None:
    async def judge(group: Any) -> list[float | None]:
        return [0.25, 0.75]

    teacher = TinyTeacher(silent_about=[0])
    scoring = Distillation(teacher, CONFIG, tally=OutcomeTally()).beside(GroupScore(judge))
    assert isinstance(scoring, GroupScore)
    assert await scoring.judge(RatedGroup(task=TASK, rollouts=ROLLOUTS, scores=[])) == [None, 0.75]
    assert teacher.asked == {0: 1, 1: 1}


async def test_a_response_that_was_not_answered_stays_unscored_when_its_group_is_settled() -> None:
    async def score(task: Any, member: int, rollout: Trajectory) -> float | None:
        return 0.5

    async def settle(group: Any) -> list[float | None]:
        return [0.25, 0.75]

    taught = Distillation(TinyTeacher(silent_about=[1]), CONFIG, tally=OutcomeTally())
    scoring = taught.beside(SettledScore(score, lambda group: False, settle))
    assert isinstance(scoring, SettledScore)
    assert [await scoring.score(TASK, one.member, one) for one in ROLLOUTS] == [0.5, None]
    assert await scoring.settle(RatedGroup(task=TASK, rollouts=ROLLOUTS, scores=[0.5, None])) == [0.25, None]


async def test_a_reward_that_fails_ends_the_question() -> None:
    async def score(task: Any, member: int, rollout: Trajectory) -> float | None:
        raise SampleError("s", "no worker")

    scoring = Distillation(TinyTeacher(), CONFIG, tally=OutcomeTally()).beside(score)
    with pytest.raises(SampleError):
        await scoring(TASK, 0, ROLLOUTS[0])  # type: ignore[operator]


class BrokenTeacher(TinyTeacher):
    async def rows(self, prompt: Prompt, rollout: Trajectory) -> TeacherRows | None:
        raise PoolError("rl/teacher", "is gone")


async def test_a_teachers_pool_that_fails_is_named_although_the_reward_does_not_answer() -> None:
    given_up = asyncio.Event()

    async def score(task: Any, member: int, rollout: Trajectory) -> float | None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return None

    scoring = Distillation(BrokenTeacher(), CONFIG, tally=OutcomeTally()).beside(score)
    async with asyncio.timeout(10):
        with pytest.raises(PoolError, match="is gone"):
            await scoring(TASK, 0, ROLLOUTS[0])  # type: ignore[operator]
        await given_up.wait()


class FailingTeacher:
    """Stands in for a `rewardpool.Teacher` whose pool cannot answer."""

    async def logprobs(self, token_ids: Any, *, start: int, top_k: int) -> Any:
        raise SampleError("#1", "no worker answered", fault="infra")


@pytest.mark.parametrize(
    ("policy", "raises"), [("raise", True), ("skip", False), ({"infra": "skip"}, False), ({}, True)]
)
async def test_the_teachers_failure_policy_decides_about_a_missing_answer(policy: Any, raises: bool) -> None:
    config = RewardConfig.parse({"pool": "rl/teacher", "on_failure": policy})
    teachers = Teachers(DistillationConfig(teacher="rl/teacher"), {None: (config, FailingTeacher())})  # type: ignore[dict-item]
    if raises:
        with pytest.raises(SampleError):
            await teachers.rows(TASK.prompt, ROLLOUTS[0])
    else:
        assert await teachers.rows(TASK.prompt, ROLLOUTS[0]) is None


def test_a_pool_that_teaches_several_sources_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[RewardConfig] = []

    def teacher(pool: RewardConfig, *, tokenizer: str) -> Any:
        opened.append(pool)
        return nullcontext(FailingTeacher())

    monkeypatch.setattr(distillation, "Teacher", teacher)
    config = DistillationConfig(by_data_source={"algebra": "rl/maths", "geometry": "rl/maths", "code": "rl/code"})
    with open_teachers(config, policy=Path("policy"), prompts=[]):
        assert [pool.pool for pool in opened] == ["rl/maths", "rl/code"]


def test_a_prompt_without_a_teacher_is_refused_before_anything_is_opened() -> None:
    config = DistillationConfig(by_data_source={"maths": "rl/maths"})
    prompts = [Prompt(prompt="1", data_source=source) for source in ("maths", "code", "prose")]
    opening = open_teachers(config, policy=Path("policy"), prompts=prompts)
    with pytest.raises(ConfigError, match="has no teacher for prompts of code, prose"), opening:
        pass
