"""What TRL's call becomes, without TRL: its real trainer is in tests/frameworks."""

import asyncio
import pickle
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rewardpool.trl
from rewardpool._rewards import Episode, Rating
from rewardpool._rewards.rows import split, text_of
from rewardpool.errors import ConfigError, FunctionFailedError, InvalidSampleError
from rewardpool_api.contract import FAULTS


def share_right(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    if solution_str == "boom":
        raise ValueError("no")
    return float(solution_str == ground_truth) + extra_info.get("bonus", 0.0)


def better_than_the_mean(ratings: list[Rating]) -> list[float | None]:
    totals = [rating.total or 0.0 for rating in ratings]
    return [total - sum(totals) / len(totals) for total in totals]


RULE = {"function": share_right, "name": "rule"}
ROWS: dict[str, Any] = {"prompts": ["2+2", "2+2"], "completions": ["4", "5"], "completion_ids": [[4], [5]]}


async def test_columns_become_what_reward_functions_are_given() -> None:
    reward = rewardpool.trl.reward(RULE, ground_truth="solution", extra_info=["bonus"])
    assert await reward(**ROWS, solution=["4", "4"], bonus=[0.5, 0.25]) == [1.5, 0.25]
    reward.close()


async def test_columns_of_the_usual_names_need_no_words() -> None:
    reward = rewardpool.trl.reward(RULE)
    assert await reward(**ROWS, ground_truth=["4", "4"], extra_info=[None, {"bonus": 2.0}]) == [1.0, 2.0]
    assert await reward(**ROWS, ground_truth=["4", "4"], extra_info=[float("nan"), '{"bonus": 2.0}']) == [1.0, 2.0]
    reward.close()


async def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    reward = rewardpool.trl.reward(RULE, ground_truth="solution")
    with pytest.raises(ConfigError, match=r"trl\.reward\.ground_truth: .* no column solution; it has answer"):
        await reward(**ROWS, answer=["4", "4"])


def test_a_wrong_field_is_refused_before_any_training() -> None:
    with pytest.raises(ConfigError, match=r"^trl\.reward\.pool"):
        rewardpool.trl.reward("skywork")


def test_a_blocking_one_is_a_plain_function() -> None:
    reward = rewardpool.trl.reward(RULE, blocking=True)
    assert reward(**ROWS, ground_truth=["4", "5"]) == [1.0, 1.0]
    reward.close()


async def test_one_that_was_pickled_after_use_works_on() -> None:
    reward = rewardpool.trl.reward(RULE)
    before = await reward(**ROWS, ground_truth=["4", "4"])
    copied = pickle.loads(pickle.dumps(reward))
    assert await copied(**ROWS, ground_truth=["4", "4"]) == before
    assert copied.__name__ == "rule"
    reward.close()
    copied.close()


def test_every_event_loop_may_call_it() -> None:
    reward = rewardpool.trl.reward(RULE)
    results = [asyncio.run(reward(**ROWS, ground_truth=["4", "4"])) for _ in range(2)]
    assert results == [[1.0, 0.0]] * 2
    reward.close()


async def test_a_failure_is_raised_and_none_only_where_it_was_asked_for() -> None:
    rows = ROWS | {"completions": ["4", "boom"], "ground_truth": ["4", "4"]}
    strict = rewardpool.trl.reward(RULE)
    lenient = rewardpool.trl.reward(RULE, on_failure="skip", only_reward=True)
    with pytest.raises(FunctionFailedError, match="sample row 1: "):
        await strict(**rows)
    assert await lenient(**rows) == [1.0, None]
    strict.close()
    lenient.close()


class FakeTrainer:
    """What a GRPO or RLOO trainer shows of itself to a reward function."""

    def __init__(self, *reward_funcs: Any) -> None:
        self.reward_funcs = list(reward_funcs)

    def log_metric(self, name: str, value: float) -> None:
        """Do nothing."""


async def test_the_share_of_a_step_that_is_waited_for_scores_is_logged_from_the_second_call_on() -> None:
    trainer = FakeTrainer()
    logged: list[dict[str, float]] = []
    trainer.log_metric = lambda name, value: logged[-1].update({name: value})  # type: ignore[method-assign]
    reward = rewardpool.trl.reward(RULE)
    for _ in range(2):
        logged.append({})
        await reward(**ROWS, ground_truth=["4", "4"], trainer_state=object(), log_metric=trainer.log_metric)
    reward.close()
    first, second = ({name for name in one if "score_wait" in name} for one in logged)
    assert (first, len(second)) == (set(), 6)
    assert 0 < logged[1]["rule/score_wait/share"] <= 1


def gives_none(ratings: list[Rating]) -> list[float | None]:
    return [None] * len(ratings)


async def test_none_is_handed_on_where_the_trainer_leaves_it_out() -> None:
    reward = rewardpool.trl.reward(RULE, on_failure="skip")
    rows = ROWS | {"completions": ["4", "boom"], "ground_truth": ["4", "4"]}
    assert await reward(**rows, log_metric=FakeTrainer(reward).log_metric) == [1.0, None]
    reward.close()


@pytest.mark.parametrize(
    ("passed", "problem"),
    [
        ({"log_metric": FakeTrainer(len, len).log_metric}, r"on_failure: .*several reward functions \(here 2\)"),
        ({"trainer_state": object()}, "on_failure: must be raise with this trainer"),  # OnlineDPO, SDPO
        ({}, "only_reward: must be true"),  # AsyncGRPO's child process
    ],
)
@pytest.mark.parametrize("completion", ["4", "boom"])
async def test_a_reward_that_may_give_none_is_refused_where_that_would_count_as_0(
    passed: Mapping[str, Any], problem: str, completion: str
) -> None:
    reward = rewardpool.trl.reward(RULE, on_failure="skip")
    with pytest.raises(ConfigError, match=problem):
        await reward(**ROWS | {"completions": ["4", completion]}, ground_truth=["4", "4"], **passed)
    reward.close()


async def test_none_of_post_process_is_refused_where_it_would_count_as_0() -> None:
    reward = rewardpool.trl.reward(RULE | {"post_process": gives_none})
    with pytest.raises(ConfigError, match=r"trl\.reward\.on_failure"):
        await reward(**ROWS, ground_truth=["4", "4"], log_metric=FakeTrainer(len, len).log_metric)
    reward.close()


async def test_parts_are_told_to_the_log() -> None:
    metrics: dict[str, float] = {}
    columns: dict[str, list[Any]] = {}
    reward = rewardpool.trl.reward({"rewards": [RULE, RULE | {"name": "again", "weight": 2.0}]})
    totals = await reward(
        **ROWS,
        ground_truth=["4", "4"],
        log_metric=metrics.__setitem__,
        log_extra=columns.__setitem__,
        trainer_state=None,
    )
    assert totals == [3.0, 0.0]
    assert metrics.pop("rewardpool/seconds") >= 0
    assert [metrics.pop(f"rewardpool/failed/{fault}") for fault in FAULTS] == [0.0] * 4
    assert metrics == {"rewardpool/unscored": 0.0, "rewardpool/rule/mean": 0.5, "rewardpool/again/mean": 0.5}
    assert columns == {"rewardpool/rule": [1.0, 0.0], "rewardpool/again": [1.0, 0.0]}
    reward.close()


def share_of_steps(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
    return {"score": 0.5, "steps": [1.0, 0.5]}


async def test_the_values_of_steps_are_a_column_of_the_log() -> None:
    columns: dict[str, list[Any]] = {}
    reward = rewardpool.trl.reward({"function": share_of_steps, "name": "prm"})
    assert await reward(**ROWS, log_extra=columns.__setitem__) == [0.5, 0.5]
    assert columns == {"prm/prm/steps": [[1.0, 0.5], [1.0, 0.5]]}
    reward.close()


def with_accuracy(solution_str: str, ground_truth: Any, **_: Any) -> dict[str, Any]:
    return {"score": 0.5, "acc": solution_str == ground_truth} | ({"pred": 5} if solution_str == "5" else {})


async def test_what_a_function_returns_beside_its_score_is_columns_of_the_log() -> None:
    columns: dict[str, list[Any]] = {}
    reward = rewardpool.trl.reward({"function": with_accuracy, "name": "rule"})
    assert await reward(**ROWS, ground_truth=["4", "4"], log_extra=columns.__setitem__) == [0.5, 0.5]
    assert columns == {"rule/rule/acc": [True, False], "rule/rule/pred": [None, 5]}
    reward.close()


def test_rewards_of_steps_are_refused_because_trl_would_drop_them() -> None:
    with pytest.raises(ConfigError, match=r"^trl\.reward\.supervision: must be outcome"):
        rewardpool.trl.reward({"pool": "rl/prm", "supervision": "process"})


async def test_rows_of_one_prompt_are_rated_as_a_group() -> None:
    reward = rewardpool.trl.reward(RULE | {"post_process": better_than_the_mean})
    rows = {"prompts": ["a", "b", "a", "b"], "completions": ["1", "1", "0", "1"]}
    assert await reward(**rows, ground_truth=["1"] * 4) == [0.5, 0.0, -0.5, 0.0]
    reward.close()


@pytest.mark.parametrize(
    "columns", [{"ground_truth": ["1", "0", "1", "0"]}, {"extra_info": [{"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}]}]
)
async def test_two_problems_of_one_text_are_two_groups(columns: dict[str, Any]) -> None:
    reward = rewardpool.trl.reward({"function": length, "post_process": better_than_the_mean})
    assert await reward(prompts=["a"] * 4, completions=["1", "1", "333", "1"], **columns) == [-1.0, 0.0, 1.0, 0.0]
    reward.close()


def length(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    return float(len(solution_str))


class StandInTrainer:
    """What is seen of TRL's trainer."""

    num_generations, num_generations_eval = 2, 1

    def __init__(self, *, training: bool) -> None:
        self.model = SimpleNamespace(training=training)

    def log_metric(self, name: str, value: float) -> None:
        """Log nothing."""


async def test_groups_are_the_trainers_where_it_can_be_seen() -> None:
    """Two problems whose rows are equal in everything, and fields of each row that a rollout function added."""
    reward = rewardpool.trl.reward({"function": length, "post_process": better_than_the_mean})
    rows = {"prompts": ["a"] * 4, "completions": ["1", "333", "1", "1"], "extra_info": [{"of": n} for n in range(4)]}
    found = {
        training: await reward(**rows, log_metric=StandInTrainer(training=training).log_metric)
        for training in (True, False)
    }
    assert found == {True: [-1.0, 1.0, 0.0, 0.0], False: [0.0] * 4}
    reward.close()


@pytest.mark.parametrize(
    ("prompts", "groups"),
    [
        (["a", "a", "b", "b"], [0, 0, 1, 1]),
        (["a", "b", "b", "a"], [0, 1, 1, 0]),  # not its order, so by what they are
        (["a", "b", "b"], [0, 1, 1]),  # the first group is another process's too
    ],
)
def test_rows_that_are_no_whole_groups_are_grouped_by_what_they_are(prompts: list[str], groups: list[int]) -> None:
    assert rewardpool.trl.groups_in(prompts, [{}] * len(prompts), {}, size=2) == groups


def test_pictures_tell_problems_apart() -> None:
    pictures = {"image": [np.zeros(2), np.ones(2), np.zeros(2), np.ones(2)]}
    assert rewardpool.trl.groups_in(["a"] * 4, [{}] * 4, pictures, size=None) == [0, 1, 0, 1]


CHAT = [{"role": "user", "content": "hi"}]
CALL = {"role": "assistant", "content": None, "tool_calls": [{}]}
TOOL = {"role": "tool", "content": "12"}
LAST = {"role": "assistant", "content": [{"type": "text", "text": "it is "}, {"type": "text", "text": "12"}]}


@pytest.mark.parametrize(
    ("prompt", "completion", "expected"),
    [
        ("hi", "yo", ("hi", "yo")),
        (CHAT, [{"role": "assistant", "content": "yo"}], (CHAT, "yo")),
        ("hi", [{"role": "assistant", "content": "yo"}], (CHAT, "yo")),
        (CHAT, [CALL, TOOL, LAST], ([*CHAT, CALL, TOOL], "it is 12")),
    ],
)
def test_the_response_is_what_the_assistant_said_last(prompt: Any, completion: Any, expected: tuple[Any, str]) -> None:
    assert split(prompt, completion) == {"prompt": expected[0], "response": expected[1]}


def test_a_completion_without_a_last_word_has_none_made_up() -> None:
    assert Episode(**split(CHAT, [CALL, TOOL])).messages() == [*CHAT, {**CALL, "content": ""}, TOOL]
    called = {**CALL, "content": "Let me see."}
    episode = Episode(**split("hi", [called]))
    assert (episode.response, episode.messages()) == ("Let me see.", [*CHAT, called])


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidSampleError, match="content of type image"):
        text_of([{"type": "image"}])
    with pytest.raises(InvalidSampleError, match="no messages"):
        split(CHAT, [])
