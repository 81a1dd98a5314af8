"""The certificate before a worker is ready first: whether its numbers depend on how they are asked for.

Four samples of token ids are asked for alone, again behind a cached prefix, in a batch and in another order: seven
requests of 1,200 tokens together, of a teacher 400, a few steps of an engine. Two samples begin alike, with more than a
block of any engine's prefix cache, of which a teacher has none; three are in a batch before they are alone, so that a
batch is compared without a cache too.

What is measured on every replica, with long samples in chunks and with all that a pool has, is
`rewardpool verify --determinism`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from time import monotonic
from typing import Any

from rewardpool_api.certificate import MOST_WORDS, allowed

ALONE, CACHED, BATCHED, REORDERED = "alone", "after a cache hit", "in a batch", "in another order"
Step = tuple[str, tuple[int, ...]]
"""A request: in which way, and positions of its samples."""
PLAN: tuple[Step, ...] = (
    (ALONE, (0,)),
    (CACHED, (0,)),
    (BATCHED, (1, 2, 3)),
    (ALONE, (1,)),
    (ALONE, (2,)),
    (ALONE, (3,)),
    (REORDERED, (3, 2, 1, 0)),
)
PROMPT_TOKENS = 144  # blocks of prefix caches have up to 128 tokens
UNCACHED_TOKENS = 16  # where there is no cache
FURTHER_TOKENS = (8, 24)
OTHER_TOKENS = (60, 9)
TOKENS = range(10, 250)  # in every vocabulary, and none of them special in most
TOP_K = 8

Numbers = tuple[float, ...]
"""Numbers of one sample: its score and those of its steps, or log-probabilities."""
Ask = Callable[[Sequence[list[int]]], Awaitable[Sequence[Numbers]]]
"""Returns the engine's answers to samples of one request; raises CannotAskError."""


class CannotAskError(Exception):
    """The engine does not take a sample; the text has its words."""


class NumbersVaryError(RuntimeError):
    """Numbers differ by more than they may; the text has the difference, what is allowed, and what to do."""


def fixed_samples(
    *, prompt_tokens: int, most_tokens: int | None, vocabulary: int | None, last: int | None
) -> list[list[int]]:
    """Return the samples, the same each time; pure.

    Args:
        prompt_tokens: With which two of them begin.
        most_tokens: Of a sample; None where that is not known.
        vocabulary: Tokens of the model; None where that is not known.
        last: A token with which each sample ends, as one that scores steps has to.
    """
    limit = max(2, most_tokens or prompt_tokens + max(FURTHER_TOKENS))
    beyond = min(vocabulary or TOKENS.stop, TOKENS.stop)
    chance = random.Random(0)  # noqa: S311 - token ids are no secrets

    def drawn(count: int) -> list[int]:
        return chance.choices(range(min(TOKENS.start, beyond // 2), beyond), k=count)

    prompt = drawn(min(prompt_tokens, limit // 2))
    samples = [prompt + drawn(min(count, limit - len(prompt))) for count in FURTHER_TOKENS]
    samples += [drawn(min(count, limit)) for count in OTHER_TOKENS]
    return samples if last is None else [[*sample[:-1], last] for sample in samples]


@dataclass
class AnswersSoFar:
    """Answers so far, and what follows from them."""

    dtype: str
    alone: dict[int, Numbers] = field(default_factory=dict)
    others: list[tuple[str, dict[int, Numbers]]] = field(default_factory=list)

    def add(self, step: Step, answers: Sequence[Numbers]) -> None:
        way, positions = step
        found = dict(zip(positions, answers, strict=True))
        if way == ALONE:
            self.alone |= found
        else:
            self.others.append((way, found))

    @property
    def pairs(self) -> list[tuple[str, float, float]]:
        """Numbers of a sample in each way and alone."""
        return [
            (way, one, other)
            for way, found in self.others
            for at, numbers in found.items()
            if at in self.alone
            for one, other in zip(numbers, self.alone[at], strict=True)
        ]

    def differences(self) -> dict[str, float]:
        """The largest one of each way."""
        found: dict[str, float] = {}
        for way, one, other in self.pairs:
            found[way] = max(found.get(way, 0.0), abs(one - other))
        return found

    def beyond(self) -> dict[str, tuple[float, float]]:
        """Return, for each way in which a number differs too much, the worst difference and the allowed one."""
        worst: dict[str, tuple[float, float]] = {}
        for way, one, other in self.pairs:
            difference, bound = abs(one - other), allowed(self.dtype, one, other)
            before = worst.get(way, (0.0, 1.0))
            if difference > bound and difference / bound > before[0] / before[1]:
                worst[way] = difference, bound
        return worst

    def flips(self) -> tuple[int, int]:
        """Pairs of scores that are in another order than alone, and all pairs."""
        flips = pairs = 0
        for _, found in self.others:
            for one, other in combinations([at for at in found if at in self.alone], 2):
                alone = self.alone[one][0] - self.alone[other][0]
                flips += (found[one][0] - found[other][0]) * alone < 0
                pairs += 1
        return flips, pairs


async def certify(
    ask: Ask, samples: Sequence[list[int]], *, dtype: str, seconds: float, scores: bool, remedy: Callable[[bool], str]
) -> dict[str, Any]:
    """Measure whether an engine's numbers depend on how they are asked for.

    Args:
        samples: What `fixed_samples` returned.
        dtype: As in the manifest; by it numbers may differ.
        seconds: For all of it. What is not answered by then is not compared.
        scores: Whether a sample's first number is a score, whose order matters.
        remedy: Returns what to do, given whether they depend on a cached prefix.

    Returns:
        What the ready report says of it.

    Raises:
        NumbersVaryError: They do.
    """
    measured, started = AnswersSoFar(dtype), monotonic()
    missing = ""
    for done, step in enumerate(PLAN):
        asking = asyncio.ensure_future(ask([samples[at] for at in step[1]]))
        try:
            # Stock images may have Python 3.10, which lacks asyncio.timeout.
            await asyncio.wait({asking}, timeout=max(0.0, seconds - (monotonic() - started)))
            if not asking.done():
                missing = f"too slow: {done} of {len(PLAN)} requests were answered within {seconds:g} s"
                break
            measured.add(step, asking.result())
        except CannotAskError as error:
            missing = f"the engine refuses a sample: {error}"
            break
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    flips, pairs = measured.flips()
    order = f"; {flips} of {pairs} pairs of scores change their order" if scores else ""
    if broken := measured.beyond():
        found = ", ".join(f"{way} by {off:.3g} ({bound:.3g} allowed)" for way, (off, bound) in broken.items())
        raise NumbersVaryError(f"numbers differ from those alone: {found}{order}; {remedy(CACHED in broken)}")
    if missing:
        return {"outcome": "NotCertified", "message": missing[:MOST_WORDS]}
    differences = measured.differences()
    found = ", ".join(f"{way} by {off:.3g}" for way, off in differences.items())
    return {
        "outcome": "Certified",
        "max_abs_diff": max(differences.values()),
        "message": f"numbers differ from those alone: {found}{order}",
        "seconds": round(monotonic() - started, 4),
    }
