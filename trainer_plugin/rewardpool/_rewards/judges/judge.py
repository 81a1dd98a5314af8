"""Episodes rated by a Generative pool: asked, read, asked again where the answer cannot be read, and voted on."""

import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rewardpool._client.pool import Pool
from rewardpool._rewards.answers.scale import Unreadable
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.judges.judge_prompt import JudgePrompt, Question, reference_of, response_of
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore, RewardFunction, gathered
from rewardpool.errors import SampleError, SampleTooLongError, ScoreError

T = TypeVar("T")
# Least temperature of an answer that is requested again: at 0 every seed gives the same.
RETRY_TEMPERATURE = 0.7
# Characters of a judge's answer that are kept, its end, and quoted in messages far fewer.
MAX_WORDS = 2_000
EXCERPT = 160


@dataclass(frozen=True)
class JudgeVerdict(Generic[T]):
    value: T
    words: str
    # Generations that it cost, those before it included that could not be read.
    requests: int
    meta: float | SampleError | None = None
    """Of the meta reward model, or why it has none; None without such a model."""


class Judge:
    """Asks one question and reads the answer; `meta` scores answers, where the config says how many of them vote."""

    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._pool = pool
        self._config = config
        self._meta = meta

    async def request(self, question: Question[float]) -> list[JudgeVerdict[float]]:
        """Return as many independent answers as there are votes, each requested again while it cannot be read.

        Raises SampleError where one of them is missing, and PoolError.
        """
        if question.answer.by_probabilities:
            return [await self._expected(question)]
        return await gathered([self.vote(question, vote) for vote in range(self._config.votes)])

    def decide(self, verdicts: Sequence[JudgeVerdict[float]], *, label: str) -> float:
        """Return the value of the votes together. Raises ScoreError where none of them counts."""
        return decide([verdict.value for verdict in self.voters(verdicts, label=label)], self._config.vote)

    def voters(self, verdicts: Sequence[JudgeVerdict[T]], *, label: str) -> list[JudgeVerdict[T]]:
        """Return the answers that vote, as `verdicts_that_vote` does; raises the same."""
        return verdicts_that_vote(verdicts, None if self._config.meta is None else self._config.meta.keep, label=label)

    async def vote(self, question: Question[T], vote: int) -> JudgeVerdict[T]:
        """Return one answer, the `vote`th; raises what `request` does.

        All causes together cost at most `retries` + 1 generations: answers that cannot be read, failed workers, hedges.
        """
        config, label = self._config, question.label
        limit = config.retries + 1
        spent = asked = 0
        while spent < limit:
            temperature = config.temperature_of_votes
            sampling = {
                **config.sampling,
                **question.answer.request,
                "max_tokens": config.max_tokens,
                "temperature": temperature if asked == 0 else max(temperature, RETRY_TEMPERATURE),
                "seed": config.seed + vote + asked * config.votes,
            }
            with _not_by_the_policy():
                words = await self._pool.judge(
                    question.messages, label=label, max_generations=limit - spent, **sampling
                )
            asked += 1
            spent += words.generations
            try:
                value = question.answer.read(words, responses=question.responses)
            except Unreadable as error:
                problem = f"{error}: {' '.join(words[-EXCERPT:].split())!r}"
                continue
            meta = await self._meta_score(question.messages, words, label=label)
            return JudgeVerdict(value, words[-MAX_WORDS:], spent, meta)
        problem = f"the judge's answer cannot be read, {asked} times; last: {problem}"
        raise ScoreError(label, problem, fault="verifier", kind="unreadable")

    async def _meta_score(
        self, messages: Sequence[Mapping[str, Any]], words: str, *, label: str
    ) -> float | SampleError | None:
        if self._meta is None:
            return None
        try:
            return (await self._meta.score(Episode(prompt=messages, response=words, id=label))).value
        except SampleError as error:
            return error

    async def _expected(self, question: Question[float]) -> JudgeVerdict[float]:
        sampling = {**self._config.sampling, **question.answer.request, "seed": self._config.seed}
        with _not_by_the_policy():
            alternatives = await self._pool.first_token(question.messages, label=question.label, **sampling)
        try:
            value, shares = question.answer.expected(alternatives)
        except Unreadable as error:  # the same question has the same probabilities
            problem = f"the judge's probabilities say nothing: {error}"
            raise ScoreError(question.label, problem, fault="verifier", kind="unreadable") from error
        return JudgeVerdict(value, json.dumps({token: round(share, 6) for token, share in shares.items()}), 1)


