"""A training job, as far as a pool can see it: `python -m autoscaling.job POOL FOLDER --bursts N`.

A burst of samples over some seconds, then a gap in which weights would be updated, and so on. As `rewardpool_train`
does, it tells its pool how many samples a burst has, when a rollout begins and when an update does; when the next burst
comes the announcer learns. After the last burst it goes on rolling out, without end and without samples: it is there to
be killed.

Where FOLDER holds `texts.json`, as `autoscaling.reference` writes it, the pool is a model and scores those. FOLDER gets
`samples.jsonl`, as of `faults.traffic`, and `bursts.jsonl`, two lines per burst: {"burst": 0, "began": seconds since
1970} before the first sample, and {"burst": 0, "ended": …} after the last score.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from autoscaling.callers import DEADLINE_SECONDS, TEXTS, read_questions
from faults.traffic import SAMPLES, Question, question, score
from rewardpool import JobDemand, Pool, RewardConfig

BURSTS = "bursts.jsonl"
JOB = "grpo"
CONCURRENCY = 4096
"""More than a burst has, or the client's own limit would be what the pool sees."""


async def run(
    pool_name: str, folder: Path, *, bursts: int, samples: int, spread_seconds: float, gap_seconds: float
) -> None:
    """Train until killed."""
    config = RewardConfig(
        pool=pool_name,
        job=JOB,
        concurrency=CONCURRENCY,
        timeout=DEADLINE_SECONDS,
        on_failure="skip",
        wait_seconds=60,
    )
    known = read_questions(folder / TEXTS) if (folder / TEXTS).exists() else ()
    with (folder / SAMPLES).open("w", buffering=1) as answers, (folder / BURSTS).open("w", buffering=1) as told:
        async with Pool(config) as pool:
            demand = pool.demand(samples=samples)
            for burst in range(bursts):
                if burst:
                    demand.update()
                    await asyncio.sleep(gap_seconds)
                demand.rollout()
                told.write(json.dumps({"burst": burst, "began": time.time()}) + "\n")
                numbers = range(burst * samples, (burst + 1) * samples)
                questions = {
                    index: known[index % len(known)] if known else question(f"sample {index}") for index in numbers
                }
                await roll_out(pool, demand, questions, spread_seconds=spread_seconds, out=answers)
                told.write(json.dumps({"burst": burst, "ended": time.time()}) + "\n")
            await asyncio.Event().wait()


async def roll_out(
    pool: Pool, demand: JobDemand, questions: Mapping[int, Question], *, spread_seconds: float, out: TextIO
) -> None:
    """Have these samples scored, by their numbers, that come one after the other over some seconds."""
    began, scoring = time.time(), []
    for place, (index, asked) in enumerate(questions.items()):
        due = began + spread_seconds * place / len(questions)
        await asyncio.sleep(max(0.0, due - time.time()))
        scoring.append(asyncio.create_task(score(pool, asked, index=index, due=due, out=out)))
    with demand.waiting():
        await asyncio.gather(*scoring)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m autoscaling.job", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pool", help="namespace/name of the RewardPool")
    parser.add_argument("folder", type=Path, help="existing folder for what is measured")
    parser.add_argument("--bursts", type=int, required=True, help="how many")
    parser.add_argument("--samples", type=int, required=True, help="of one burst")
    parser.add_argument("--spread-seconds", type=float, required=True, help="over how long they come")
    parser.add_argument("--gap-seconds", type=float, required=True, help="from its last score to the next one")
    given = parser.parse_args()
    asyncio.run(
        run(
            given.pool,
            given.folder,
            bursts=given.bursts,
            samples=given.samples,
            spread_seconds=given.spread_seconds,
            gap_seconds=given.gap_seconds,
        )
    )


if __name__ == "__main__":
    main()
