import math
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import tiny_policy
from support.rates_single import RatesSingle
from support.tiny_job import tiny_job

from rewardpool._demand.cadence import Cadence, GivenCadence
from rewardpool._demand.handle import JobDemand
from rewardpool._rewards import BlockingReward, Episode, Rating
from rewardpool._score_waits import ScoreWait
from rewardpool.errors import ConfigError, ScoreError
from rewardpool_train.actor.data import Trajectory
from rewardpool_train.actor.ranks import join_job
from rewardpool_train.actor.records import StepRecord
from rewardpool_train.actor.resume import reshard_state
from rewardpool_train.actor.scoring import OutcomeTally
from rewardpool_train.actor.trainer import Trainer
from rewardpool_train.config import TrainConfig
from rewardpool_train.job import _stop_on, main, score_dtype, summarise
from rewardpool_train.pipeline.schedule import SCHEDULES
from rewardpool_train.pipeline.state import PipelineState


class FakeReward(RatesSingle):
    """Stands in for a BlockingReward: rates by a function of the response, at once; None is a sample that failed."""

    names = ("only",)

    def __init__(self, score: Callable[[str], float | None]) -> None:
        self._score = score

    def submit(self, episode: Episode) -> Future[Rating]:
        value = self._score(episode.response)
        failed = ScoreError(episode.label, "not a number") if value is None else None
        answer: Future[Rating] = Future()
        answer.set_result(Rating(total=value, components={"only": value}, error=failed))
        return answer


class FailingReward(FakeReward):
    """Leaves the first five responses of every group unscored, as long as groups are among the first so many."""

    failing_groups = 1_000

    def __init__(self, score: Callable[[str], float | None]) -> None:
        super().__init__(score)
        self._failed: Counter[Any] = Counter()

    def submit(self, episode: Episode) -> Future[Rating]:
        if episode.group >= self.failing_groups or self._failed[episode.group] == 5:
            return super().submit(episode)
        self._failed[episode.group] += 1
        return FakeReward(lambda text: None).submit(episode)


class FakeGroupReward(FakeReward):
    """Rates whole groups alone: a response's score is by how much it is better than the others, on the average."""

    needs_group = True

    def submit(self, episode: Episode) -> Future[Rating]:
        raise AssertionError("this reward needs groups")

    def submit_group(self, episodes: Sequence[Episode]) -> Future[list[Rating]]:
        assert len({episode.group for episode in episodes}) == 1
        ratings = [super(FakeGroupReward, self).submit(episode).result() for episode in episodes]
        mean = sum(rating.total or 0.0 for rating in ratings) / len(ratings)
        answer: Future[list[Rating]] = Future()
        answer.set_result([replace(one, total=None if one.total is None else one.total - mean) for one in ratings])
        return answer


def share_of_sevens(text: str) -> float:
    return text.count("7") / max(1, len(text))


def config_of(tmp_path: Path, policy_folder: Path, **changes: Any) -> TrainConfig:
    return tiny_job(tmp_path, policy_folder, **{"reward": {"pool": "default/none"}} | changes)


def trained(
    config: TrainConfig, score: Callable[[str], float | None], kind: type[FakeReward] = FakeReward
) -> tuple[list[StepRecord], OutcomeTally]:
    """Train alone, in this process."""
    with join_job(deadline_seconds=60) as ranks:
        trainer = Trainer(config, ranks=ranks, reward=kind(score))
        return trainer.run(lambda record: None), trainer.tally


def test_the_reward_rises(tmp_path: Path, policy_folder: Path) -> None:
    records, tally = trained(config_of(tmp_path, policy_folder, steps=12), share_of_sevens)
    assert records[-1].reward_mean > 2 * records[0].reward_mean
    assert (tally.submitted, tally.scored, tally.lost) == (12 * 32, 12 * 32, 0)


def test_a_run_is_repeatable(tmp_path: Path, policy_folder: Path) -> None:
    config = config_of(tmp_path, policy_folder)
    first, second = (trained(config, share_of_sevens)[0] for _ in range(2))
    assert [(r.reward_mean, r.loss, r.grad_norm) for r in first] == [
        (r.reward_mean, r.loss, r.grad_norm) for r in second
    ]


