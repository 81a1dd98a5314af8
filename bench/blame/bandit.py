"""A tiny policy that can provoke time-outs, trained by GRPO under four ways to go on without a score.

The policy is a table: for each prompt, logits of four answers. One of them makes the verifier time out, as code that
never ends does. Scores are a reward model's, negative as those of many are, so that a made-up 0 would be the best there
is. Some verifications fail for no fault of the answer, too.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

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


def learn(way: Way, *, steps: int, seed: int) -> Learnt:
    """Train a policy from equal logits."""
    rng = random.Random(seed)
    logits = [[0.0] * len(ANSWERS) for _ in SCORES]
    before = _mean(logits, NEVER_ENDS)
    seen = 0
    for _ in range(steps):
        for prompt, row in enumerate(logits):
            chances = softmax(row)
            answers = rng.choices(range(len(ANSWERS)), weights=chances, k=GROUP_SIZE)
            advantages = _advantages([_reward(way, prompt, answer, rng) for answer in answers], way)
            seen += sum(advantage is not None for advantage in advantages)
            for answer, advantage in zip(answers, advantages, strict=True):
                for at, chance in enumerate(chances):
                    slope = (at == answer) - chance
                    row[at] += LEARNING_RATE * (advantage or 0.0) * slope
    rollouts = steps * len(SCORES) * GROUP_SIZE
    return Learnt(before, _mean(logits, NEVER_ENDS), _mean(logits, ANSWERS.index("right")), 1 - seen / rollouts)


def _reward(way: Way, prompt: int, answer: int, rng: random.Random) -> float | None:
    score = None if answer == NEVER_ENDS else SCORES[prompt][answer] + rng.gauss(0.0, NOISE)
    if rng.random() < INFRA_FAILURES:
        return 0.0 if way == "constant_0" else None
    if score is None and way == "unscored_with_penalty":
        return PENALTY
    return 0.0 if score is None and way == "constant_0" else score


def _advantages(rewards: Sequence[float | None], way: Way) -> Sequence[float | None]:
    if way == "drop_groups" and None in rewards:
        return [None] * len(rewards)
    return group_advantages(rewards, min_members=GROUP_SIZE // 2)


def softmax(logits: Sequence[float]) -> list[float]:
    """Return the probabilities of logits."""
    most = max(logits)
    weights = [math.exp(logit - most) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def _mean(logits: Sequence[Sequence[float]], answer: int) -> float:
    return math.fsum(softmax(row)[answer] for row in logits) / len(logits)
