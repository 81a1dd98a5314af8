"""Rewards of steps: from a response through a process reward model's own tokens to the advantages of the policy's."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from support.byte_tokenizer import ROLES, TEMPLATE, byte_tokenizer
from support.fake_worker import FakeWorker, of_steps, refuses
from support.local_pool import POOL, on_this_machine, write_local_pool
from support.rates_single import RatesSingle
from support.tiny_job import tiny_job

from rewardpool._policy.steps import at_tokens
from rewardpool._rewards import Episode, Rating, open_reward
from rewardpool._rewards.rating import StepReward
from rewardpool._rewards.steps import steps_of
from rewardpool.errors import ConfigError, InvalidSampleError, ScoreError
from rewardpool_api.contract import CallerError
from rewardpool_train.actor.fsdp import FsdpActor, RatedRollout
from rewardpool_train.actor.ranks import join_job
from rewardpool_train.actor.records import StepRecord
from rewardpool_train.actor.trainer import Trainer
from rewardpool_train.advantages import process_advantages
from rewardpool_train.config import TrainConfig

STEP = "<|step|>"
EPISODE = Episode(prompt="2 + 2?", response="2 and 2.\n\nThat is 4.\n\n", id="e1")
PROCESS = {"pool": POOL, "supervision": "process"}


@pytest.fixture
def tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A reward model's, whose step token is a control token; its folder is that of the pool's model."""
    on_this_machine(monkeypatch, tmp_path / "state")
    found = byte_tokenizer(template=TEMPLATE, controls=[*ROLES, STEP])
    found.save_pretrained(tmp_path / "model")
    return found


def pool_at(tmp_path: Path, worker: FakeWorker, *, step_token: str | None = STEP) -> None:
    steps = {"aggregate": "last"} if step_token is None else {"aggregate": "min", "stepToken": step_token}
    head = {"type": "TokenLevel", **steps}
    write_local_pool(tmp_path / "state", url=worker.url, source=f"file://{tmp_path / 'model'}", head=head)


async def test_each_step_is_shown_with_the_step_token_at_its_end_though_that_is_a_control_token(
    tmp_path: Path, tokenizer: Any
) -> None:
    async with FakeWorker(of_steps(0.9, 0.2)) as worker:
        pool_at(tmp_path, worker)
        async with open_reward(POOL) as reward:
            rating = await reward.rate(EPISODE)
    shown = tokenizer.decode(worker.requests[0]["input"])
    assert shown == f"<|user|>2 + 2?<|end|><|assistant|>2 and 2.{STEP}That is 4.{STEP}<|end|>"
    assert (rating.total, rating.steps, rating.info) == (0.2, None, {"skywork": {"steps": [0.9, 0.2]}})


async def test_a_response_that_writes_the_step_token_itself_has_no_further_step(tmp_path: Path, tokenizer: Any) -> None:
    async with FakeWorker(of_steps(0.9)) as worker:
        pool_at(tmp_path, worker)
        async with open_reward(POOL) as reward:
            rating = await reward.rate(Episode(prompt="?", response=f"4{STEP}right"))
    assert worker.requests[0]["input"].count(tokenizer.convert_tokens_to_ids(STEP)) == 1
    assert rating.total == 0.9


async def test_under_process_supervision_each_step_has_its_reward_where_it_ends(tmp_path: Path, tokenizer: Any) -> None:
    async with FakeWorker(of_steps(0.9, 0.2)) as worker:
        pool_at(tmp_path, worker)
        async with open_reward({**PROCESS, "weight": 2, "clip": [0.3, 1]}) as reward:
            rating = await reward.rate(EPISODE)
    assert rating.total == 0.6
    assert rating.steps == (StepReward(value=1.8, end=8), StepReward(value=0.6, end=len(EPISODE.response)))


async def test_a_step_token_that_is_a_plain_word_is_counted_and_said_by_nobody_else(
    tmp_path: Path, tokenizer: Any
) -> None:
    async with FakeWorker(of_steps(0.9, 0.2)) as worker:
        pool_at(tmp_path, worker, step_token="#")
        async with open_reward(POOL) as reward:
            assert (await reward.rate(EPISODE)).total == 0.2
            with pytest.raises(InvalidSampleError, match=r"has 1 steps, and .* the step token '#' 2 times"):
                await reward.rate(Episode(prompt="Number #1?", response="4"))
    assert len(worker.requests) == 1