@contextmanager
def _not_by_the_policy() -> Iterator[None]:
    """Make a question that is too long the verifier's fault: it holds more than one response."""
    try:
        yield
    except SampleTooLongError as error:
        error.fault = "verifier"
        raise


def decide(votes: Sequence[float], how: str) -> float:
    """Return one value for several: their `median`, their `mean`, or the `majority`.

    The majority is the value that most agree on; of several such values, their mean.
    """
    match how:
        case "median":
            return statistics.median(votes)
        case "mean":
            return statistics.fmean(votes)
        case _:
            return statistics.fmean(statistics.multimode(votes))


def verdicts_that_vote(verdicts: Sequence[JudgeVerdict[T]], keep: int | None, *, label: str) -> list[JudgeVerdict[T]]:
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
        problem = f"none of {len(verdicts)} votes counts, the meta reward model scored none; last: {last}"
        raise ScoreError(label, problem, fault="verifier", kind="unreadable")
    return [verdict for _, verdict in sorted(scored, key=lambda each: -each[0])[:keep]]


class PointwiseScorer:
    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._judge = Judge(pool, config, meta=meta)
        self._prompt = JudgePrompt(config)
        self._answer = config.answer_format()

    async def score(self, episode: Episode) -> PartScore:
        question = await self._prompt.question(episode, {"response": response_of(episode)}, self._answer)
        verdicts = await self._judge.request(question)
        return PartScore(self._judge.decide(verdicts, label=episode.label), info_of(verdicts))


class PairJudge:
    """Asks which of two responses is better, in both orders, so that a judge's liking for a place cancels out."""

    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._judge = Judge(pool, config, meta=meta)
        self._prompt = JudgePrompt(config)
        self._answer = config.answer_format()

    async def wins(self, episode: Episode, first: str, second: str) -> PartScore:
        """Return how much of the comparison `first` wins, from 0 to 1. Raises SampleError or PoolError."""
        orders = ((first, second), (second, first))
        questions = [
            await self._prompt.question(episode, {"response_a": a, "response_b": b}, self._answer) for a, b in orders
        ]
        there, back = await gathered([self._judge.request(question) for question in questions])
        won, lost = (self._judge.decide(verdicts, label=episode.label) for verdicts in (there, back))
        value = (won + 1.0 - lost) / 2
        return PartScore(value, info_of([*there, *back]))


class ReferenceScorer(PairJudge):
    async def score(self, episode: Episode) -> PartScore:
        """1 where the response is better than the reference, 0 where it is worse, and between where it is not clear."""
        return await self.wins(episode, response_of(episode), reference_of(episode))


def info_of(verdicts: Sequence[JudgeVerdict[Any]]) -> dict[str, Any]:
    """Return the info that is kept of answers; `meta` are the scores of the meta reward model, None where it failed."""
    info = {
        "votes": [verdict.value for verdict in verdicts],
        "words": [verdict.words for verdict in verdicts],
        "requests": sum(verdict.requests for verdict in verdicts),
    }
    if all(verdict.meta is None for verdict in verdicts):
        return info
    return {**info, "meta": [verdict.meta if isinstance(verdict.meta, float) else None for verdict in verdicts]}


def merged_info(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lists = [name for name in ("votes", "words", "meta") if name in infos[0]]
    merged = {name: list(itertools.chain.from_iterable(info[name] for info in infos)) for name in lists}
    return {**merged, "requests": sum(info["requests"] for info in infos)}
