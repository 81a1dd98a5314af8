"""Callers who ask again as soon as they are answered: `python -m autoscaling.callers POOL FOLDER --callers N`.

So many requests are with the pool at any time, however quick it is (closed loop). With --samples it ends after so many,
otherwise by SIGTERM, after the answers to what was asked. The client is the trainer's own with its defaults, but for a
deadline that is longer than a start. Runs as a pod on RewardPool's own image.

FOLDER holds `texts.json`, as `autoscaling.reference` writes it; `token_ids` may stand for a text, and null for a score
where the sample must be refused. It gets `samples.jsonl`, as of `faults.traffic`, where
`seconds` count from the asking, and at the end `asked.json`, {"asked": number of samples}.
"""

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.traffic import SAMPLES, Question, score
from rewardpool import Pool, RewardConfig, Sample

TEXTS = "texts.json"
ASKED = "asked.json"
DEADLINE_SECONDS = 300.0
"""For one sample. vLLM starts in less than a minute on two idle cores, and a test machine has other things to do."""
TOLERANCE = 1e-3
"""vLLM and transformers add up in another order; between two texts' scores is ten times as much."""


@dataclass
class Numbers:
    """The numbers of the samples, which the callers share."""

    most: int | None
    asked: int = 0

    def take(self) -> int | None:
        """The next one; None when all are taken."""
        if self.asked == self.most:
            return None
        self.asked += 1
        return self.asked - 1


async def run(pool_name: str, folder: Path, *, callers: int, samples: int | None) -> None:
    """Ask until all samples are asked for, or until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    config = RewardConfig(
        pool=pool_name,
        concurrency=callers,
        timeout=DEADLINE_SECONDS,
        on_failure="skip",
        wait_seconds=60,
        announce=False,
    )
    questions, numbers = read_questions(folder / TEXTS), Numbers(most=samples)
    with (folder / SAMPLES).open("w", buffering=1) as out:
        async with Pool(config) as pool, asyncio.TaskGroup() as calling:

            async def call() -> None:
                while not stop.is_set() and (index := numbers.take()) is not None:
                    question = questions[index % len(questions)]
                    await score(pool, question, index=index, due=time.time(), out=out)

            for _ in range(callers):
                calling.create_task(call())
    (folder / ASKED).write_text(json.dumps({"asked": numbers.asked}))


def read_questions(path: Path) -> Sequence[Question]:
    """The samples with their scores."""
    return [
        Question(
            sample=Sample(text=known.get("text"), token_ids=known.get("token_ids")),
            score=known["score"],
            tolerance=TOLERANCE,
        )
        for known in json.loads(path.read_text())
    ]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m autoscaling.callers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pool", help="namespace/name of the RewardPool")
    parser.add_argument("folder", type=Path, help="existing folder with texts.json, for what is measured")
    parser.add_argument("--callers", type=int, default=1, help="requests at a time (default 1)")
    parser.add_argument("--samples", type=int, help="end after so many (default: at SIGTERM)")
    given = parser.parse_args()
    asyncio.run(run(given.pool, given.folder, callers=given.callers, samples=given.samples))


if __name__ == "__main__":
    main()