@pytest.mark.parametrize("response", ["", " \n\n"])
async def test_a_blank_response_has_no_step_and_no_score(tmp_path: Path, tokenizer: Any, response: str) -> None:
    async with FakeWorker() as worker:
        pool_at(tmp_path, worker)
        async with open_reward({**PROCESS, "on_failure": "skip"}) as reward:
            rating = await reward.rate(Episode(prompt="?", response=response))
    assert (rating.total, rating.steps, worker.requests) == (None, None, [])
    assert "no step" in str(rating.error)


async def test_more_or_fewer_values_than_steps_are_not_a_score_and_a_penalty_is_one_step(
    tmp_path: Path, tokenizer: Any
) -> None:
    too_long = CallerError(code="sample_too_long", message="too long", length_tokens=9999, limit_tokens=9998)
    async with FakeWorker(of_steps(0.9), of_steps(0.9, 0.1), refuses(too_long)) as worker:
        pool_at(tmp_path, worker)
        async with open_reward(PROCESS) as reward:
            with pytest.raises(ScoreError, match="1 values for the 2 steps"):
                await reward.rate(EPISODE)
        async with open_reward({**PROCESS, "on_failure": {"policy": {"penalty": -1}}, "weight": 2}) as reward:
            await reward.rate(EPISODE)
            rating = await reward.rate(EPISODE)
    assert (rating.total, rating.components) == (-2.0, {"skywork": None})
    assert rating.steps == (StepReward(value=-2.0, end=len(EPISODE.response)),)


@pytest.mark.parametrize(
    ("spec", "step_token", "field", "said"),
    [
        (PROCESS, None, "reward.supervision", "has no steps"),
        ({"pool": POOL, "steps": {"separator": "\n"}}, None, "reward.steps", "has no steps"),
        ({"pool": POOL, "steps": {"token": "#"}}, STEP, "reward.steps.token", "leave it out"),
        (PROCESS, "<|stop|>", "reward.tokenizer", "no token '<|stop|>'"),
        (
            {"url": "http://127.0.0.1:9", "type": "Discriminative", "supervision": "process"},
            STEP,
            "reward.steps.token",
            "set it",
        ),
        (
            {"url": "http://127.0.0.1:9", "type": "Function", "supervision": "process"},
            STEP,
            "reward.supervision",
            "for a Disc",
        ),
    ],
)
async def test_what_has_no_steps_is_named_when_the_reward_is_opened(
    tmp_path: Path, tokenizer: Any, spec: dict[str, Any], step_token: str | None, field: str, said: str
) -> None:
    async with FakeWorker() as worker:
        pool_at(tmp_path, worker, step_token=step_token)
        with pytest.raises(ConfigError) as caught:
            async with open_reward(spec):
                pass
    assert caught.value.field == field
    assert said in caught.value.problem


async def test_of_a_url_the_config_names_the_step_token(tokenizer: Any) -> None:
    async with FakeWorker(of_steps(0.9, 0.2)) as worker:
        spec = {"url": worker.url, "type": "Discriminative", "supervision": "process", "steps": {"token": STEP}}
        async with open_reward(spec, tokenizer=tokenizer) as reward:
            rating = await reward.rate(EPISODE)
    assert rating.steps is not None
    assert [step.value for step in rating.steps] == [0.9, 0.2]


class DigitSteps(RatesSingle):
    """Stands in for a BlockingReward of a process reward model: a step's value is its share of sevens; 9 divides."""

    names = ("only",)

    def __init__(self, *, whole: bool = False) -> None:
        self._separator = "never" if whole else "9"

    def submit(self, episode: Episode) -> Future[Rating]:
        text = steps_of(episode.response, self._separator)
        begins = (0, *text.ends)
        steps = tuple(
            StepReward(value=episode.response[begin:end].count("7") / (end - begin), end=end)
            for begin, end in zip(begins, text.ends, strict=False)
        ) or (StepReward(value=0.0, end=0),)
        answer: Future[Rating] = Future()
        least = min(step.value for step in steps)
        answer.set_result(Rating(total=least, components={"only": least}, steps=steps))
        return answer


def config_of(tmp_path: Path, policy_folder: Path, **changes: Any) -> TrainConfig:
    reward = {"pool": "default/none", "supervision": "process"}
    return tiny_job(tmp_path, policy_folder, **{"reward": reward} | changes)


