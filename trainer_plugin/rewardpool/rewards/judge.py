"""Episodes rated by a Generative pool: asked, read, asked again where the answer cannot be read, and voted on."""

import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rewardpool.client.pool import Pool
from rewardpool.errors import SampleError, ScoreError
from rewardpool.rewards.answer_format import AnswerFormat
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.judge_prompt import JudgePrompt, reference_of, response_of
from rewardpool.rewards.part_config import JudgeConfig
from rewardpool.rewards.reward_function import PartScore, RewardFunction, gathered
from rewardpool.rewards.scale import Unreadable

T = TypeVar("T")
RETRY_TEMPERATURE = 0.7
"""At least, when an answer is asked for again: at 0 every seed gives the same."""
MAX_WORDS = 2_000
"""Characters of a judge's answer that are kept, its end, and quoted in messages far fewer."""
EXCERPT = 160


@dataclass(frozen=True)
class Verdict(Generic[T]):
    """One readable answer."""

    value: T
    words: str
    requests: int
    """Answers that were asked for until it could be read."""
    meta: float | SampleError | None = None
    """What the meta reward model says of it, or why it has no score; None where there is no such model."""


class Judge:
    """Asks one question and reads the answer.

    Args:
        pool: Of the judge.
        config: How it is asked.
        meta: Scores its answers, where `config.meta` says how many of them vote.
    """

    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._pool = pool
        self._config = config
        self._meta = meta

    async def ask(
        self, messages: Sequence[Mapping[str, Any]], answer: AnswerFormat[float], *, label: str
    ) -> list[Verdict[float]]:
        """As many independent answers as there are votes, each asked for again while it cannot be read.

        Raises:
            SampleError: One of them could not be had.
            PoolError: The pool cannot be used.
        """
        if answer.by_probabilities:
            return [await self._expected(messages, answer, label=label)]
        return await gathered([self.vote(messages, answer, vote, label=label) for vote in range(self._config.votes)])

    def decide(self, verdicts: Sequence[Verdict[float]], *, label: str) -> float:
        """What the votes come to.

        Raises:
            ScoreError: None of them counts.
        """
        return decide([verdict.value for verdict in self.voters(verdicts, label=label)], self._config.vote)

    def voters(self, verdicts: Sequence[Verdict[T]], *, label: str) -> list[Verdict[T]]:
        """The answers that vote: all, or those that the meta reward model scores highest.

        Raises:
            ScoreError: The meta reward model has scored none of them.
        """
        return verdicts_that_vote(verdicts, None if self._config.meta is None else self._config.meta.keep, label=label)

    async def vote(
        self, messages: Sequence[Mapping[str, Any]], answer: AnswerFormat[T], vote: int, *, label: str
    ) -> Verdict[T]:
        """One answer, the `vote`th; raises what `ask` does."""
        config = self._config
        problem = ""
        for attempt in range(config.retries + 1):
            temperature = config.temperature_of_votes
            sampling = {
                **config.sampling,
                **answer.request,
                "max_tokens": config.max_tokens,
                "temperature": temperature if attempt == 0 else max(temperature, RETRY_TEMPERATURE),
                "seed": config.seed + vote + attempt * config.votes,
            }
            words = await self._pool.judge(messages, label=label, **sampling)
            try:
                value = answer.read(words, is_cut_off=words.is_cut_off)
            except Unreadable as error:
                problem = f"{error}: {' '.join(words[-EXCERPT:].split())!r}"
                continue
            meta = await self._meta_score(messages, words, label=label)
            return Verdict(value, words[-MAX_WORDS:], attempt + 1, meta)
        raise ScoreError(label, f"the judge's answer cannot be read, {config.retries + 1} times; last: {problem}")

    async def _meta_score(
        self, messages: Sequence[Mapping[str, Any]], words: str, *, label: str
    ) -> float | SampleError | None:
        if self._meta is None:
            return None
        try:
            return (await self._meta.score(Episode(prompt=messages, response=words, id=label))).value
        except SampleError as error:
            return error

    async def _expected(
        self, messages: Sequence[Mapping[str, Any]], answer: AnswerFormat[float], *, label: str
    ) -> Verdict[float]:
        sampling = {**self._config.sampling, **answer.request, "seed": self._config.seed}
        alternatives = await self._pool.first_token(messages, label=label, **sampling)
        try:
            value, shares = answer.expected(alternatives)
        except Unreadable as error:  # to ask again would give the same
            raise ScoreError(label, f"the judge's probabilities say nothing: {error}") from error
        return Verdict(value, json.dumps({token: round(share, 6) for token, share in shares.items()}), 1)


