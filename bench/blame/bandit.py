"""A tiny policy that can provoke time-outs, trained by GRPO under four ways to go on without a score.

The policy is a table: for each prompt, logits of four answers. One of them makes the verifier time out, as code that
never ends does. Scores are a reward model's, negative as those of many are, so that a made-up 0 would be the best there
is. Some verifications fail for no fault of the answer, too.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from blame import verifier
from rewardpool_train.advantages import group_advantages

Way = Literal["constant_0", "drop_groups", "unscored", "unscored_with_penalty"]
WAYS: Final[tuple[Way, ...]] = ("constant_0", "drop_groups", "unscored", "unscored_with_penalty")
"""Each failure counts as 0; groups with a failure are dropped; failures are left out; the same, with a penalty for
those that are the policy's fault."""

ANSWERS: Final = ("right", "fair", "wrong", "never ends")
NEVER_ENDS: Final = ANSWERS.index("never ends")
SCORES: Final = ((-0.5, -1.5, -3.0), (-2.0, -2.5, -3.0))
"""Of the answers that end, on an easy and on a hard prompt; noise is added."""
NOISE: Final = 0.3
PENALTY: Final = -5.0
ON_FAILURE: Final[Mapping[Way, Any]] = {
    "constant_0": "skip",
    "drop_groups": "skip",
    "unscored": "skip",
    "unscored_with_penalty": {"policy": {"penalty": PENALTY}, "infra": "skip"},
}
GROUP_SIZE: Final = 8
LEARNING_RATE: Final = 0.05
INFRA_FAILURES: Final = 0.05


@dataclass(frozen=True)
class Learnt:
    """What a policy does before and after training, as means over its prompts."""

    provokes_before: float
    """Probability of the answer that makes the verifier time out."""
    provokes_after: float
    right_after: float
    wasted: float
    """Share of the rollouts that no update saw."""


async def learn(way: Way, *, steps: int, seed: int) -> Learnt:
    """Train a policy from equal logits, rewarded by the project's client and a stand-in verifier."""
    rng = random.Random(seed)
    logits = [[0.0] * len(ANSWERS) for _ in SCORES]
    before = _mean(logits, NEVER_ENDS)
    seen = 0
    # A policy that only provokes time-outs gets no scores, which the client takes for a broken pool.
    patience = {"breaker_threshold": 10_000} if way == "constant_0" else {}
    async with verifier.pool_that(verifier.verify, on_failure=ON_FAILURE[way], concurrency=16, **patience) as pool:
        for _ in range(steps):
            drawn = [rng.choices(range(len(ANSWERS)), weights=softmax(row), k=GROUP_SIZE) for row in logits]
            responses = [_response(prompt, answer, rng) for prompt, answers in enumerate(drawn) for answer in answers]
            rewards = await verifier.scores_of(pool, responses)
            for prompt, (row, answers) in enumerate(zip(logits, drawn, strict=True)):
                group = rewards[prompt * GROUP_SIZE : (prompt + 1) * GROUP_SIZE]
                seen += _update(row, answers, _advantages(group, way))
    rollouts = steps * len(SCORES) * GROUP_SIZE
    return Learnt(before, _mean(logits, NEVER_ENDS), _mean(logits, ANSWERS.index("right")), 1 - seen / rollouts)


def _response(prompt: int, answer: int, rng: random.Random) -> str:
    """Return what the verifier is given of an answer: the score that it is to find, or the failure."""
    noise, is_lost = rng.gauss(0.0, NOISE), rng.random() < INFRA_FAILURES
    if is_lost:
        return verifier.NO_WORKER
    return verifier.NEVER_ENDS if answer == NEVER_ENDS else repr(SCORES[prompt][answer] + noise)


def _advantages(rewards: Sequence[float | None], way: Way) -> Sequence[float | None]:
    if way == "drop_groups" and None in rewards:
        return [None] * len(rewards)
    given = [0.0 if reward is None else reward for reward in rewards] if way == "constant_0" else rewards
    return group_advantages(given, min_members=GROUP_SIZE // 2)


def _update(logits: list[float], answers: Sequence[int], advantages: Sequence[float | None]) -> int:
    """Take a step of the policy gradient; returns the number of rollouts that it saw."""
    chances = softmax(logits)
    for answer, advantage in zip(answers, advantages, strict=True):
        for at, chance in enumerate(chances):
            logits[at] += LEARNING_RATE * (advantage or 0.0) * ((at == answer) - chance)
    return sum(advantage is not None for advantage in advantages)


def softmax(logits: Sequence[float]) -> list[float]:
    """Return the probabilities of logits."""
    most = max(logits)
    weights = [math.exp(logit - most) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def _mean(logits: Sequence[Sequence[float]], answer: int) -> float:
    return math.fsum(softmax(row)[answer] for row in logits) / len(logits)
