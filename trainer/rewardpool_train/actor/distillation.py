"""On-policy distillation: teachers give log-probabilities of the tokens that the policy sampled.

The loss gets the reverse divergence, from the policy to its teacher, at each response token; docs/actor.md has both
forms:

    sampled tokens   weight * (log pi_teacher - log pi) is added to the token's advantage
    top k            weight * `grpo.top_divergence` is added to the token's loss

A response that its teacher does not answer is left out, like one without a score.
"""

import asyncio
import concurrent.futures
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy
import torch

from rewardpool._client.pool import Pool
from rewardpool._config import RewardConfig, action_for
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.rating import Rating
from rewardpool._score_waits import ScoreWaits
from rewardpool._teacher import Teacher
from rewardpool.errors import ConfigError, SampleError
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.scoring import OutcomeTally
from rewardpool_train.actor.teacher_rows import TeacherRows
from rewardpool_train.actor.tokens import behaviour_log_probs
from rewardpool_train.distillation_config import PATH, DistillationConfig
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, RatedGroup, RolledGroup, Score, Scoring, SettledScore

S = TypeVar("S")
T = TypeVar("T")

Key = tuple[int, int]  # of a rollout: index of its group, member


class Teaches(Protocol):
    """The methods of `Teachers` that are needed here."""

    def record_waits(self, waits: ScoreWaits) -> None: ...

    async def rows(self, prompt: Prompt, rollout: Trajectory) -> TeacherRows | None:
        """Return the answer of the prompt's teacher about a response; None if the failure policy leaves it out.

        Raises:
            SampleError: There is none, and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        ...


class Teachers:
    """The open teachers of a job."""

    def __init__(self, config: DistillationConfig, opened: Mapping[str | None, tuple[RewardConfig, Teacher]]) -> None:
        self._top_k = config.top_k
        self._opened = opened

    @property
    def pools(self) -> dict[str, Pool]:
        return {name: teacher.pool for name, teacher in self._by_pool.items()}

    @property
    def _by_pool(self) -> dict[str, Teacher]:
        return {teacher.pool.endpoint.pool: teacher for _, teacher in self._opened.values()}

    def record_waits(self, waits: ScoreWaits) -> None:
        for _, teacher in self._opened.values():
            teacher.pool.record_waits(waits)

    def sleeping(self) -> dict[str, Path]:
        """Return the folders on this machine of those pools that sleep unless they are kept awake, by name.

        Raises:
            PoolError: A pool cannot be read.
        """
        folders = {name: teacher.sleeping_folder() for name, teacher in self._by_pool.items()}
        return {name: folder for name, folder in folders.items() if folder is not None}

    @asynccontextmanager
    async def awake(self, *, within_seconds: float) -> AsyncGenerator[None, None]:
        """Within this block all pools of `sleeping` are awake, as by `Teacher.awake`."""
        async with AsyncExitStack() as stack:
            for name in await asyncio.to_thread(self.sleeping):
                await stack.enter_async_context(self._by_pool[name].awake(within_seconds=within_seconds))
            yield

    async def rows(self, prompt: Prompt, rollout: Trajectory) -> TeacherRows | None:
        config, teacher = self._opened.get(prompt.data_source) or self._opened[None]
        tokens = [*rollout.prompt_ids, *rollout.response_ids]
        try:
            answer = await teacher.logprobs(tokens, start=len(rollout.prompt_ids), top_k=self._top_k)
        except SampleError as error:
            if action_for(config.on_failure, error.fault) != "skip":
                raise
            return None
        rows = len(rollout.response_ids)
        return TeacherRows(
            torch.from_numpy(numpy.array(answer.logprobs)),
            _table(answer.top_ids, rows, torch.int64),
            _table(answer.top_logprobs, rows, torch.float32),
        )


def _table(values: memoryview | None, rows: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(rows, 0, dtype=dtype) if values is None else torch.from_numpy(numpy.array(values)).to(dtype)


@contextmanager
def open_teachers(config: DistillationConfig, *, policy: Path, prompts: Iterable[Prompt]) -> Iterator[Teachers]:
    """Open the teachers, and yield them.

    Raises:
        ConfigError: A prompt has no teacher, or a teacher has another vocabulary than the policy.
        PoolError: A pool cannot be used.
    """
    pools = config.pools()
    if None not in pools:
        missing = sorted({prompt.data_source for prompt in prompts} - pools.keys())
        if missing:
            raise ConfigError(
                f"{PATH}.by_data_source",
                f"has no teacher for prompts of {', '.join(one or '(none)' for one in missing[:5])}; add them, or set"
                f" {PATH}.teacher",
            )
    with ExitStack() as stack:
        teachers: list[tuple[RewardConfig, Teacher]] = []
        opened: dict[str | None, tuple[RewardConfig, Teacher]] = {}
        for source, pool in pools.items():
            # Each once: its questions are announced and reported as one pool's.
            found = next((one for one in teachers if one[0] == pool), None)
            if found is None:
                found = pool, stack.enter_context(Teacher(pool, tokenizer=str(policy)))
                teachers.append(found)
            opened[source] = found
        yield Teachers(config, opened)


class NoReward:
    """The reward of a job that only has teachers: it has no parts, and rates nothing."""

    names: tuple[str, ...] = ()
    moments = None
    needs_group = False
    pools: Mapping[str, Pool] = {}

    def record_waits(self, waits: ScoreWaits) -> None: ...

    def submit(self, episode: Episode) -> "concurrent.futures.Future[Rating]":
        raise AssertionError("a job without a reward requests no ratings")

    def submit_group(self, episodes: Sequence[Episode]) -> "concurrent.futures.Future[list[Rating]]":
        raise AssertionError("a job without a reward requests no ratings")

    def submit_settled(
        self, episodes: Sequence[Episode], ratings: Sequence[Rating]
    ) -> "concurrent.futures.Future[list[Rating]]":
        raise AssertionError("a job without a reward requests no ratings")

    def requests(self, *, members: int) -> Mapping[str, int]:
        return {}


class Distillation:
    """Asks teachers about each rollout at its end, and keeps their answers until they are trained on.

    Args:
        teachers: Asked on the pipeline's event loop.
        tally: Counts the questions of a job without a reward.
    """

    def __init__(self, teachers: Teaches, config: DistillationConfig, *, tally: OutcomeTally) -> None:
        self._teachers = teachers
        self._tally = tally
        self.config = config
        self._rows: dict[Key, TeacherRows] = {}

    def alone(self) -> Score[Prompt, Trajectory]:
        """Return the scoring of a job without a reward.

        A response's score is the mean over its tokens of log pi_teacher - log pi, of the policy that sampled it: minus
        the estimated divergence, in nats per token.
        """

        async def score(task: GroupTask[Prompt], member: int, rollout: Trajectory) -> float | None:
            self._tally.submitted += 1
            try:
                rows = await self._request(task, member, rollout)
            except asyncio.CancelledError:
                self._tally.given_up += 1
                raise
            if rows is None:
                self._tally.unscored += 1
                return None
            self._tally.scored += 1
            return float((rows.log_probs - behaviour_log_probs(rollout)).mean())

        return score

    def beside(self, scoring: Scoring[Prompt, Trajectory]) -> Scoring[Prompt, Trajectory]:
        """Return a reward's scoring that asks the teachers at the same time.

        A response without a teacher's answer is unscored, whatever the reward says.
        """
        if isinstance(scoring, GroupScore):
            return GroupScore(lambda group: self._both(group, scoring.judge(group)))
        if isinstance(scoring, SettledScore):
            return SettledScore(
                self._each(scoring.score), scoring.is_settled, lambda group: self._kept(group, scoring.settle(group))
            )
        return self._each(scoring)

    def _each(self, inner: Score[Prompt, Trajectory]) -> Score[Prompt, Trajectory]:
        async def score(task: GroupTask[Prompt], member: int, rollout: Trajectory) -> float | None:
            found, rows = await _together(inner(task, member, rollout), self._request(task, member, rollout))
            return None if rows is None else found

        return score

    async def _both(
        self, group: RolledGroup[Prompt, Trajectory], judging: Awaitable[Sequence[float | None]]
    ) -> Sequence[float | None]:
        asking = (self._request(group.task, member, rollout) for member, rollout in enumerate(group.rollouts))
        scores, _ = await _together(judging, asyncio.gather(*asking))
        return self._known(group.task, scores)

    async def _kept(
        self, group: RatedGroup[Prompt, Trajectory], settling: Awaitable[Sequence[float | None]]
    ) -> Sequence[float | None]:
        return self._known(group.task, await settling)

    def _known(self, task: GroupTask[Prompt], scores: Sequence[float | None]) -> list[float | None]:
        return [score if (task.index, member) in self._rows else None for member, score in enumerate(scores)]

    async def _request(self, task: GroupTask[Prompt], member: int, rollout: Trajectory) -> TeacherRows | None:
        rows = await self._teachers.rows(task.prompt, rollout)
        if rows is not None:
            self._rows[task.index, member] = rows
        return rows

    def rows(self, task: GroupTask[Prompt]) -> list[TeacherRows | None]:
        return [self._rows.get((task.index, member)) for member in range(task.size)]

    def forget(self, task: GroupTask[Prompt]) -> None:
        for member in range(task.size):
            self._rows.pop((task.index, member), None)

    def to_json(self, groups: Iterable[int]) -> list[Any]:
        kept = set(groups)
        return [[*key, rows.to_json()] for key, rows in self._rows.items() if key[0] in kept]

    def restore(self, data: Iterable[Any]) -> None:
        """Restore the values of `to_json`, without answers to questions of another `top_k`."""
        found = {(group, member): TeacherRows.from_json(rows) for group, member, rows in data}
        self._rows = {key: rows for key, rows in found.items() if rows.top_ids.shape[-1] == self.config.top_k}


async def _together(score: Awaitable[S], asking: Awaitable[T]) -> tuple[S, T]:
    """Await both at the same time; if one fails, the other is cancelled."""
    both = asyncio.ensure_future(score), asyncio.ensure_future(asking)
    try:
        return await asyncio.gather(*both)
    finally:
        for one in both:
            one.cancel()
