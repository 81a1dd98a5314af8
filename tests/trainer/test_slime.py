"""What slime's call becomes. slime is on no package index, so its sample is a stand-in."""

import importlib
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from rewardpool._policy.text import PolicyText
from rewardpool._rewards import Rating
from rewardpool.errors import ConfigError, FunctionFailedError, InvalidSampleError
from rewardpool.slime import POST_PROCESS, custom_rm, episode_of, leave_out_unscored


class Status(Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"


@dataclass
class StandInSample:
    """Stands in for slime.utils.types.Sample."""

    response: str
    prompt: Any = "2+2="
    label: str | None = "4"
    index: int | None = 0
    group_index: int | None = 0
    response_length: int = 1
    status: Status = Status.COMPLETED
    metadata: dict[str, Any] = field(default_factory=dict)
    reward: Any = None
    loss_mask: list[int] | None = None
    tokens: list[int] = field(default_factory=list)
    multimodal_inputs: dict[str, Any] | None = None


class EndTokens:
    """Stands in for a tokenizer: 0 ends a response, other ids are characters."""

    eos_token = "</s>"

    def __init__(self) -> None:
        self.added_tokens_decoder = {0: SimpleNamespace(content="</s>", special=True)}

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        return "".join(chr(id_) if id_ else "</s>" for id_ in token_ids)


def right(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    if solution_str == "boom":
        raise ValueError("no")
    return float(solution_str == ground_truth) + extra_info.get("bonus", 0)


def above_the_mean(ratings: Sequence[Rating]) -> list[float | None]:
    totals = [rating.total or 0.0 for rating in ratings]
    return [total - sum(totals) / len(totals) for total in totals]


def arguments(**reward: Any) -> SimpleNamespace:
    return SimpleNamespace(reward={"function": right, **reward}, hf_checkpoint=None, reward_key=None)


async def test_one_sample_has_one_reward() -> None:
    assert await custom_rm(arguments(), StandInSample("4", metadata={"bonus": 2})) == 3.0


async def test_a_list_has_a_list_by_its_groups() -> None:
    samples = [StandInSample(response, group_index=group) for response, group in (("4", 0), ("4", 1), ("5", 0))]
    assert await custom_rm(arguments(), samples, evaluation=False) == [1.0, 1.0, 0.0]
    assert await custom_rm(arguments(post_process=above_the_mean), samples) == [0.5, 0.0, -0.5]


async def test_a_reward_that_compares_responses_is_refused_for_single_samples() -> None:
    with pytest.raises(ConfigError, match=r"^reward: .*--group-rm"):
        await custom_rm(arguments(post_process=above_the_mean), StandInSample("4", group_index=0))


async def test_a_reward_key_gets_an_object_with_the_parts() -> None:
    args = arguments()
    args.reward_key = "total"
    assert await custom_rm(args, StandInSample("4")) == {"total": 1.0, "fault": None, "right": 1.0}


@pytest.mark.parametrize("policy", ["raise", "skip"])
async def test_a_failure_is_raised_as_slime_knows_no_missing_reward(policy: str) -> None:
    with pytest.raises(FunctionFailedError, match="sample 7: "):
        await custom_rm(arguments(on_failure=policy), StandInSample("boom", index=7))


def of_estimator(estimator: str = "grpo", **changes: Any) -> SimpleNamespace:
    given = {"rewards_normalization": True, "grpo_std_normalization": True, "reward_key": None}
    return SimpleNamespace(advantage_estimator=estimator, **given | changes)


async def test_a_sample_is_unscored_where_slime_normalises_rewards_without_it() -> None:
    args = arguments(on_failure="skip")
    args.custom_reward_post_process_path = POST_PROCESS
    args.reward_key = "total"
    answer = await custom_rm(args, StandInSample("boom"))
    assert isinstance(answer, dict)
    assert math.isnan(answer["total"] or 0.0)
    assert answer["right"] is None


def test_an_unscored_sample_is_in_no_mean_and_has_no_tokens_in_the_loss() -> None:
    samples = [StandInSample("", response_length=2, reward=reward) for reward in (1.0, math.nan, 0.0, 0.0)]
    raw, rewards = leave_out_unscored(of_estimator(grpo_std_normalization=False), samples)
    assert rewards == pytest.approx([2 / 3, 0.0, -1 / 3, -1 / 3])
    assert math.isnan(raw[1])
    assert [sample.loss_mask for sample in samples] == [None, [0, 0], None, None]


@pytest.mark.parametrize(
    ("args", "rewards"),
    [
        (of_estimator(), [2**-0.5, -(2**-0.5), 0.0]),  # the standard deviation of a sample
        (of_estimator("reinforce_plus_plus_baseline"), [1.0, -1.0, 0.0]),
        (of_estimator("ppo"), [3.0, 1.0, 5.0]),
        (of_estimator(rewards_normalization=False), [3.0, 1.0, 5.0]),
    ],
)
def test_rewards_are_normalised_as_slime_does_by_group(args: Any, rewards: list[float]) -> None:
    samples = [StandInSample("", reward=reward, group_index=group) for reward, group in ((3.0, 0), (1.0, 0), (5.0, 1))]
    samples.append(StandInSample("", reward=math.nan, group_index=1))
    _, found = leave_out_unscored(args, samples)
    assert found[:3] == pytest.approx(rewards, abs=1e-5)
    assert found[3] == 0.0
    alone = samples[2].loss_mask
    assert alone == ([0] if rewards[2] == 0.0 else None)  # with nothing to compare with it teaches nothing


def test_the_post_process_is_known_by_its_path() -> None:
    module, _, name = POST_PROCESS.rpartition(".")
    assert getattr(importlib.import_module(module), name) is leave_out_unscored


async def test_a_wrong_config_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^reward\.weigth"):
        await custom_rm(arguments(weigth=1), StandInSample("4"))


def test_what_slime_knows_of_a_sample_is_handed_on() -> None:
    sample = StandInSample(
        "4", status=Status.TRUNCATED, response_length=9, group_index=3, metadata={"data_source": "gsm8k"}
    )
    episode = episode_of(sample, PolicyText(), strict=True)
    assert (episode.truncated, episode.response_tokens, episode.group) == (True, 9, 3)
    assert (episode.data_source, episode.ground_truth, episode.label) == ("gsm8k", "4", "sample 0")


def test_a_response_ends_where_the_policys_tokens_say() -> None:
    text = PolicyText(EndTokens())
    prompt, words, end = [9, 9], [ord(letter) for letter in "4</s>"], 0
    spelt = StandInSample("4</s>", response_length=len(words), tokens=[*prompt, *words])
    ended = StandInSample("4</s></s>", response_length=len(words) + 1, tokens=[*prompt, *words, end])
    assert [episode_of(sample, text, strict=True).response for sample in (spelt, ended)] == ["4</s>", "4</s>"]


def test_the_prompt_that_slime_tokenises_shows_whether_it_opens_thoughts() -> None:
    sample = StandInSample("so</think>4", prompt="2+2=<think>\n")
    assert episode_of(sample, PolicyText(), strict=True).without_reasoning().response == "4"


async def test_an_end_of_a_policy_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidSampleError, match="name the policy's tokenizer"):
        await custom_rm(arguments(), StandInSample("4<|im_end|>"))


def test_slime_awaits_it_with_its_arguments_a_sample_and_keywords() -> None:
    assert inspect.iscoroutinefunction(custom_rm)
    inspect.signature(custom_rm).bind(object(), object(), evaluation=True)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"loss_mask": [1, 1, 0, 0, 1]}, "sample 0: its response has tokens that the policy did not write"),
        ({"multimodal_inputs": {"images": [1]}}, "sample 0: it has multimodal_inputs"),
    ],
)
def test_what_a_model_would_take_for_the_policys_words_or_not_see_is_refused(fields: Any, problem: str) -> None:
    sample = StandInSample("4", **fields)
    with pytest.raises(InvalidSampleError, match=problem):
        episode_of(sample, PolicyText(), strict=True)
    assert episode_of(sample, PolicyText(), strict=False).response == "4"


def test_an_earlier_policys_tokens_are_the_policys_words() -> None:
    assert episode_of(StandInSample("4", loss_mask=[0, 0, 1]), PolicyText(), strict=True).response == "4"
