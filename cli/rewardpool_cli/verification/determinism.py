"""Check that a pool's numbers do not depend on how they are requested: samples, and findings from answers. Pure.

Every replica is asked for the same samples, alone and in each condition. A score is one number of a sample, and a
teacher's answer has several of each token.

The first half of the samples is sent alone before it is in a batch, and the second half the other way round: a batch
and its parts are so compared without a cached prefix too. Long samples are first sent all at once, since an engine
computes in chunks only what it has not cached.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Any, Final

from rewardpool_api import RewardPoolSpec
from rewardpool_api.engines import setting_against
from rewardpool_cli.verification import Tolerance

GROUPS, MEMBERS = 4, 8  # samples that begin alike, as the responses to one prompt do
PROMPT_TOKENS: Final = 160  # more than a block of any engine's prefix cache, which is up to 128 tokens
RESPONSE_TOKENS: Final = (16, 96)
TOKENS: Final = range(10, 250)  # in every vocabulary, and none of them special in most
LONG_TOKENS: Final = 10_240  # more than engines compute in one step, by default 2,048 to 8,192
LONGEST: Final = 2048
MOST_LONG: Final = 40
MOST_TEXTS: Final = 64
BATCH: Final = 16
SPLIT: Final = 4

Sample = str | tuple[int, ...]
"""A text, or token ids."""
Answer = tuple[float, ...] | str
"""Numbers of a sample, or why there are none."""


class Arrangement(StrEnum):
    """Ways of sending samples; each but ALONE is compared with it."""

    ALONE = "alone"
    CACHED = "cached"
    BATCHED = "batched"
    REORDERED = "reordered"
    CHUNKED = "chunked"
    REPLICAS = "replicas"

    @property
    def in_words(self) -> str:
        return _WORDS[self]


_WORDS: Final = {
    Arrangement.ALONE: "alone",
    Arrangement.CACHED: "after a cache hit",
    Arrangement.BATCHED: "in batches",
    Arrangement.REORDERED: "in other orders",
    Arrangement.CHUNKED: "long, all at once",
    Arrangement.REPLICAS: "on every replica",
}


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Samples to send."""

    items: tuple[Sample, ...]
    groups: tuple[range, ...]
    """Positions of those whose order matters to a trainer."""
    long: range = range(0)


@dataclass(frozen=True, kw_only=True)
class SendStep:
    """Requests of one arrangement, each with positions of its samples; the next step begins when all are answered."""

    condition: Arrangement
    requests: tuple[tuple[int, ...], ...]
    at_once: bool