def test_a_response_ends_with_any_end_token_of_the_generation_config_which_is_not_part_of_its_text(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "policy"
    policy = tiny_policy.make_policy(seed=0)
    policy.generation_config.eos_token_id = [tiny_policy.END, 7]
    policy.save_pretrained(folder)
    tiny_policy.make_tokenizer().save_pretrained(folder)
    texts: list[str] = []
    trained(config_of(tmp_path, folder, steps=1), lambda text: texts.append(text) or float(len(text)))  # type: ignore[func-returns-value]
    assert not any("7" in text for text in texts)


def test_unscored_samples_are_left_out_and_counted(tmp_path: Path, policy_folder: Path) -> None:
    rollout = {"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 12, "min_members": 2, "replacement_rounds": 0}
    records, tally = trained(
        config_of(tmp_path, policy_folder, rollout=rollout),
        lambda text: None if len(text) % 2 else share_of_sevens(text),
    )
    assert tally.unscored == sum(record.unscored for record in records) > 0
    assert tally.scored + tally.unscored == tally.submitted == 64
    assert not math.isnan(records[-1].loss)


def test_a_step_without_any_score_changes_nothing_and_invents_no_figure(tmp_path: Path, policy_folder: Path) -> None:
    records, _ = trained(config_of(tmp_path, policy_folder, steps=1), lambda text: None)
    assert math.isnan(records[0].reward_mean)
    assert math.isnan(records[0].loss)
    summary = summarise(records, OutcomeTally(), retried=0, world_size=1)
    assert summary["reward_mean_last"] is None


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_group_with_too_few_scores_is_replaced(tmp_path: Path, policy_folder: Path, schedule: str) -> None:
    class FailsAtFirst(FailingReward):
        failing_groups = 4

    config = config_of(tmp_path, policy_folder, steps=2, schedule=schedule)
    records, tally = trained(config, share_of_sevens, FailsAtFirst)
    assert sum(record.short_groups for record in records) == sum(record.dropped_groups for record in records) == 4
    assert tally.unscored == 4 * 5
    assert sum(record.scored for record in records) == 2 * 32


def test_the_update_is_made_without_groups_that_have_too_few_scores_after_the_last_round(
    tmp_path: Path, policy_folder: Path
) -> None:
    [record], _ = trained(config_of(tmp_path, policy_folder, steps=1), share_of_sevens, FailingReward)
    assert (record.short_groups, record.dropped_groups, record.sampling_rounds) == (4 + 3 * 4, 3 * 4, 3)
    assert (record.scored, record.unscored) == (4 * 3, 4 * 5)
    assert math.isnan(record.loss)  # there was none


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_token_is_clipped_in_the_first_update_of_fresh_rollouts(tmp_path: Path, dtype: str) -> None:
    """Generation rounds otherwise than the trainer's forward, and GSPO's clip is narrower than bfloat16's steps."""
    folder = tmp_path / "policy"
    tiny_policy.make_policy(seed=0, hidden_size=64).save_pretrained(folder)
    tiny_policy.make_tokenizer().save_pretrained(folder)
    config = config_of(
        tmp_path,
        folder,
        steps=1,
        policy={"path": str(folder), "dtype": dtype},
        rollout={"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 40, "temperature": 0.7},
        update={"groups_per_minibatch": 4, "algorithm": "gspo"},
    )
    [record], _ = trained(config, share_of_sevens)
    assert record.clip_fraction == 0.0
    assert record.grad_norm > 0


def test_after_the_last_round_groups_of_equal_scores_are_trained_on_and_counted(
    tmp_path: Path, policy_folder: Path
) -> None:
    update = {"groups_per_minibatch": 2, "dynamic_sampling_rounds": 3}
    [record], tally = trained(config_of(tmp_path, policy_folder, steps=1, update=update), lambda text: 1.0)
    assert (record.scored, record.zero_variance_groups, record.sampling_rounds) == (32, 4, 3)
    assert (record.dropped_groups, record.dropped_samples) == (3 * 4, 3 * 32)
    assert tally.submitted == 4 * 32


def test_waiting_for_scores_is_not_counted_as_rollout_or_update(tmp_path: Path, policy_folder: Path) -> None:
    [record] = trained(config_of(tmp_path, policy_folder, steps=1), share_of_sevens)[0]
    parts = record.rollout_seconds + record.reward_exposed_seconds + record.update_seconds
    assert parts <= record.step_seconds
    assert record.reward_exposed_seconds < record.rollout_seconds  # these scores were there before they were asked for


@pytest.mark.parametrize("kind", [FakeReward, FakeGroupReward], ids=["single", "groups"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_trains_on_every_sample_once(
    tmp_path: Path, policy_folder: Path, schedule: str, kind: type[FakeReward]
) -> None:
    config = config_of(tmp_path, policy_folder, steps=6, schedule=schedule, max_staleness=3)
    records, tally = trained(config, share_of_sevens, kind)
    assert (tally.submitted, tally.scored, tally.lost) == (6 * 32, 6 * 32, 0)
    assert [(record.step, record.scored) for record in records] == [(step, 32) for step in range(1, 7)]
    sevens = [record.components["only"] for record in records]
    assert sevens[-1] > sevens[0]
    stale = max(record.staleness_mean for record in records)
    assert stale <= 0.5 if schedule in ("sync", "minibatch") else 0.5 < stale <= 3


@pytest.mark.parametrize("kind", [FakeReward, FakeGroupReward], ids=["single", "groups"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_job_goes_on_from_the_middle_of_its_pipeline(
    tmp_path: Path, policy_folder: Path, schedule: str, kind: type[FakeReward]
) -> None:
    config = config_of(tmp_path, policy_folder, steps=4, schedule=schedule, checkpoint={"every_steps": 2})
    with join_job(deadline_seconds=60) as ranks:
        first = Trainer(config, ranks=ranks, reward=kind(share_of_sevens))
        begun = first.run(lambda record: None, should_stop=iter([False, True]).__next__)
        second = Trainer(config, ranks=ranks, reward=kind(share_of_sevens))
        done = second.steps_done
        resumed = second.run(lambda record: None)
    assert ([record.step for record in begun], done, [record.step for record in resumed]) == ([1, 2], 2, [3, 4])
    assert sum(record.scored for record in [*begun, *resumed]) == 4 * 32
    # Scores that were known are in the checkpoint. Rollouts that go on while it is written are for nothing.
    asked = first.tally.scored + second.tally.scored
    assert asked == 4 * 32 or (schedule == "fully_async" and asked > 4 * 32)
    assert (first.tally.lost, second.tally.lost) == (0, 0)


def test_a_checkpoint_of_other_ranks_rolls_out_again_what_was_rolled_out_ahead(
    tmp_path: Path, policy_folder: Path
) -> None:
    config = config_of(tmp_path, policy_folder, schedule="one_step_off_minibatch")
    saved: PipelineState[Trajectory] = PipelineState(
        schedule="one_step_off_minibatch",
        plan=config.plan(1),
        trained=2,
        begun=8,
        groups=[],
        again=dict.fromkeys([4, 5, 6, 7], 1),
    )
    state = reshard_state([saved], config, 2)
    state.check("one_step_off_minibatch", config.plan(2))
    assert (state.trained, state.begun, state.again) == (2, 2, {})
    with pytest.raises(ConfigError, match="can only be resumed on the same number of ranks"):
        reshard_state([saved], config_of(tmp_path, policy_folder, schedule="fully_async"), 2)


def test_a_checkpoint_of_other_ranks_goes_on_behind_the_last_prompt_that_any_of_them_dropped(
    tmp_path: Path, policy_folder: Path
) -> None:
    config = config_of(tmp_path, policy_folder, schedule="one_step_off_minibatch")

    def saved(dropped: int) -> PipelineState[Trajectory]:
        """After one step; the next one has groups 2 and 3, and those in the place of dropped ones came after them."""
        begun, again = 4 + dropped, dict.fromkeys([2, 3], 1)
        return PipelineState(
            schedule="one_step_off_minibatch",
            plan=config.plan(2),
            trained=2,
            begun=begun,
            groups=[],
            again=again,
            dropped=dropped,
        )

    state = reshard_state([saved(dropped=0), saved(dropped=3)], config, 1)
    state.check("one_step_off_minibatch", config.plan(1))
    assert (state.trained, state.begun, state.dropped) == (2, 14, 10)
    assert reshard_state([saved(dropped=0), saved(dropped=0)], config, 1).begun == 4


def test_what_a_reward_models_scores_are_good_to_is_that_of_its_pool() -> None:
    def pool(model_type: str, dtype: str | None) -> Any:
        return SimpleNamespace(endpoint=SimpleNamespace(model_type=model_type, dtype=dtype))

    assert score_dtype([pool("Discriminative", "bfloat16"), pool("Function", None)]) == "bfloat16"
    assert score_dtype([pool("Discriminative", "auto"), pool("Generative", "bfloat16")]) == "float32"


def test_groups_whose_scores_differ_by_less_than_they_are_good_to_are_uninformative(
    tmp_path: Path, policy_folder: Path
) -> None:
    config = config_of(tmp_path, policy_folder, steps=1)
    with join_job(deadline_seconds=60) as ranks:
        reward = FakeReward(lambda text: 20.0 + 0.1 * share_of_sevens(text))
        trainer = Trainer(config, ranks=ranks, reward=reward, score_dtype="bfloat16")
        [record] = trainer.run(lambda record: None)
    assert record.zero_variance_groups == 4


def normalized_job(config: TrainConfig, *, stop_after: int | None = None) -> list[StepRecord]:
    """Train alone by a real reward that is scaled by the steps before."""
    # In processes the function would import this module, and torch with it.
    spec = {
        "function": share_of_sevens_in,
        "run_in": "threads",
        "name": "sevens",
        "clip": [0, 0.5],
        "normalize": "running",
    }
    with join_job(deadline_seconds=60) as ranks, BlockingReward(spec) as reward:
        trainer = Trainer(config, ranks=ranks, reward=reward)
        told = iter(range(1, 100))
        return trainer.run(lambda record: None, should_stop=lambda: next(told) == stop_after)


def share_of_sevens_in(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    return share_of_sevens(solution_str)


@pytest.mark.parametrize("schedule", ["minibatch", "one_step_off_minibatch"])
def test_a_job_whose_scores_are_scaled_by_earlier_steps_goes_on_as_if_it_had_not_stopped(
    tmp_path: Path, policy_folder: Path, schedule: str
) -> None:
    both = {"schedule": schedule, "steps": 4, "checkpoint": {"every_steps": 2}}
    straight = normalized_job(config_of(tmp_path, policy_folder, **both, output="straight"))
    config = config_of(tmp_path, policy_folder, **both, output="stopped")
    stopped = [*normalized_job(config, stop_after=2), *normalized_job(config)]
    figures = [(record.reward_mean, record.loss, record.components) for record in straight]
    assert figures == [(record.reward_mean, record.loss, record.components) for record in stopped]
    first, *later = straight
    assert first.reward_mean == pytest.approx(min(first.components["sevens"], first.reward_mean))  # as they are
    assert any(abs(record.reward_mean) > 0.5 for record in later)  # no share of sevens is that, unscaled


def test_a_tokenizer_without_a_chat_template_is_refused(tmp_path: Path, policy_folder: Path) -> None:
    tokenizer = tiny_policy.make_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path / "bare")
    tiny_policy.make_policy(seed=0).save_pretrained(tmp_path / "bare")
    config = config_of(tmp_path, tmp_path / "bare")
    with pytest.raises(ConfigError, match=r"policy\.path: .* has no chat template"):
        trained(config, share_of_sevens)


def test_the_command_names_a_wrong_field_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.yaml").write_text("reward: {pool: 1}")
    assert main([str(tmp_path / "train.yaml")]) == 1
    assert capsys.readouterr().err.startswith("error: policy: Field required")


def test_the_first_and_last_means_are_over_five_steps_weighted_by_samples() -> None:
    def record(step: int) -> StepRecord:
        names = "reward_std response_tokens_mean staleness_mean loss clip_fraction is_cap_fraction approx_kl"
        names += " teacher_kl grad_norm"
        counts = "unscored zero_variance_groups sampling_rounds short_groups dropped_groups dropped_samples"
        counts += " dropped_tokens skipped_updates"
        empty = dict.fromkeys(names.split(), 0.0) | dict.fromkeys(counts.split(), 0)
        seconds = dict.fromkeys(("rollout_seconds", "reward_exposed_seconds", "update_seconds"), 1.0)
        scored = 10 if step == 1 else 30
        return StepRecord(
            step=step,
            reward_mean=float(step),
            scored=scored,
            components={},
            step_seconds=4.0,
            score_wait=ScoreWait(),
            **empty,
            **seconds,
        )

    totals = summarise(
        [record(step) for step in range(1, 13)], OutcomeTally(submitted=3, scored=2), retried=1, world_size=2
    )
    assert totals["reward_mean_first"] == pytest.approx((1 * 10 + (2 + 3 + 4 + 5) * 30) / 130)
    assert totals["reward_mean_last"] == pytest.approx(10.0)
    assert (totals["lost"], totals["retried"], totals["reward_window_steps"]) == (1, 1, 5)
    assert totals["seconds"] == {"total": 48.0, "rollout": 12.0, "reward_exposed": 12.0, "update": 12.0}


def test_the_trained_policy_can_be_loaded_again(tmp_path: Path, policy_folder: Path) -> None:
    config = config_of(tmp_path, policy_folder, steps=1)
    with join_job(deadline_seconds=60) as ranks:
        trainer = Trainer(config, ranks=ranks, reward=FakeReward(share_of_sevens))
        trainer.run(lambda record: None)
        trainer.save_policy()
    from transformers import AutoModelForCausalLM

    saved = AutoModelForCausalLM.from_pretrained(config.output / "policy")
    start = dict(tiny_policy.make_policy(seed=0).named_parameters())
    assert any(not torch.equal(weight, start[name]) for name, weight in saved.named_parameters())


def test_a_job_that_is_told_to_end_ends_after_its_step_with_nothing_lost(tmp_path: Path, policy_folder: Path) -> None:
    with join_job(deadline_seconds=60) as ranks:
        config = config_of(tmp_path, policy_folder, steps=100)
        trainer = Trainer(config, ranks=ranks, reward=FakeReward(share_of_sevens))
        records = trainer.run(lambda record: None, should_stop=lambda: True)
    assert (len(records), trainer.tally.lost) == (1, 0)


class NotedDemand(JobDemand):
    """A job's demand that tells nobody, and notes the phases it is told."""

    def __init__(self) -> None:
        super().__init__("job", Cadence("job", GivenCadence()))
        self.told: list[str] = []

    def rollout(self, *, samples: int | None = None) -> None:
        super().rollout(samples=samples)
        self.told.append("rollout")

    def update(self) -> None:
        super().update()
        self.told.append("update")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.told.append("waiting")
        with super().waiting():
            yield


def test_the_phases_of_every_step_are_told(tmp_path: Path, policy_folder: Path) -> None:
    demand = NotedDemand()
    with join_job(deadline_seconds=60) as ranks:
        config = config_of(tmp_path, policy_folder, steps=2)
        reward = FakeReward(share_of_sevens)
        Trainer(config, ranks=ranks, reward=reward, demand=demand).run(lambda record: None)
    assert demand.told == ["rollout", "waiting", "update", "waiting", "update"] * 2
    assert demand.now().phase == "Update"


def test_sigterm_tells_a_job_to_end_instead_of_ending_it() -> None:
    with _stop_on(signal.SIGTERM) as should_stop:
        before = should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert (before, should_stop()) == (False, True)
