"""The pod that rates groups until SIGTERM, by one open reward: `python -m two_models.rating POOL FOLDER`.

One half of them are rated together, the other half one episode at a time, and settled at the end as trainers do it.
FOLDER gets `ratings.jsonl`, a line for each group in the order of their ends:

    {"group": 7, "members": [{"label": "3-0", "score": 0.25, "revision": "5d8f…", "problem": null}, …]}
"""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rewardpool._rewards import Episode, OpenReward, Rating, open_reward

RATINGS = "ratings.jsonl"
ENDED = "ended.json"
PROBLEMS = 25
MEMBERS = 8
AT_ONCE = 4
"""Groups."""


def episodes() -> list[tuple[str, str, str]]:
    """Return prompt, response and label of every episode, one problem's after the other."""
    return [
        (f"2 + {problem}?", str(problem + member) * (1 + member), f"{problem}-{member}")
        for problem in range(PROBLEMS)
        for member in range(MEMBERS)
    ]


def conversation(prompt: str, response: str) -> list[dict[str, str]]:
    """Return the messages that are scored."""
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


async def one_by_one(reward: OpenReward, group: Sequence[Episode]) -> list[Rating]:
    """Rate a group's episodes each when it ends, as trainers do, and settle them when all have ended."""
    return await reward.settled(group, await asyncio.gather(*map(reward.rate, group)))


async def rate(pool: str, folder: Path) -> None:
    """Rate the problems' groups over and over, then write down how many were begun."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    made = [Episode(prompt=prompt, response=response, id=label) for prompt, response, label in episodes()]
    begun = 0
    with (folder / RATINGS).open("w", buffering=1) as out:
        async with open_reward({"pool": pool, "timeout": 120, "on_failure": "skip", "wait_seconds": 60}) as reward:

            async def keep_rating(out: TextIO) -> None:
                nonlocal begun
                while not stop.is_set():
                    number, begun = begun, begun + 1
                    first = number % PROBLEMS * MEMBERS
                    group = made[first : first + MEMBERS]
                    ratings = await (one_by_one(reward, group) if number % 2 else reward.rate_group(group))
                    members = [
                        {
                            "label": episode.label,
                            "score": rating.total,
                            "revision": "+".join(next(iter(rating.revisions.values()), ())) or None,
                            "problem": None if rating.error is None else str(rating.error),
                        }
                        for episode, rating in zip(group, ratings, strict=True)
                    ]
                    out.write(json.dumps({"group": number, "members": members}) + "\n")

            async with asyncio.TaskGroup() as raters:
                for _ in range(AT_ONCE):
                    raters.create_task(keep_rating(out))
            report = {name: pool.report() for name, pool in reward.pools.items()}
    asked_again = sum(one.asked_again for one in report.values())
    (folder / ENDED).write_text(json.dumps({"begun": begun, "asked_again": asked_again}))


if __name__ == "__main__":
    asyncio.run(rate(sys.argv[1], Path(sys.argv[2])))
