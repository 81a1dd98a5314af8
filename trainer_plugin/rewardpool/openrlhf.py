"""OpenRLHF: a pool, or any other reward, as a reward function file, without a server between.

The file's own path is enough, for the pool that $REWARDPOOL_POOL names:

    --reward.remote_url "$(python -c 'import rewardpool.openrlhf as module; print(module.__file__)')"

With more to say, write a file of two lines and give its path:

    from rewardpool.openrlhf import reward_function
    reward_func = reward_function("rl/skywork", policy_tokenizer="Qwen/Qwen2.5-7B-Instruct")

OpenRLHF (0.11) calls it for one sample at a time, each call in a thread of its own, and catches what it raises: the
failure is a line of its log and the sample has no reward. It is logged here as an error as well.

Which samples are a group it does not say. But each of its engines, a Ray actor, rolls a prompt out in one call, and
Ray's name of that call is known in whatever it calls: that is the name of the group.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from rewardpool._deadline import waited
from rewardpool._demand.job import ray_rank
from rewardpool._gateway.wire import Query, openrlhf_answer, reads_prompts, scored
from rewardpool._policy.text import PolicyText
from rewardpool._rewards.announced import JobFacts
from rewardpool._rewards.config import RewardLike
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.lazy import LazyReward
from rewardpool._rewards.rating import Rating
from rewardpool.errors import RevisionGoneError, RewardPoolError, SampleError

log = logging.getLogger(__name__)

# For `reward_func`: folder or hub name of the policy's tokenizer.
ENV_POLICY_TOKENIZER = "REWARDPOOL_POLICY_TOKENIZER"
# OpenRLHF's method of its engines that rolls out one prompt, all of its samples.
ROLLOUT: Final = "generate_responses"

RewardFunction = Callable[[Sequence[str], Sequence[str], Sequence[Any]], dict[str, Any]]


def reward_function(
    spec: RewardLike,
    *,
    policy_tokenizer: str | None = None,
    samples: int | None = None,
    tokenizer: Any = None,
    **overrides: Any,
) -> RewardFunction:
    """A `reward_func(queries, prompts, labels)`.

    It gives `rewards` and `scores`, tensors of shape (rows,), and `extra_logs`, for every part of the reward a tensor
    of raw scores. It raises SampleError (also for a sample that is unscored, which OpenRLHF cannot be told), PoolError
    and what `open_reward` raises.

    Args:
        spec: As for `open_reward`.
        policy_tokenizer: Folder or hub name of the policy's: OpenRLHF decodes responses with the special tokens that
            end them, and prompts with `--data.apply_chat_template` have its template.
        samples: Of one rollout, over all engines, for the demand that is announced to the pools.
        tokenizer: As for `open_reward`.
        overrides: As for `open_reward`.

    Raises:
        ConfigError: A field of `spec` is wrong, or the policy's tokenizer cannot be loaded.
    """
    rank = ray_rank()
    # Every engine is a Ray actor and has a function of its own, which sees the samples of that engine alone.
    announcement = JobFacts(samples=samples, rank=rank, ranks=None if rank is None else 2)
    lazy = LazyReward(spec, tokenizer=tokenizer, path="openrlhf.reward", announcement=announcement, **overrides)
    text = PolicyText.load(policy_tokenizer, field=f"policy_tokenizer or ${ENV_POLICY_TOKENIZER}")

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
        """Rate rows; each of the three has shape (rows,)."""
        import torch  # OpenRLHF has it

        query = Query(query=list(queries), prompts=list(prompts), labels=list(labels))
        try:
            began = time.monotonic()
            episodes = query.episodes(text, strict=reads_prompts(lazy.opened().pools.values()))
            group = group_of_call()
            with waited(time.monotonic() - began):
                if group is not None and len(episodes) == 1:
                    ratings = [_by_one_revision(lazy, replace(episodes[0], group=group))]
                else:
                    ratings = lazy.rate_batch_blocking(episodes)
            answer = openrlhf_answer(scored(ratings))
        except RewardPoolError as error:
            log.error("no reward for %d rows: %s", len(query.query), error)  # noqa: TRY400 - OpenRLHF has the traceback
            raise
        logs = {part: torch.tensor(scores) for part, scores in answer["extra_logs"].items()}
        return {
            "rewards": torch.tensor(answer["rewards"]),
            "scores": torch.tensor(answer["scores"]),
            "extra_logs": logs,
        }

    return reward_func


def _by_one_revision(lazy: LazyReward, episode: Episode) -> Rating:
    """Rate a sample by the revision of its group's first, as long as that one serves: then by any, with a warning."""
    problem: SampleError | None
    try:
        rating = lazy.rate_next_blocking(episode)
        problem = rating.error
    except RevisionGoneError as error:
        problem = error
    if not isinstance(problem, RevisionGoneError):
        return rating
    # Its failure would end OpenRLHF's run.
    log.warning("two revisions score a group, as OpenRLHF has no way to do without a sample: %s", problem)
    [rating] = lazy.rate_batch_blocking([episode])
    return rating


def group_of_call() -> str | None:
    """Return the id of the Ray task that rolls a prompt out, where the running code belongs to one; else None."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return None
    running = ray.get_runtime_context()  # threads of `asyncio.to_thread` belong to the task that began them
    name = running.get_task_function_name() or ""
    task: str | None = running.get_task_id() if name.endswith(f".{ROLLOUT}") else None
    return task


class _OfEnvironment:
    """Makes the function when it is first called, as this module may be imported for `reward_function` alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the first calls come at once
        self._made: RewardFunction | None = None

    def __call__(self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
        with self._lock:
            if self._made is None:
                self._made = reward_function({}, policy_tokenizer=os.environ.get(ENV_POLICY_TOKENIZER))
        return self._made(queries, prompts, labels)


# OpenRLHF's function for the pool that the environment names; see this module's text.
reward_func = _OfEnvironment()
