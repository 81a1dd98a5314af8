import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from support import tiny_policy

from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.rollout import TransformersEngine
from rewardpool_train.actor.rollout.transformers_engine import EndWatcher
from rewardpool_train.actor.tokens import Forward, compute_log_probs
from rewardpool_train.pipeline.parts import GroupTask

PROMPTS = [[1, 2, 3], [4], [5, 6]]
MAX_NEW_TOKENS = 24
TEMPERATURE = 0.7


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def engine(policy: Any, thread: ThreadPoolExecutor) -> TransformersEngine:
    return engine_of(policy, thread)


def engine_of(
    policy: Any, thread: ThreadPoolExecutor, *, seed: int = 0, end_ids: Sequence[int] = (tiny_policy.END,)
) -> TransformersEngine:
    return TransformersEngine(
        policy,
        pad_id=tiny_policy.PAD,
        end_ids=end_ids,
        encode=lambda prompt: PROMPTS[int(prompt.prompt)],
        max_new_tokens=MAX_NEW_TOKENS,
        temperature=TEMPERATURE,
        seed=seed,
        thread=thread,
    )


def tasks(*, first: int = 0, size: int = 4) -> list[GroupTask[Prompt]]:
    """A group for each prompt."""
    return [
        GroupTask(index=first + at, prompt=Prompt(prompt=str(at)), size=size, version=0) for at in range(len(PROMPTS))
    ]


def sampled(engine: TransformersEngine, *, first: int = 0) -> list[Trajectory]:
    rollouts: list[Trajectory] = []
    engine.generate(tasks(first=first), lambda task, member, rollout: rollouts.append(rollout))
    return sorted(rollouts, key=lambda rollout: (rollout.group, rollout.member))


def responses(rollouts: list[Trajectory]) -> list[list[int]]:
    return [list(rollout.response_ids) for rollout in rollouts]


def test_a_rollout_is_handed_over_while_others_are_still_being_written(engine: TransformersEngine) -> None:
    written: list[tuple[int, int]] = []  # tokens that the policy had written to each row, and the response's length
    width = 0

    def count_tokens(*_: Any) -> None:
        nonlocal width
        width += 1

    engine.model.register_forward_hook(count_tokens)
    engine.generate(tasks(), lambda task, member, rollout: written.append((width, len(rollout.response_ids))))
    assert written[0] < written[-1]
    assert all(tokens == length for tokens, length in written)


def test_a_response_ends_with_its_end_token_or_at_the_limit(engine: TransformersEngine) -> None:
    for rollout in sampled(engine):
        assert rollout.response_ids.count(tiny_policy.END) == rollout.ended
        assert rollout.ended or len(rollout.response_ids) == MAX_NEW_TOKENS


def test_each_of_several_end_tokens_ends_a_response(policy: Any, thread: ThreadPoolExecutor) -> None:
    rollouts = sampled(engine_of(policy, thread, end_ids=[tiny_policy.END, 7]))
    assert {rollout.response_ids[-1] for rollout in rollouts if rollout.ended} == {tiny_policy.END, 7}
    assert not {tiny_policy.END, 7} & {token for rollout in rollouts for token in rollout.response_ids[:-1]}


def test_the_models_own_generation_config_does_not_shape_the_sampling(policy: Any, thread: ThreadPoolExecutor) -> None:
    policy.generation_config.repetition_penalty = 5.0
    assert sampled(engine_of(policy, thread)) == sampled(engine_of(tiny_policy.make_policy(seed=0), thread))


def test_every_member_of_every_group_is_sampled_once_from_its_own_prompt(engine: TransformersEngine) -> None:
    rollouts = sampled(engine)
    assert [(rollout.group, rollout.member) for rollout in rollouts] == [(g, m) for g in range(3) for m in range(4)]
    assert [rollout.prompt_ids for rollout in rollouts] == [prompt for prompt in PROMPTS for _ in range(4)]


def test_seed_and_group_decide_the_responses(policy: Any, thread: ThreadPoolExecutor) -> None:
    first, again, other = (engine_of(policy, thread, seed=seed) for seed in (1, 1, 2))
    assert sampled(first) == sampled(again)
    assert responses(sampled(first)) != responses(sampled(first, first=3))
    assert responses(sampled(first)) != responses(sampled(other))


def test_log_probabilities_are_those_that_the_tokens_were_drawn_by(engine: TransformersEngine) -> None:
    rollouts = sampled(engine)
    forward = Forward(pad_id=tiny_policy.PAD, device=torch.device("cpu"), temperature=TEMPERATURE)
    for rollout, expected in zip(rollouts, compute_log_probs(engine.model, rollouts, forward=forward), strict=True):
        torch.testing.assert_close(torch.tensor(rollout.log_probs), expected, atol=1e-4, rtol=0)


def test_new_weights_change_the_version_and_the_responses(engine: TransformersEngine) -> None:
    class OtherWeights:
        def copy_weights_to(self, model: Any) -> None:
            model.load_state_dict(tiny_policy.make_policy(seed=1).state_dict())

    before = sampled(engine)
    engine.load(OtherWeights(), 7)  # type: ignore[arg-type]
    after = sampled(engine)
    assert responses(before) != responses(after)
    assert {rollout.version for rollout in before} == {0}
    assert {rollout.version for rollout in after} == {7}


async def test_a_cancelled_rollout_ends_at_the_next_token(
    engine: TransformersEngine, thread: ThreadPoolExecutor
) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        began.set()
        goes_on.wait(30)

    engine.model.register_forward_hook(hold)
    ended: list[Trajectory] = []
    rolling = asyncio.create_task(engine.roll_out(tasks(), lambda task, member, rollout: ended.append(rollout)))
    await asyncio.to_thread(began.wait, 30)
    rolling.cancel()
    await asyncio.sleep(0)  # the cancellation arrives
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await rolling
    assert thread.submit(lambda: "free").result(30) == "free"
    assert len(ended) < 12


def test_each_row_is_reported_once_although_it_is_padded_with_the_end_token() -> None:
    reported: list[tuple[int, list[int], list[float], bool]] = []
    watcher = EndWatcher(
        prompt_width=1,
        max_new_tokens=3,
        end_ids=[9],
        log_probs_of=lambda tokens: -tokens.float(),
        on_row=lambda *row: reported.append(row),
    )
    tokens = torch.tensor([[1, 9, 9, 9], [1, 2, 3, 9], [1, 2, 3, 4]])
    for width in (2, 3, 4):
        assert not watcher(tokens[:, :width], None).any()
    assert reported == [
        (0, [9], [-9.0], True),
        (1, [2, 3, 9], [-2.0, -3.0, -9.0], True),
        (2, [2, 3, 4], [-2.0, -3.0, -4.0], False),
    ]