def trained(config: TrainConfig, reward: DigitSteps) -> list[StepRecord]:
    """Train alone, in this process."""
    with join_job(deadline_seconds=60) as ranks:
        return Trainer(config, ranks=ranks, reward=reward).run(lambda record: None)


def test_each_token_is_trained_by_the_rewards_of_its_step_and_of_those_after(
    tmp_path: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Sequence[RatedRollout]] = []
    update = FsdpActor.update
    monkeypatch.setattr(FsdpActor, "update", lambda self, batch: batches.append(batch) or update(self, batch))
    trained(config_of(tmp_path, policy_folder, steps=1), DigitSteps())
    for batch in batches:
        for group in (batch[:8], batch[8:]):
            ids = [one.rollout.response_ids for one in group]
            expected = process_advantages(
                [_steps_of(response) for response in ids], [len(response) for response in ids]
            )
            for one, advantages in zip(group, expected, strict=True):
                assert isinstance(one.advantage, torch.Tensor)
                assert one.advantage.tolist() == pytest.approx(advantages)
    changing = [one for batch in batches for one in batch if len(set(one.advantage.tolist())) > 1]
    assert changing


def _steps_of(response_ids: Sequence[int]) -> list[tuple[int, float]]:
    """By hand, from the policy's tokens: every digit is one, and the token that ends a response has no text."""
    pieces: list[list[int]] = [[]]
    for token, id_ in enumerate(response_ids):
        if id_ == 9:
            pieces.append([])
        elif id_ < 10:
            pieces[-1].append(token)
    # As DigitSteps, which counts the separator before a step as the step's.
    ends = [piece[-1] for piece in pieces if piece]
    text = [id_ for id_ in response_ids if id_ < 10]
    begins, stops = [0, *(end + 1 for end in ends[:-1])], [*(end + 1 for end in ends[:-1]), len(text)]
    values = [text[begin:stop].count(7) / (stop - begin) for begin, stop in zip(begins, stops, strict=False) if ends]
    return (
        list(zip([*ends[:-1], len(response_ids) - 1], values, strict=True)) if ends else [(len(response_ids) - 1, 0.0)]
    )


def test_with_one_step_a_response_a_job_is_the_same_as_under_outcome_supervision(
    tmp_path: Path, policy_folder: Path
) -> None:
    outcome = config_of(tmp_path, policy_folder, reward={"pool": "default/none"})
    process = config_of(tmp_path, policy_folder)
    by_outcome, by_steps = (trained(config, DigitSteps(whole=True)) for config in (outcome, process))
    assert [(one.loss, one.grad_norm) for one in by_steps] == [(one.loss, one.grad_norm) for one in by_outcome]


def test_a_job_goes_on_with_the_rewards_of_steps_that_a_checkpoint_has(tmp_path: Path, policy_folder: Path) -> None:
    changes: dict[str, Any] = {"schedule": "one_step_off_minibatch", "checkpoint": {"every_steps": 1}}
    _, whole = trained(config_of(tmp_path, policy_folder, output="whole", **changes), DigitSteps())
    parts = config_of(tmp_path, policy_folder, output="parts", **changes)
    with join_job(deadline_seconds=60) as ranks:
        Trainer(parts, ranks=ranks, reward=DigitSteps()).run(lambda record: None, should_stop=lambda: True)
        [rest] = Trainer(parts, ranks=ranks, reward=DigitSteps()).run(lambda record: None)
    assert (rest.step, rest.scored, rest.loss) == (whole.step, whole.scored, pytest.approx(whole.loss))


@pytest.mark.parametrize(
    ("update", "field"),
    [
        ({"ratio": "sequence"}, "update.ratio"),
        ({"algorithm": "gspo"}, "update.ratio"),
        ({"algorithm": "dapo"}, "update.dynamic_sampling_rounds"),
    ],
)
def test_an_update_that_cannot_go_by_steps_is_refused(
    tmp_path: Path, policy_folder: Path, update: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, policy_folder, update=update)
    assert caught.value.field == field


def test_a_score_without_steps_is_an_error_under_process_supervision() -> None:
    with pytest.raises(ScoreError, match="no step of it has one"):
        at_tokens(Rating(total=1.0, components={"only": 1.0}), EPISODE, [4], lambda ids: "4")
