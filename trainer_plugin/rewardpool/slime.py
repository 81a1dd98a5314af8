"""slime: a pool, or any other reward, as `--custom-rm-path rewardpool.slime.custom_rm`.

slime (source of August 2026, slime/rollout/rm_hub) awaits it with one sample, or with a list of them under `--group-rm`
and for rollouts of several samples. The reward's config is the key `reward` of the file that `--custom-config-path`
names; without one, the pool of $REWARDPOOL_POOL. Nothing of slime is imported.

With `--custom-reward-post-process-path rewardpool.slime.leave_out_unscored` samples may be unscored: their rewards are
NaN until slime normalises the rewards of a rollout, which that function does without them. Without it a sample that has
no score is an error, because slime would take its reward into the mean of its group.
"""

import asyncio
import itertools
import json
import math
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rewardpool._deadline import waited
from rewardpool._gateway.wire import reads_prompts, scored, slime_answer
from rewardpool._policy.text import PolicyText, prompt_tail
from rewardpool._rewards.announced import JobFacts
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.lazy import LazyReward
from rewardpool._rewards.rating import Rating
from rewardpool.errors import ConfigError, InvalidSampleError

Answer = float | dict[str, float | str | None] | None

POST_PROCESS = "rewardpool.slime.leave_out_unscored"
# slime's estimators for which it subtracts the mean of a group.
NORMALISED = frozenset({"grpo", "gspo", "reinforce_plus_plus_baseline"})
# Those of them for which it divides by the standard deviation of a sample, plus `EPSILON`.
DIVIDED = frozenset({"grpo", "gspo"})
EPSILON = 1e-6


class SlimeSample(Protocol):
    """The fields that are used of `slime.utils.types.Sample`."""

    prompt: str | list[dict[str, str]]
    response: str
    response_length: int
    label: str | None
    metadata: dict[str, Any]
    index: int | None
    group_index: int | None
    status: Any
    reward: Any
    loss_mask: list[int] | None


async def custom_rm(args: Any, sample: SlimeSample | Sequence[SlimeSample], **_: Any) -> Answer | list[Answer]:
    """The reward of a sample, or those of several in their order.

    Args:
        args: slime's; of these `reward`, `hf_checkpoint` and `reward_key` are used, and for the
            demand `rollout_batch_size`, `n_samples_per_prompt` and `dynamic_sampling_filter_path`.
        sample: One, or a list; of a list, those with the same `group_index` are a group.

    Returns:
        The total, NaN for a sample without one; with `--reward-key`, an object with `total` and every part's raw score.

    Raises:
        SampleError: A sample has no score, under the failure policy `raise` or without `leave_out_unscored`.
        PoolError: A pool cannot be used.
        ConfigError: The config is wrong, or what `open_reward` raises.
    """
    began = time.monotonic()
    lazy, text = await asyncio.to_thread(_from_args, args)
    samples = list(sample) if isinstance(sample, Sequence) else [sample]
    opened = lazy.opened()
    if opened.needs_group and not isinstance(sample, Sequence):
        raise ConfigError("reward", "compares the responses to a prompt, and is given single samples; set --group-rm")
    strict = reads_prompts(opened.pools.values())
    with waited(time.monotonic() - began):
        episodes = [episode_of(one, text, strict=strict) for one in samples]
        ratings: Sequence[Rating]
        if isinstance(sample, Sequence):
            ratings = await lazy.rate_batch(episodes)
        else:  # slime has the scores of others of its group already
            ratings = [await lazy.rate_next(episodes[0])]
    if getattr(args, "custom_reward_post_process_path", None) != POST_PROCESS:
        scored(ratings)
    ratings = [rating if rating.total is not None else replace(rating, total=math.nan) for rating in ratings]
    answers = [slime_answer(rating, with_parts=bool(getattr(args, "reward_key", None))) for rating in ratings]
    return answers if isinstance(sample, Sequence) else answers[0]


