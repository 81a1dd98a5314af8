"""Steady load from a training job's point of view: `python -m faults.traffic POOL FOLDER`.

Open loop: sample i is due i/rate seconds after the start, whatever became of those before it, so that a stall is seen
as long as it was and not once. The client is the trainer's own with its defaults. Runs as a pod on RewardPool's own
image; beside the package it needs `faults/reward.py` only.

FOLDER gets `began.json`, {"began": seconds since 1970, "rate": samples per second}, and `samples.jsonl`, a line per
answered sample in the order of the answers:

    {"index": 7, "seconds": 0.061, "attempts": 1, "score": -0.25, "problem": null}

`seconds` count from when it was due. `problem` begins with "failed" where there was no score, with "wrong" where there
was another than the text's.
"""

import argparse
import asyncio
import json
import math
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from faults.reward import expected_score
from rewardpool import FunctionSample, Pool, RewardConfig, Sample, Unscored
from rewardpool.errors import InvalidSampleError, RewardPoolError

BEGAN = "began.json"
SAMPLES = "samples.jsonl"
ENDED = "ended.json"
"""How many were asked for, once no more are: one that was due in the moment of SIGTERM may not have been."""
CONCURRENCY = 4096
"""More than are ever in flight, or the client's own limit would close the loop."""


async def run(pool_name: str, folder: Path, *, rate: float, announce: bool = True) -> None:
    """Score samples until SIGTERM, then wait for those in flight."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    config = RewardConfig(
        pool=pool_name, concurrency=CONCURRENCY, on_failure="skip", wait_seconds=60, announce=announce
    )
    # The file outlives the tasks, which write their answers into it after the last question was asked.
    with (folder / SAMPLES).open("w", buffering=1) as out:
        async with Pool(config) as pool, asyncio.TaskGroup() as flying:
            began = time.time()
            (folder / BEGAN).write_text(json.dumps({"began": began, "rate": rate}))
            index = 0
            while not stop.is_set():
                due = began + index / rate
                await asyncio.sleep(max(0.0, due - time.time()))
                flying.create_task(score(pool, question(f"sample {index}"), index=index, due=due, out=out))
                index += 1
            (folder / ENDED).write_text(json.dumps({"asked": index}))


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sample with the score that it must get, or None where it must be refused as one that nobody can score."""

    sample: Sample
    score: float | None
    tolerance: float = 1e-6


def question(text: str) -> Question:
    """A text for the function of `faults.reward`."""
    function = FunctionSample(data_source="faults", solution_str=text, ground_truth=None)
    return Question(sample=Sample(function=function, id=text), score=expected_score(text))


async def score(pool: Pool, question: Question, *, index: int, due: float, out: TextIO) -> None:
    """Score one sample, and write down what became of it."""
    attempts, value = 0, None
    try:
        outcome = await pool.outcome(question.sample)
        attempts = outcome.attempts
        if isinstance(outcome, Unscored):
            refused = question.score is None and isinstance(outcome.error, InvalidSampleError)
            problem = None if refused else f"failed: {outcome.error}"
        else:
            value, problem = outcome.value, wrong(question, outcome.value)
    except RewardPoolError as error:
        problem = f"failed: {type(error).__name__}: {error}"
    seconds = round(time.time() - due, 4)
    line = {"index": index, "seconds": seconds, "attempts": attempts, "score": value, "problem": problem}
    out.write(json.dumps(line) + "\n")


def wrong(question: Question, value: float) -> str | None:
    """What is wrong with a score; None when it is the sample's."""
    if question.score is None:
        return f"wrong: {value}, where none can be given"
    right = math.isclose(value, question.score, rel_tol=0.0, abs_tol=question.tolerance)
    return None if right else f"wrong: {value} instead of {question.score}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m faults.traffic", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pool", help="namespace/name of the RewardPool")
    parser.add_argument("folder", type=Path, help="existing folder for what is measured")
    parser.add_argument("--rate", type=float, default=40.0, help="samples per second (default 40)")
    parser.add_argument("--silent", action="store_true", help="announce nothing")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.pool, arguments.folder, rate=arguments.rate, announce=not arguments.silent))


if __name__ == "__main__":
    main()