def own_samples(seed: int, *, most_tokens: int | None, chunks: bool) -> Samples:
    """Make groups of samples that begin alike, and long ones, of token ids that nothing has cached.

    Args:
        seed: Another one makes others.
        most_tokens: Of a sample; None where that is not known.
        chunks: Whether the engine computes long samples in parts; without, there are none.
    """
    chance = random.Random(seed)  # noqa: S311 - token ids are no secrets
    limit = max(2, min(most_tokens or LONGEST // 2, LONGEST))

    def drawn(count: int) -> tuple[int, ...]:
        return tuple(chance.choices(TOKENS, k=count))

    items: list[Sample] = []
    for _ in range(GROUPS):
        prompt = drawn(min(PROMPT_TOKENS, limit // 2))
        low, high = (min(each, limit - len(prompt)) for each in RESPONSE_TOKENS)
        items += [prompt + drawn(chance.randint(low, high)) for _ in range(MEMBERS)]
    short = len(items)
    least = limit - limit // 4  # of many lengths: a step of the engine is a multiple of some, which it would not split
    count = min(MOST_LONG, math.ceil(LONG_TOKENS / least)) if chunks else 0
    items += [drawn(chance.randint(least, limit)) for _ in range(count)]
    groups = tuple(range(first, first + MEMBERS) for first in range(0, short, MEMBERS))
    return Samples(items=tuple(items), groups=groups, long=range(short, len(items)))


def samples_of(texts: Sequence[str]) -> Samples:
    """Make one group of the first MOST_TEXTS texts."""
    items = tuple(texts[:MOST_TEXTS])
    return Samples(items=items, groups=(range(len(items)),))


def plan(samples: Samples, *, together: bool, seed: int) -> tuple[SendStep, ...]:
    """Return what a replica is asked, in this order.

    Args:
        together: Whether a request may have several samples; else they are asked at once.
        seed: Of one of the orders.
    """
    short = [*range(len(samples.items) - len(samples.long))]
    first, second = short[: len(short) // 2], short[len(short) // 2 :]
    shuffled = random.Random(seed).sample(short, k=len(short))  # noqa: S311 - nor is an order

    def batches(condition: Arrangement, positions: Sequence[int], size: int) -> SendStep:
        size = size if together else 1
        requests = tuple(tuple(positions[at : at + size]) for at in range(0, len(positions), size))
        return SendStep(condition=condition, requests=requests, at_once=True)

    def singly(condition: Arrangement, positions: Iterable[int]) -> SendStep:
        return SendStep(condition=condition, requests=tuple((at,) for at in positions), at_once=False)

    steps = [
        singly(Arrangement.ALONE, first),
        singly(Arrangement.CACHED, first),
        batches(Arrangement.BATCHED, second, BATCH),
        singly(Arrangement.ALONE, second),
        singly(Arrangement.CACHED, second),
        batches(Arrangement.BATCHED, short, BATCH),
        batches(Arrangement.REORDERED, short[::-1], BATCH),
        batches(Arrangement.REORDERED, shuffled, SPLIT),
        batches(Arrangement.CHUNKED, samples.long, 1),
        singly(Arrangement.ALONE, samples.long),
    ]
    return tuple(step for step in steps if step.requests)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Answers of one replica, a mapping from position to answer for each step."""

    replica: str
    answers: tuple[Mapping[int, Answer], ...]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One sample in one condition on one replica, and alone."""

    replica: str
    sample: int
    difference: float
    """The largest absolute one of its numbers; infinite where one of both has no numbers."""
    holds: bool
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class ArrangementResult:
    """How the numbers of one arrangement differ from those of samples alone."""

    condition: Arrangement
    pairs: tuple[Pair, ...]
    """Empty where it was not measured."""
    ordered: int | None
    """Pairs of samples of one group that alone have different scores; None of teachers."""
    flips: int | None
    """Those of them whose order is the other way round in this arrangement."""

    @property
    def holds(self) -> bool:
        """True if all numbers are those that the sample has alone."""
        return all(pair.holds for pair in self.pairs)

    @property
    def off(self) -> tuple[Pair, ...]:
        """Samples with other numbers than alone, or none; the furthest off first."""
        return tuple(sorted((pair for pair in self.pairs if not pair.holds), key=lambda pair: -pair.difference))

    @property
    def max_abs_diff(self) -> float | None:
        """The largest difference of those that have numbers; None where none has."""
        return _largest(self.pairs)

    def as_json(self) -> dict[str, Any]:
        by_replica: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            by_replica.setdefault(pair.replica, []).append(pair)
        return {
            "condition": self.condition,
            "measured": bool(self.pairs),
            "holds": self.holds,
            "compared": len(self.pairs),
            "off": len(self.off),
            "max_abs_diff": self.max_abs_diff,
            "pairs": self.ordered,
            "order_flips": self.flips,
            "replicas": {
                replica: {
                    "max_abs_diff": _largest(pairs),
                    "off": sum(not pair.holds for pair in pairs),
                    "problem": next((pair.problem for pair in pairs if pair.problem is not None), None),
                }
                for replica, pairs in by_replica.items()
            },
        }


def _largest(pairs: Iterable[Pair]) -> float | None:
    return max((pair.difference for pair in pairs if pair.problem is None), default=None)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Result for a pool: whether its numbers depend on how they are requested."""

    replicas: tuple[str, ...]
    reference: str
    findings: tuple[ArrangementResult, ...]
    remedies: tuple[str, ...]
    """Remedies, the first one first; empty where it holds."""

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "replicas": self.replicas,
            "reference": self.reference,
            "conditions": [finding.as_json() for finding in self.findings],
            "remedies": self.remedies,
        }


def certify(
    samples: Samples,
    steps: Sequence[SendStep],
    measured: Sequence[Measured],
    tolerance: Tolerance,
    spec: RewardPoolSpec,
) -> Certificate:
    """Compare what replicas answered.

    Args:
        measured: By replica, at least one.
        spec: Says what would remedy it.
    """
    alone = {
        one.replica: {
            position: answer
            for step, answers in zip(steps, one.answers, strict=True)
            if step.condition is Arrangement.ALONE
            for position, answer in answers.items()
        }
        for one in measured
    }
    reference = _reference(alone, tolerance)
    is_teacher = spec.model.type == "Teacher"
    findings = []
    compared: list[tuple[str, Mapping[int, Answer], Mapping[int, Answer]]]
    for condition in Arrangement:
        if condition is Arrangement.ALONE:
            continue
        if condition is Arrangement.REPLICAS:
            compared = [(name, answers, alone[reference]) for name, answers in alone.items() if name != reference]
        else:
            compared = [
                (one.replica, answers, alone[one.replica])
                for one in measured
                for step, answers in zip(steps, one.answers, strict=True)
                if step.condition is condition
            ]
        pairs = [
            _pair(name, position, answers[position], base[position], tolerance)
            for name, answers, base in compared
            for position in sorted(answers)
        ]
        counts = [_flips(samples.groups, answers, base) for _, answers, base in compared]
        findings.append(
            ArrangementResult(
                condition=condition,
                pairs=tuple(pairs),
                ordered=None if is_teacher else sum(ordered for ordered, _ in counts),
                flips=None if is_teacher else sum(flips for _, flips in counts),
            )
        )
    return Certificate(
        replicas=tuple(alone),
        reference=reference,
        findings=tuple(findings),
        remedies=_remedies(findings, reference, spec),
    )


def _pair(replica: str, sample: int, answer: Answer, alone: Answer, tolerance: Tolerance) -> Pair:
    if isinstance(answer, str) or isinstance(alone, str):
        problem = answer if isinstance(answer, str) else str(alone)
        return Pair(replica=replica, sample=sample, difference=math.inf, holds=False, problem=problem)
    if len(answer) != len(alone):
        problem = f"{len(answer)} numbers, and alone {len(alone)}"
        return Pair(replica=replica, sample=sample, difference=math.inf, holds=False, problem=problem)
    numbers = [(float(one), float(other)) for one, other in zip(answer, alone, strict=True)]
    return Pair(
        replica=replica,
        sample=sample,
        difference=max((abs(one - other) for one, other in numbers), default=0.0),
        holds=all(abs(one - other) <= tolerance.at(other) for one, other in numbers),
    )


def _reference(alone: Mapping[str, Mapping[int, Answer]], tolerance: Tolerance) -> str:
    """The replica that most others agree with; of equals, the first."""

    def agreeing(name: str) -> int:
        return sum(
            all(_pair(other, at, answers[at], alone[name][at], tolerance).holds for at in answers)
            for other, answers in alone.items()
        )

    return max(alone, key=agreeing)


def _flips(groups: Sequence[range], answers: Mapping[int, Answer], alone: Mapping[int, Answer]) -> tuple[int, int]:
    """Pairs within groups that differ alone, and those of them whose order is the other way round in the answers."""
    ordered = flips = 0
    for group in groups:
        scores = []
        for at in group:
            now, before = answers.get(at, ""), alone[at]
            if not isinstance(now, str) and not isinstance(before, str):
                scores.append((now[0], before[0]))
        for (one, one_alone), (other, other_alone) in combinations(scores, 2):
            ordered += one_alone != other_alone
            flips += (one - other) * (one_alone - other_alone) < 0
    return ordered, flips


def _remedies(findings: Iterable[ArrangementResult], reference: str, spec: RewardPoolSpec) -> tuple[str, ...]:
    """Return the remedies; of what a replica does by itself the likeliest cause alone, since others follow from it."""
    silent: dict[str, str] = {}
    broken: set[Arrangement] = set()
    odd: set[str] = set()
    for finding in findings:
        for pair in finding.off:
            if pair.problem is not None:
                silent.setdefault(pair.replica, pair.problem)
            elif finding.condition is Arrangement.REPLICAS:
                odd.add(pair.replica)
            else:
                broken.add(finding.condition)
    remedies = [f"{replica} gives no numbers: {problem}" for replica, problem in silent.items()]
    if broken:
        remedies.append(_setting(broken, spec))
    if odd:
        remedies.append(
            f"{', '.join(sorted(odd))} and {reference} have other numbers: start the odd one anew; if it stays so, give"
            " all of them the same GPU, driver, image and spec.engine"
        )
    return tuple(remedies)


def _setting(broken: set[Arrangement], spec: RewardPoolSpec) -> str:
    engine = spec.engine
    # Teachers' engines keep no prefixes, and vLLM's step is fixed then: longer sequences need chunks.
    is_teacher = spec.model.type == "Teacher"
    setting = setting_against(
        engine.name,
        cached=Arrangement.CACHED in broken and not is_teacher,
        chunked=broken == {Arrangement.CHUNKED} and not (is_teacher and engine.name == "vllm"),
        deterministic=engine.deterministic,
        args=engine.args,
        env=engine.variables,
    )
    if setting is not None:
        return f"set {setting}, and verify again"
    return f"{engine.name} has no further setting against it: use another engine, or allow more by --max-abs-diff"
