"""`make bench`: what the client and the router cost, beside a bare HTTP session, in one run.

    direct     one pooled aiohttp session straight to the workers, in turn: the limit
    session    the same session through the router
    client     `rewardpool.Pool.stream` through the router: retries, deadlines, checks and reports included

The three take turns, so that a machine that changes its speed changes it for all of them; the medians of the rounds and
their ratios go to `.rewardpool/bench/client.json`. Only ratios of one run mean anything: workers, router and client
share the machine's cores.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rewardpool import Pool, RewardConfig, Sample, Scored
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.sample import FunctionSample
from rewardpool_api import load_manifest, names
from rewardpool_api.contract import SCORE_PATH, parse_answer

HERE = Path(__file__).parent
RESULT = HERE.parent / ".rewardpool" / "bench" / "client.json"
POOL = "default/bench"
START_SECONDS = 60.0

Run = Callable[[Sequence[str], int], Awaitable[None]]
"""Scores every text once with so many requests at a time; raises when a score is wrong."""


def command(*args: str) -> None:
    """Run the project's own command line, from this folder, where its reward function is."""
    program = Path(sys.executable).with_name("rewardpool")
    subprocess.run([program, *args], cwd=HERE, check=True, timeout=2 * START_SECONDS, stdin=subprocess.DEVNULL)


def worker_urls() -> list[str]:
    """The workers' own addresses, from the local pool's state."""
    state = Path(os.environ[names.ENV_STATE_DIR]) / POOL / names.STATE_FILE
    return [worker.url for worker in load_manifest(state).status.workers]


def as_input(text: str) -> str:
    """The sample as the contract's one JSON string."""
    return json.dumps({"data_source": "bench", "solution_str": text, "ground_truth": "", "extra_info": {}})


def bare(session: aiohttp.ClientSession, urls: Sequence[str], endpoint: Endpoint) -> Run:
    """The bare session: no retry, no deadline, no report."""

    async def run(texts: Sequence[str], concurrency: int) -> None:
        addresses = itertools.cycle(f"{url}{SCORE_PATH}" for url in urls)
        waiting = iter(texts)
        headers = {"Authorization": f"Bearer {endpoint.key}"}

        async def one_caller() -> None:
            for text in waiting:
                body = {"model": endpoint.served_name, "input": as_input(text)}
                async with session.post(next(addresses), json=body, headers=headers) as answer:
                    answer.raise_for_status()
                    check(text, parse_answer(await answer.read(), count=1))

        await asyncio.gather(*(one_caller() for _ in range(concurrency)))

    return run


def client(pool: Pool) -> Run:
    """The project's client; its concurrency is in its config."""

    async def run(texts: Sequence[str], concurrency: int) -> None:
        samples = [
            Sample(function=FunctionSample(data_source="bench", solution_str=text, ground_truth="", extra_info={}))
            for text in texts
        ]
        async for index, outcome in pool.stream(samples):
            check(texts[index], [outcome.value] if isinstance(outcome, Scored) else outcome)

    return run


def check(text: str, scores: object) -> None:
    """Raise where a score is not the text's own."""
    if scores != [float(len(text))]:
        raise RuntimeError(f"the score of a text of {len(text)} characters is {scores}")


async def measure(*, samples: int, rounds: int, concurrency: int) -> dict[str, list[float]]:
    """Samples per second of each way, a figure for each round."""
    texts = ["x" * (1_000 + number % 400) for number in range(samples)]
    config = RewardConfig(reward_pool=POOL, concurrency=concurrency)
    connector = aiohttp.TCPConnector(limit=0)
    async with Pool(config) as pool, aiohttp.ClientSession(connector=connector) as session:
        ways: dict[str, Run] = {
            "direct": bare(session, worker_urls(), pool.endpoint),
            "session": bare(session, [pool.endpoint.url], pool.endpoint),
            "client": client(pool),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task(f"{samples} samples, {concurrency} at a time", total=rounds * len(ways))
            for run in ways.values():
                await run(texts[: samples // 10], concurrency)  # connections and code are warm in every round
            for _ in range(rounds):
                for name, run in ways.items():
                    began = time.perf_counter()
                    await run(texts, concurrency)
                    rates[name].append(samples / (time.perf_counter() - began))
                    progress.advance(bar)
    return rates


def summary(rates: dict[str, list[float]], **setting: int) -> dict[str, object]:
    """Medians, spread, and the ratios round by round that the claims are about."""

    def ratio(one: str, other: str) -> float:
        return round(statistics.median(a / b for a, b in zip(rates[one], rates[other], strict=True)), 3)

    ways = {
        name: {"median": round(statistics.median(given)), "min": round(min(given)), "max": round(max(given))}
        for name, given in rates.items()
    }
    ratios = {"client_vs_session": ratio("client", "session"), "session_vs_direct": ratio("session", "direct")}
    return {**setting, "samples_per_second": ways, "ratios": ratios}


def show(result: dict[str, object], rates: dict[str, list[float]]) -> None:
    """Print the table."""
    table = Table("way", "samples/s, median", "min to max", title="The road to a worker that costs nothing")
    for name, given in rates.items():
        table.add_row(name, f"{statistics.median(given):,.0f}", f"{min(given):,.0f} to {max(given):,.0f}")
    Console().print(table, result["ratios"])


def main() -> int:
    """Entry point: a pool for this run alone, the measurement, the pool's end."""
    parser = argparse.ArgumentParser(description="What the client and the router cost.")
    parser.add_argument("--samples", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rewardpool-bench-") as folder:
        os.environ[names.ENV_STATE_DIR] = folder
        # A pool of that name in some cluster is not what this measures.
        os.environ["KUBECONFIG"] = f"{folder}/none"
        command("up", "-f", "pool.yaml", "--detach", "--wait-seconds", f"{START_SECONDS:.0f}")
        try:
            rates = asyncio.run(measure(**vars(given)))
        finally:
            command("down", "bench")
    result = summary(rates, **vars(given))
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    show(result, rates)
    return 0


if __name__ == "__main__":
    sys.exit(main())