def decide(votes: Sequence[float], how: str) -> float:
    """One value for several: their `median`, their `mean`, or the `majority`.

    The majority is the value that most agree on; of several such values, their mean.
    """
    match how:
        case "median":
            return statistics.median(votes)
        case "mean":
            return statistics.fmean(votes)
        case _:
            return statistics.fmean(statistics.multimode(votes))


def verdicts_that_vote(verdicts: Sequence[Verdict[T]], keep: int | None, *, label: str) -> list[Verdict[T]]:
    """The `keep` answers with the highest score of the meta reward model, of equal ones the first; all with None.

    An answer that it has not scored does not vote.

    Raises:
        ScoreError: It has scored none.
    """
    if keep is None:
        return list(verdicts)
    scored = [(verdict.meta, verdict) for verdict in verdicts if isinstance(verdict.meta, float)]
    if not scored:
        last = next((verdict.meta for verdict in reversed(verdicts) if verdict.meta is not None), "not asked")
        raise ScoreError(
            label, f"none of {len(verdicts)} votes counts, the meta reward model scored none; last: {last}"
        )
    return [verdict for _, verdict in sorted(scored, key=lambda each: -each[0])[:keep]]


class PointwiseScorer:
    """Asks what a response is worth."""

    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._judge = Judge(pool, config, meta=meta)
        self._prompt = JudgePrompt(config)
        self._answer = config.answer_format()

    async def score(self, episode: Episode) -> PartScore:
        """The judge's score, as it wrote it, or what several come to."""
        responses = {"response": response_of(episode)}
        messages = await self._prompt.prepared(episode, responses, how=self._answer.instruction)
        verdicts = await self._judge.ask(messages, self._answer, label=episode.label)
        return PartScore(self._judge.decide(verdicts, label=episode.label), info_of(verdicts))


class PairJudge:
    """Asks which of two responses is better, in both orders, so that a judge's liking for a place cancels out."""

    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._judge = Judge(pool, config, meta=meta)
        self._prompt = JudgePrompt(config)
        self._answer = config.answer_format()

    async def wins(self, episode: Episode, first: str, second: str) -> PartScore:
        """How much of the comparison `first` wins, from 0 to 1.

        Raises:
            SampleError: One of the two questions has no readable answer.
            PoolError: The pool cannot be used.
        """
        orders = ((first, second), (second, first))
        how = self._answer.instruction
        prompts = [await self._prompt.prepared(episode, {"response_a": a, "response_b": b}, how=how) for a, b in orders]
        there, back = await gathered([self._judge.ask(one, self._answer, label=episode.label) for one in prompts])
        won, lost = (self._judge.decide(verdicts, label=episode.label) for verdicts in (there, back))
        value = (won + 1.0 - lost) / 2
        return PartScore(value, info_of([*there, *back]))


class ReferenceScorer:
    """Compares a response with the ground truth."""

    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._pairs = PairJudge(pool, config, meta=meta)

    async def score(self, episode: Episode) -> PartScore:
        """1 where the response is better than the reference, 0 where it is worse, and between where it is not clear."""
        return await self._pairs.wins(episode, response_of(episode), reference_of(episode))


def info_of(verdicts: Sequence[Verdict[Any]]) -> dict[str, Any]:
    """What is kept of answers; `meta` are the scores of the meta reward model, None where it failed."""
    info = {
        "votes": [verdict.value for verdict in verdicts],
        "words": [verdict.words for verdict in verdicts],
        "requests": sum(verdict.requests for verdict in verdicts),
    }
    if all(verdict.meta is None for verdict in verdicts):
        return info
    return {**info, "meta": [verdict.meta if isinstance(verdict.meta, float) else None for verdict in verdicts]}


def merged_info(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The infos of several comparisons as one."""
    lists = [name for name in ("votes", "words", "meta") if name in infos[0]]
    merged = {name: list(itertools.chain.from_iterable(info[name] for info in infos)) for name in lists}
    return {**merged, "requests": sum(info["requests"] for info in infos)}