def leave_out_unscored(args: Any, samples: Sequence[SlimeSample]) -> tuple[list[float], list[float]]:
    """Normalise the rewards of a rollout as slime does, without the samples that have none.

    Such a sample has the reward 0 and no tokens in the loss. So has a sample whose group has no other score.

    Args:
        args: slime's; of these `advantage_estimator`, `rewards_normalization` and `grpo_std_normalization` are used,
            and `reward_key`.
        samples: Of the rollout; those of one prompt have the same `group_index`. `loss_mask` is set for those that are
            left out.

    Returns:
        The raw rewards, NaN for those without one, and the normalised ones, each of shape (samples,).
    """
    key = getattr(args, "reward_key", None)
    raw = [float(sample.reward[key] if key else sample.reward) for sample in samples]
    normalises = args.rewards_normalization and args.advantage_estimator in NORMALISED
    by_deviation = args.grpo_std_normalization and args.advantage_estimator in DIVIDED
    groups: dict[Any, list[int]] = {}
    for row, sample in enumerate(samples):
        groups.setdefault(row if sample.group_index is None else sample.group_index, []).append(row)
    rewards = [0.0] * len(samples)
    for rows in groups.values():
        known = [row for row in rows if not math.isnan(raw[row])]
        goes_on = len(known) > 1 or len(rows) == 1 or not normalises
        for row in known if goes_on else ():
            rewards[row] = raw[row]
        if normalises and len(known) > 1:
            mean = statistics.fmean(raw[row] for row in known)
            spread = statistics.stdev(raw[row] for row in known) + EPSILON if by_deviation else 1.0
            for row in known:
                rewards[row] = (raw[row] - mean) / spread
        for row in set(rows) - set(known if goes_on else ()):
            samples[row].loss_mask = [0] * samples[row].response_length
    return raw, rewards


def episode_of(sample: SlimeSample, text: PolicyText, *, strict: bool) -> Episode:
    """A sample as an episode.

    Raises:
        InvalidSampleError: As `PolicyText` does; or a model would read words of tools as the policy's own, or
            words without the pictures that belong to them.
    """
    label = "(unnamed)" if sample.index is None else f"sample {sample.index}"
    if strict and (problem := _unreadable(sample)) is not None:
        raise InvalidSampleError(label, problem)
    metadata = sample.metadata if isinstance(sample.metadata, Mapping) else {}
    return Episode(
        prompt=text.prompt(sample.prompt, strict=strict, label=label),
        response=text.response(sample.response, _response_ids(sample), label=label),
        prompt_tail=prompt_tail(sample.prompt),
        ground_truth=sample.label,
        data_source=str(metadata.get("data_source", "")),
        extra_info=metadata,
        group=sample.group_index,
        response_tokens=sample.response_length,
        truncated=getattr(sample.status, "value", None) == "truncated",
        id=None if sample.index is None else f"sample {sample.index}",
    )


def _response_ids(sample: SlimeSample) -> list[int] | None:
    """Return the response in the policy's tokens; None where the sample does not say."""
    tokens = getattr(sample, "tokens", None)
    return list(tokens[-sample.response_length :]) if tokens and sample.response_length else None


def _unreadable(sample: SlimeSample) -> str | None:
    """Return why a model cannot be shown a sample; None where it can."""
    # Tokens that are masked from the first one on are the policy's too: an earlier one's, in a partial rollout.
    if any(own and not after for own, after in itertools.pairwise(getattr(sample, "loss_mask", None) or ())):
        return (
            "its response has tokens that the policy did not write (loss_mask), and one text does not tell them apart"
        )
    if getattr(sample, "multimodal_inputs", None):
        return "it has multimodal_inputs, and models are sent text alone; score such samples by functions"
    return None


def announcement_of(args: Any) -> JobFacts:
    """Return the rollout that slime's arguments describe; its RolloutManager alone asks for rewards, and announces."""
    prompts, group = getattr(args, "rollout_batch_size", None), getattr(args, "n_samples_per_prompt", None)
    if not prompts or not group or getattr(args, "dynamic_sampling_filter_path", None):  # a filter: nobody knows
        return JobFacts(rank=0, ranks=1)
    return JobFacts(samples=prompts * group, group=group, rank=0, ranks=1)


def close() -> None:
    """Close what this process opened for `custom_rm`, which happens by itself as it exits; a later call opens anew."""
    with _lock:
        for lazy, _ in _opened.values():
            lazy.close()
        _opened.clear()


_lock = threading.Lock()
# By config: slime looks the function up by its path, so what it shares lives here.
_opened: dict[str, tuple[LazyReward, PolicyText]] = {}


def _from_args(args: Any) -> tuple[LazyReward, PolicyText]:
    """The reward that the arguments configure, opened, and how prompts are read. Raises RewardPoolError."""
    spec = getattr(args, "reward", None) or {}
    policy = args.hf_checkpoint  # whose special tokens are in the responses
    key = json.dumps([spec, policy], sort_keys=True, default=repr)
    with _lock:
        if key not in _opened:
            reward = LazyReward(spec, path="reward", announcement=announcement_of(args))
            _opened[key] = reward, PolicyText.load(policy, field="hf_checkpoint")
        lazy, text = _opened[key]
    lazy.opened()
    return lazy, text
