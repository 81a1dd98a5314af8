from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from support import tiny_policy

from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.packing import pack_rows
from rewardpool_train.actor.rollout import TransformersEngine
from rewardpool_train.actor.tokens import Forward, compute_log_probs
from rewardpool_train.pipeline.parts import GroupTask

CPU = torch.device("cpu")
PADDED = Forward(pad_id=tiny_policy.PAD, device=CPU, temperature=0.7)
PACKED = replace(PADDED, pack_tokens=20)


def rollout(prompt: list[int], response: list[int]) -> Trajectory:
    return Trajectory(group=0, member=0, prompt_ids=prompt, response_ids=response, ended=True)


TOGETHER = [
    rollout([1, 2, 3], [4, 5, tiny_policy.END]),
    rollout([6], [7, 8, 9, 1, tiny_policy.END]),
    rollout([2, 2], [tiny_policy.END]),
    rollout([5, 4, 3, 2, 1], [0, 1, 2, 3, 4, 5, 6]),
]


@pytest.mark.parametrize("forward", [PADDED, PACKED, replace(PADDED, micro_batch=3), replace(PADDED, pack_tokens=1)])
def test_log_probs_are_those_of_each_response_alone(policy: Any, forward: Forward) -> None:
    together = compute_log_probs(policy, TOGETHER, forward=forward)
    for found, single in zip(together, TOGETHER, strict=True):
        [alone] = compute_log_probs(policy, [single], forward=PADDED)
        assert torch.allclose(found, alone, atol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_no_token_of_a_packed_row_looks_over_a_border(policy: Any, attention: str) -> None:
    policy.set_attn_implementation(attention)
    other = [rollout([9, 9, 9], [8, 8, 8]), *TOGETHER[1:]]
    with torch.no_grad():
        rows, others = (replace(PACKED, pack_tokens=1000).log_probs(policy, row) for row in (TOGETHER, other))
    assert torch.equal(rows[1:], others[1:])


@pytest.mark.parametrize("forward", [PADDED, PACKED])
def test_log_probs_are_the_ones_that_were_sampled_from(policy: Any, forward: Forward) -> None:
    """Sampling at temperature 0.01 takes the likeliest token; its probability at that temperature is 1."""
    sampled: list[Trajectory] = []
    with ThreadPoolExecutor(1) as thread:
        engine = TransformersEngine(
            policy,
            pad_id=tiny_policy.PAD,
            end_ids=[tiny_policy.END],
            encode=lambda prompt: [1, 2],
            max_new_tokens=6,
            temperature=0.01,
            seed=0,
            thread=thread,
        )
        task = GroupTask(index=0, prompt=Prompt(prompt=""), size=1, version=0)
        engine.generate([task], lambda task, member, rollout: sampled.append(rollout))
    [log_probs] = compute_log_probs(policy, sampled, forward=replace(forward, temperature=0.01))
    assert log_probs.tolist() == pytest.approx([0.0] * len(sampled[0].response_ids), abs=1e-2)


@pytest.mark.parametrize(
    ("lengths", "budget", "rows"),
    [
        ([], 10, []),
        ([3, 7, 5, 5], 10, [[1, 0], [2, 3]]),
        ([4, 4, 4], 10, [[0, 1], [2]]),
        ([25, 1], 10, [[0], [1]]),  # longer than the budget: a row of its own
    ],
)
def test_rows_are_filled_with_the_longest_first(lengths: list[int], budget: int, rows: list[list[int]]) -> None:
    assert pack_rows(lengths, budget=budget) == rows


def test_every_rollout_is_in_one_row_and_no_row_is_over_the_budget() -> None:
    lengths = torch.randint(1, 30, (200,), generator=torch.Generator().manual_seed(0)).tolist()
    rows = pack_rows(lengths, budget=40)
    assert sorted(at for row in rows for at in row) == list(range(200))
    assert max(sum(lengths[at] for at in row) for row in rows) <= 40
    assert len(rows) <= 11 / 9 * -(-sum(lengths) // 40) + 1
