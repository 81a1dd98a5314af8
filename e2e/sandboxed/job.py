"""Asks a pool, as soon as it is answered: `python -m sandboxed.job POOL FOLDER --callers N [--once]`.

The samples are in FOLDER's `samples.json`, as `sandboxed.samples` writes it. They are asked once, or over and over
until SIGTERM. What became of each is a line of `answers.jsonl`; `asked.json`, {"asked": number}, is there at the end.
The client is the trainer's own. Runs as a pod on RewardPool's own image.
"""

import argparse
import asyncio
import itertools
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from rewardpool import FunctionSample, Pool, RewardConfig, Sample, Unscored
from rewardpool.errors import RewardPoolError

SAMPLES = "samples.json"
ANSWERS = "answers.jsonl"
ASKED = "asked.json"
DEADLINE_SECONDS = 300.0
"""For one sample."""


async def run(pool_name: str, folder: Path, *, callers: int, once: bool) -> None:
    """Ask all samples once, or until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    samples: list[dict[str, Any]] = json.loads((folder / SAMPLES).read_text())
    numbers: Iterator[int] = iter(range(len(samples))) if once else itertools.cycle(range(len(samples)))
    asked = 0
    config = RewardConfig(
        pool=pool_name,
        concurrency=callers,
        timeout=DEADLINE_SECONDS,
        on_failure="skip",
        wait_seconds=60,
        announce=False,
    )
    with (folder / ANSWERS).open("w", buffering=1) as out:
        async with Pool(config) as pool, asyncio.TaskGroup() as calling:

            async def call() -> None:
                nonlocal asked
                while not stop.is_set() and (index := next(numbers, None)) is not None:
                    asked += 1
                    await ask(pool, samples[index], index=index, id=f"{index}-{asked}", out=out)

            for _ in range(callers):
                calling.create_task(call())
    (folder / ASKED).write_text(json.dumps({"asked": asked}))


async def ask(pool: Pool, sample: dict[str, Any], *, index: int, id: str, out: TextIO) -> None:  # noqa: A002
    """Ask for one sample's score, and write down what became of it."""
    function = FunctionSample(
        data_source="sandboxed", solution_str=sample["code"], ground_truth=None, extra_info=sample["extra_info"]
    )
    began = time.time()
    line: dict[str, Any] = {"index": index, "began": began, "attempts": 0, "score": None}
    try:
        outcome = await pool.outcome(Sample(function=function, id=id))
        line["attempts"] = outcome.attempts
        if isinstance(outcome, Unscored):
            line["problem"] = str(outcome.error)
        else:
            line |= {"score": outcome.value, "info": dict(outcome.info), "revision": outcome.revision}
    except RewardPoolError as error:
        line["problem"] = f"{type(error).__name__}: {error}"
    out.write(json.dumps({**line, "seconds": round(time.time() - began, 3)}) + "\n")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m sandboxed.job", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pool", help="namespace/name of the RewardPool")
    parser.add_argument("folder", type=Path, help=f"existing folder with {SAMPLES}, for what becomes of them")
    parser.add_argument("--callers", type=int, default=2, help="samples at a time (default 2)")
    parser.add_argument("--once", action="store_true", help="end when all samples are answered (default: at SIGTERM)")
    given = parser.parse_args()
    asyncio.run(run(given.pool, given.folder, callers=given.callers, once=given.once))


if __name__ == "__main__":
    main()
