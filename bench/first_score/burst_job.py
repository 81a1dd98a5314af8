"""Training jobs as far as pools can see them: `python -m first_score.burst_job NAMESPACE/POOL … --bursts N`, as a pod.

Each job has a pool of its own. A burst of samples over a second, then a gap in which weights would be updated, whose
length is drawn anew each time. As `rewardpool_train` does, it tells its pool how many samples a burst has, when a
rollout begins and when an update does; when the next burst comes the client learns. The first one comes once the pool,
which knows that the job loads, serves.

Prints a line for each burst, as JSON:

    {"pool": "rl/a", "burst": 3, "announced": true, "ready": 1, "least_ready": 0, "first_seconds": 0.05, "wrong": []}

`announced`: whether the job had said when it begins. `ready`: replicas that served by the pool's status when the first
sample was sent; `least_ready`: the fewest of the gap before. `first_seconds`: that sample's way to its score.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kubernetes_asyncio import client, config

from rewardpool import FunctionSample, JobDemand, Pool, RewardConfig, Sample, Unscored
from rewardpool_api import names

JOB: Final = "grpo"
SAMPLES: Final = 16
SPREAD_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.5
LOAD_SECONDS: Final = 60.0

Ready = Callable[[], Coroutine[Any, Any, int]]


async def train(pool_name: str, ready: Ready, *, bursts: int, gap_seconds: float, jitter: float, after: float) -> None:
    """One job.

    Args:
        pool_name: namespace/name.
        ready: how many replicas serve now.
        bursts: how many there are.
        gap_seconds: of a gap, in the middle.
        jitter: most that one differs from that, as a share.
        after: seconds until it begins, so that not all begin at once.
    """
    await asyncio.sleep(after)
    drawn = random.Random(pool_name)
    settings = RewardConfig(pool=pool_name, job=JOB, on_failure="skip", wait_seconds=LOAD_SECONDS)
    async with Pool(settings) as pool:
        with pool.demand(samples=SAMPLES) as demand:
            await _served(ready)
            for burst in range(bursts):
                least = await ready()
                if burst:
                    demand.update()
                    least = await _gap(gap_seconds * drawn.uniform(1 - jitter, 1 + jitter), ready)
                announced = demand.now().starts_in_seconds is not None
                found = await _burst(pool, demand, ready, name=f"{pool_name} {burst}")
                line = {"pool": pool_name, "burst": burst, "announced": announced, "least_ready": least, **found}
                print(json.dumps(line), flush=True)


async def _served(ready: Ready) -> None:
    for _ in range(round(LOAD_SECONDS / LOOK_SECONDS)):
        if await ready():
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise TimeoutError(f"the pool does not serve within {LOAD_SECONDS:g} s of its job's first word")


async def _gap(seconds: float, ready: Ready) -> int:
    """Wait; returns the fewest replicas that served meanwhile."""
    ends, least = time.monotonic() + seconds, await ready()
    while (left := ends - time.monotonic()) > 0:
        await asyncio.sleep(min(LOOK_SECONDS, left))
        if left > LOOK_SECONDS:  # the last look is the burst's own
            least = min(least, await ready())
    return least


async def _burst(pool: Pool, demand: JobDemand, ready: Ready, *, name: str) -> dict[str, Any]:
    seconds: list[float] = []
    wrong: list[str] = []

    async def score(number: int) -> None:
        text = f"{name} " + "x" * number
        await asyncio.sleep(SPREAD_SECONDS * number / SAMPLES)
        began = time.monotonic()
        outcome = await pool.outcome(
            Sample(function=FunctionSample(data_source="", solution_str=text, ground_truth=""))
        )
        if number == 0:
            seconds.append(round(time.monotonic() - began, 3))
        if isinstance(outcome, Unscored):
            wrong.append(str(outcome.error))
        elif outcome.value != len(text):
            wrong.append(f"{outcome.value} instead of {len(text)}")

    demand.rollout()
    there, *_ = await asyncio.gather(ready(), *(score(number) for number in range(SAMPLES)))
    return {"ready": there, "first_seconds": seconds[0], "wrong": wrong}


async def run(pools: list[str], *, bursts: int, gap_seconds: float, jitter: float) -> None:
    """All jobs, each begun a part of a gap after the one before."""
    config.load_incluster_config()
    async with client.ApiClient() as api, asyncio.TaskGroup() as jobs:
        objects = client.CustomObjectsApi(api)
        for number, pool in enumerate(pools):
            namespace, _, name = pool.partition("/")

            async def ready(namespace: str = namespace, name: str = name) -> int:
                found = await objects.get_namespaced_custom_object(
                    names.GROUP, names.VERSION, namespace, names.PLURAL, name
                )
                return int(found.get("status", {}).get("readyReplicas", 0))

            after = gap_seconds * number / len(pools)
            jobs.create_task(
                train(pool, ready, bursts=bursts, gap_seconds=gap_seconds, jitter=jitter, after=after), name=pool
            )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m first_score.burst_job", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pools", nargs="+", help="namespace/name of each job's RewardPool")
    parser.add_argument("--bursts", type=int, required=True, help="of each job")
    parser.add_argument("--gap-seconds", type=float, required=True, help="between two bursts, in the middle")
    parser.add_argument("--jitter", type=float, required=True, help="most that a gap differs from that, as a share")
    given = parser.parse_args()
    asyncio.run(run(given.pools, bursts=given.bursts, gap_seconds=given.gap_seconds, jitter=given.jitter))


if __name__ == "__main__":
    main()
