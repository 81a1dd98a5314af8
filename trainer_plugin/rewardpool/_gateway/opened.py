"""Source of a gateway's answers: a reward, or a teacher."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._config import RewardConfig
from rewardpool._demand.bursts import Bursts
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._rewards import JobFacts, open_announced
from rewardpool._rewards.opened import OpenReward
from rewardpool._vocabulary import check_vocabulary, digest_of
from rewardpool.errors import ConfigError
from rewardpool_api.teacher_wire import VOCABULARY_DIGEST, SequenceQuestion, Values


@dataclass(frozen=True)
class OpenTeacher:
    """A pool of type Teacher that counts what is in flight."""

    pool: Pool
    bursts: Bursts
    vocabulary: str | None = None
    """Digest of the student's; None where it is not known."""

    @property
    def endpoint(self) -> Endpoint:
        return self.pool.endpoint

    async def logprobs(self, asked: SequenceQuestion, *, label: str) -> Values:
        """Ask about one sequence. Raises what `Pool.logprobs` raises."""
        with self.bursts.sample():
            return (await self.pool.logprobs_of(asked, label=label, vocabulary=self.vocabulary)).flat


@asynccontextmanager
async def open_pool(
    spec: Mapping[str, Any],
    announcement: JobFacts,
    *,
    tokenizer: str | None,
    policy_tokenizer: str | None = None,
    vocabulary: str | None = None,
    teacher: bool = False,
    path: str,
) -> AsyncIterator[OpenReward | OpenTeacher]:
    """Open a pool as what its type is; the demand ends with the `async with` block.

    Args:
        spec: Fields of a `RewardConfig`.
        announcement: What is known of the job beforehand.
        tokenizer: The reward model's, of a pool that scores; None for that of its model.
        policy_tokenizer: The student's, whose vocabulary is compared with a teacher's; None for no comparison.
        vocabulary: Digest of the student's vocabulary, where that is known in place of its tokenizer.
        teacher: Whether it is a teacher, where only its URL is known.
        path: In front of the fields' names in messages.

    Raises:
        ConfigError: Fields are wrong, the reward cannot be made, `tokenizer` is given for a teacher, `teacher` or
            `vocabulary` for a pool of another type, or student and teacher have other vocabularies.
        PoolError: The pool cannot be used.
    """
    async with Pool.shared(RewardConfig.parse(spec, path=path)) as pool:
        found = pool.endpoint.model_type
        if teacher and found not in (None, "Teacher"):
            raise ConfigError("--teacher", f"is for a Teacher, and {pool.endpoint.pool} is {found}; leave it out")
        if teacher or found == "Teacher":
            if tokenizer is not None:
                raise only_of_rewards("--tokenizer", pool.endpoint)
            field = "--vocabulary"
            if policy_tokenizer is not None:
                if vocabulary is not None:
                    raise ConfigError(
                        field, "is for a student without --policy-tokenizer, which says it: leave one out"
                    )
                field = "--policy-tokenizer"
                vocabulary = await asyncio.to_thread(digest_of, policy_tokenizer, field=field)
            elif vocabulary is not None and not re.fullmatch(VOCABULARY_DIGEST, vocabulary):
                raise ConfigError(field, f"must be a digest by rewardpool.vocabulary_digest, not {vocabulary!r:.60}")
            if vocabulary is not None:
                check_vocabulary(vocabulary, pool.endpoint, field=field)
            demand = pool.demand(
                samples=announcement.samples,
                steps=announcement.steps,
                rank=announcement.rank,
                ranks=announcement.ranks,
            )
            yield OpenTeacher(pool, Bursts([demand]), vocabulary)
            return
        if vocabulary is not None:
            raise ConfigError("--vocabulary", f"is for a Teacher, and {pool.endpoint.pool} is {found}; leave it out")
        part = {**spec} if tokenizer is None else {**spec, "tokenizer": tokenizer}
        async with open_announced(part, announcement, path=path) as reward:
            yield reward


def only_of_rewards(option: str, endpoint: Endpoint) -> ConfigError:
    return ConfigError(option, f"is for a pool that scores, and {endpoint.pool} is a Teacher; leave it out")
