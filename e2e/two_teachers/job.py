"""A job with two teachers and a judge: `python -m two_teachers.job NAMESPACE FOLDER`.

It announces one rollout to all three pools. FOLDER holds `sequences.json`, as `checkpoints.py` writes it: each sequence
goes to its teacher, a text of its own to the judge, and the sequences of `GATEWAY` also to that teacher's gateway, as
TRL sends them. FOLDER gets `answers.jsonl`, a line for each answer in their order:

    {"of": "maths", "index": 7, "seconds": 31.2, "difference": 2e-06, "problem": null}

`of` is a pool, or `gateway`. `difference` is the largest from what is true.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TextIO

import aiohttp

from faults.traffic import question
from rewardpool import Pool, RewardConfig
from rewardpool.errors import RewardPoolError

JOB = "distil"
JUDGE = "judge"
GATEWAY = "maths"
ANSWERS = "answers.jsonl"
SEQUENCES = "sequences.json"
DEADLINE_SECONDS = 600.0
TRIES = 5
"""Of a request at the gateway that is answered 503, as TRL's client has them."""
PAUSE_SECONDS = 2.0
BATCH = 10


class Answers:
    """What comes back, written down as it does."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()

    async def take(self, of: str, indices: Sequence[int], differences: Awaitable[Sequence[float]]) -> None:
        """Wait for answers, and write down how far they are from what is true."""
        found: Sequence[float | None]
        try:
            found, problem = await differences, None
        except (RewardPoolError, aiohttp.ClientError, TimeoutError) as error:
            found, problem = [None] * len(indices), f"{type(error).__name__}: {error}"
        seconds = round(time.monotonic() - self._began, 2)
        for index, difference in zip(indices, found, strict=True):
            line = {"of": of, "index": index, "seconds": seconds, "difference": difference, "problem": problem}
            self._out.write(json.dumps(line) + "\n")


def largest_difference(found: Sequence[float], true: Sequence[float]) -> float:
    """Return the largest between two lists of one length."""
    return max(abs(one - other) for one, other in zip(found, true, strict=True))


async def by_pool(pool: Pool, known: dict[str, Any]) -> list[float]:
    """Ask a teacher's pool about a sequence."""
    answer = await pool.logprobs(known["ids"])
    return [largest_difference(answer.logprobs.tolist(), known["logprobs"])]


async def by_gateway(session: aiohttp.ClientSession, url: str, batch: Sequence[dict[str, Any]]) -> list[float]:
    """Ask a gateway about several sequences."""
    asked = {"prompt": [known["ids"] for known in batch], "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 1}
    for left in reversed(range(TRIES)):
        async with session.post(f"{url}/v1/completions", json=asked) as answer:
            if answer.status != 503 or not left:
                answer.raise_for_status()
                choices = (await answer.json())["choices"]
                break
        await asyncio.sleep(PAUSE_SECONDS)
    return [
        largest_difference(
            [
                position[str(token)]["logprob"]
                for token, position in zip(known["ids"][1:], choice["prompt_logprobs"][1:], strict=True)
            ],
            known["logprobs"],
        )
        for choice, known in zip(choices, batch, strict=True)
    ]


async def judged(pool: Pool, text: str) -> list[float]:
    """Ask the judge about a text whose score is known."""
    asked = question(text)
    score = await pool.score(asked.sample)
    return [abs(score - (asked.score or 0.0))]


async def run(namespace: str, folder: Path) -> None:
    """Announce, ask, and write down all answers."""
    known: dict[str, list[dict[str, Any]]] = json.loads((folder / SEQUENCES).read_text())
    sizes = {**{name: len(found) for name, found in known.items()}, JUDGE: sum(map(len, known.values()))}
    basic = aiohttp.encode_basic_auth("trainer", os.environ["GATEWAY_KEY"])
    async with AsyncExitStack() as stack:
        answers = Answers(stack.enter_context((folder / ANSWERS).open("w", buffering=1)))
        session = await stack.enter_async_context(aiohttp.ClientSession(headers={"Authorization": basic}))
        pools, asking = {}, []
        for name, size in sizes.items():
            config = RewardConfig(pool=f"{namespace}/{name}", job=JOB, timeout=DEADLINE_SECONDS, wait_seconds=60)
            pools[name] = await stack.enter_async_context(Pool(config))
            pools[name].demand(samples=size).rollout()
        for name, found in known.items():
            asking += [answers.take(name, [index], by_pool(pools[name], one)) for index, one in enumerate(found)]
        asking += [
            answers.take(JUDGE, [index], judged(pools[JUDGE], f"response {index}")) for index in range(sizes[JUDGE])
        ]
        of_gateway = known[GATEWAY]
        for first in range(0, len(of_gateway), BATCH):
            batch = of_gateway[first : first + BATCH]
            differences = by_gateway(session, os.environ["GATEWAY_URL"], batch)
            asking.append(answers.take("gateway", range(first, first + len(batch)), differences))
        await asyncio.gather(*asking)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2])))
