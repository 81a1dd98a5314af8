"""An open part: a scorer of an episode, or of the episodes of a group against each other."""

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from rewardpool._rewards.answers.reasoning import Reasoning
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.rating import StepReward
from rewardpool.errors import ConfigError, InvalidSampleError, SampleError

T = TypeVar("T")


@dataclass(frozen=True)
class PartScore:
    """A part's raw score, finite, and what it said beside it (JSON values)."""

    value: float
    info: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[StepReward, ...] | None = None
    """Raw values of the response's steps, under process supervision; else None."""
    attempts: int | None = None
    """None where that is not known."""


@runtime_checkable
class RewardFunction(Protocol):
    """Scores one episode, whatever the others of its group."""

    async def score(self, episode: Episode) -> PartScore:
        """The raw score. Raises SampleError or PoolError."""


@runtime_checkable
class GroupRewardFunction(Protocol):
    """Scores the episodes of a group by comparing them."""

    async def compare(self, episodes: Sequence[Episode]) -> list[PartScore | SampleError]:
        """Scores in the order of the episodes, and in the place of a score why there is none. Raises PoolError."""


class WithoutReasoning:
    """Scores episodes without the policy's thoughts."""

    def __init__(self, function: RewardFunction, reasoning: Reasoning) -> None:
        self._function = function
        self._reasoning = reasoning

    async def score(self, episode: Episode) -> PartScore:
        """Score the answer. Raises what the function raises, and InvalidSampleError where thoughts may be in it."""
        answer = _without_reasoning(episode, self._reasoning)
        if isinstance(answer, SampleError):
            raise answer
        return await self._function.score(answer)


class GroupWithoutReasoning:
    """Compares episodes without the policy's thoughts."""

    def __init__(self, function: GroupRewardFunction, reasoning: Reasoning) -> None:
        self._function = function
        self._reasoning = reasoning

    async def compare(self, episodes: Sequence[Episode]) -> list[PartScore | SampleError]:
        """Compare the answers; one that may have thoughts in it has an InvalidSampleError, and is not compared."""
        answers = [_without_reasoning(episode, self._reasoning) for episode in episodes]
        good = [answer for answer in answers if isinstance(answer, Episode)]
        scores = iter(await self._function.compare(good) if good else ())
        return [answer if isinstance(answer, SampleError) else next(scores) for answer in answers]


def _without_reasoning(episode: Episode, reasoning: Reasoning) -> Episode | SampleError:
    problem = episode.reasoning_problem(reasoning)
    return episode.without_reasoning(reasoning) if problem is None else InvalidSampleError(episode.label, problem)


def refuse_media(episode: Episode, *, in_prompt: Collection[str] = ()) -> None:
    """Raise ConfigError for media that the model cannot receive, of which no failure policy makes a number.

    Of the types `in_prompt` it is sent those that are in the prompt.
    """
    if (medium := episode.medium(in_prompt=in_prompt)) is not None:
        ways = "a function" if in_prompt else "a function, or a judge, which is sent the images of a prompt"
        raise ConfigError(
            "Episode.prompt" if replace(episode, turns=None).medium(in_prompt=in_prompt) else "Episode.turns",
            f"sample {episode.label} has content of type {medium}, which this model is not sent: it would score a "
            f"placeholder; score such samples by {ways}",
        )


async def gathered(work: Sequence[Awaitable[T]]) -> list[T]:
    """The results in order; the first error cancels what is not done, waits until that has ended, and is raised."""
    # `asyncio.gather` alone leaves the others running, and a TaskGroup wraps the error into a group.
    if len(work) == 1:  # no task is needed, and single samples are the most frequent case
        return [await work[0]]
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
