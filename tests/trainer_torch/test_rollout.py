from typing import Any

import pytest
import torch
from support import tiny_policy

from rewardpool.actor.data import Rollout
from rewardpool.actor.rollout import EndWatcher, RolloutEngine

PROMPTS = [[1, 2, 3], [4], [5, 6]]
MAX_NEW_TOKENS = 24


@pytest.fixture
def engine(policy: Any) -> RolloutEngine:
    return RolloutEngine(policy, tiny_policy.make_tokenizer(), max_new_tokens=MAX_NEW_TOKENS, temperature=1.0)


def sampled(engine: RolloutEngine, *, seed: int) -> list[Rollout]:
    return engine.generate(PROMPTS, group_size=4, seed=seed, on_end=lambda rollout: None)


def test_a_rollout_is_handed_over_while_others_are_still_being_written(engine: RolloutEngine) -> None:
    written: list[int] = []  # tokens that the policy had written to each row, when a rollout was handed over
    width = 0

    def count_tokens(*_: Any) -> None:
        nonlocal width
        width += 1

    engine.model.register_forward_hook(count_tokens)
    rollouts = engine.generate(PROMPTS, group_size=4, seed=3, on_end=lambda rollout: written.append(width))
    assert written[0] < written[-1]
    assert sorted(written) == sorted(len(rollout.response_ids) for rollout in rollouts)


def test_a_response_ends_with_its_end_token_or_at_the_limit(engine: RolloutEngine) -> None:
    for rollout in sampled(engine, seed=3):
        assert rollout.response_ids.count(tiny_policy.END) == rollout.ended
        assert rollout.ended or len(rollout.response_ids) == MAX_NEW_TOKENS


def test_rollouts_come_back_by_prompt_with_their_own_tokens(engine: RolloutEngine) -> None:
    rollouts = sampled(engine, seed=3)
    assert [(rollout.group, rollout.member) for rollout in rollouts] == [(g, m) for g in range(3) for m in range(4)]
    assert [rollout.prompt_ids for rollout in rollouts] == [prompt for prompt in PROMPTS for _ in range(4)]


def test_the_seed_decides_the_responses(engine: RolloutEngine) -> None:
    assert sampled(engine, seed=1) == sampled(engine, seed=1)
    assert sampled(engine, seed=1) != sampled(engine, seed=2)


def test_each_row_is_reported_once_although_it_is_padded_with_the_end_token() -> None:
    reported: list[tuple[int, list[int], bool]] = []
    watcher = EndWatcher(prompt_width=1, max_new_tokens=3, end_ids=[9], on_row=lambda *row: reported.append(row))
    tokens = torch.tensor([[1, 9, 9, 9], [1, 2, 3, 9], [1, 2, 3, 4]])
    for width in (2, 3, 4):
        assert not watcher(tokens[:, :width], None).any()
    assert reported == [(0, [9], True), (1, [2, 3, 9], True), (2, [2, 3, 4], False)]
