"""Measures a reward with and without a ledger over a worker whose scores cost nothing, and writes the figures.

python -m ledger_cost --rounds 5 --samples 1000
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from client_cost.tables import aims_table
from rich.console import Console
from rich.progress import track
from rich.table import Table
from support.fleet import Program, server_python
from support.local_pool import POOL, write_local_pool

from ledger_cost.aims import Turn, aims, figures
from rewardpool import Episode
from rewardpool._rewards.open import open_reward
from rewardpool._rewards.opened import OpenReward
from rewardpool_api import names

RESULT: Final = Path(__file__).parents[2] / ".rewardpool" / "bench" / "ledger.json"
STAND_IN: Final = Path(__file__).parents[1] / "client_cost" / "stand_in_worker.py"
WITHOUT: Final = "no ledger"
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    WITHOUT: {},
    "JSON lines": {"text": False},
    "JSON lines with texts": {"text": True},
    **({"Parquet with texts": {"text": True, "format": "parquet", "file_mib": 1}} if find_spec("pyarrow") else {}),
}
CONCURRENCY: Final = 256
GROUP: Final = 8
WORDS: Final = "A step of a solution, in words that nothing depends on. "


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="ledger_cost", description="What a ledger costs a reward.")
    parser.add_argument("--rounds", type=int, default=21, help="in which every way has its turn (default 21)")
    parser.add_argument("--samples", type=int, default=4000, help="of a turn (default 4000)")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    turns = asyncio.run(measured(rounds=given.rounds, samples=given.samples))
    ways = figures(turns, without=WITHOUT)
    result = {"cores": os.cpu_count(), "rounds": given.rounds, "samples": given.samples, "ways": ways}
    result["aims"] = aims(ways, without=WITHOUT)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


async def measured(*, rounds: int, samples: int) -> dict[str, list[Turn]]:
    """Return the turns of every round, by the way; another way is the first one each time."""
    turns: dict[str, list[Turn]] = {way: [] for way in WAYS}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ |= {names.ENV_STATE_DIR: str(folder / "state"), "KUBECONFIG": str(folder / "none")}
        worker = Program(
            lambda port: [server_python(), str(STAND_IN), "--port", str(port)], env={}, log=folder / "worker.log"
        )
        stack.callback(worker.kill)
        await worker.start()
        write_local_pool(folder / "state", url=worker.url, model_type="Function")
        rewards = {way: await stack.enter_async_context(open_reward(_spec(way, folder))) for way in WAYS}
        for reward in rewards.values():
            await _rate(reward, _episodes(samples, turn="warm"))
        for number in track(range(rounds), description="rounds"):
            order = list(WAYS)[number % len(WAYS) :] + list(WAYS)[: number % len(WAYS)]
            for way in order:
                turns[way].append(await _rate(rewards[way], _episodes(samples, turn=str(number))))
    return turns


def _spec(way: str, folder: Path) -> dict[str, Any]:
    ledger = {} if way == WITHOUT else {"ledger": {"folder": folder / way, **WAYS[way]}}
    return {"pool": POOL, "concurrency": CONCURRENCY, "announce": False, **ledger}


def _episodes(samples: int, *, turn: str) -> list[Episode]:
    return [
        Episode(
            prompt=f"{turn} {number // GROUP} {WORDS * 5}",
            response=f"{number} {WORDS * 20}",
            group=number // GROUP,
            id=str(number),
        )
        for number in range(samples)
    ]


async def _rate(reward: OpenReward, episodes: list[Episode]) -> Turn:
    """Rate them, until all records are in the ledger's file."""
    began, cpu = time.perf_counter(), time.process_time()
    ratings = await asyncio.gather(*map(reward.rate, episodes))
    reward.flush_ledger()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if any(rating.total is None for rating in ratings) or (reward.ledger and reward.ledger.left_out):
        raise RuntimeError("a sample has no score, or a score no record")
    return Turn(len(episodes) / seconds, cpu / len(episodes) * 1e6)


def show(result: dict[str, Any]) -> None:
    """Print the figures."""
    console = Console(width=120)
    table = Table("way", "samples/s", "over none", "quartiles", "CPU µs", "none over it", "quartiles")
    for way, one in result["ways"].items():
        cells = []
        for figure, ratio in (("samples_per_second", "ratio"), ("cpu_us", "cpu_ratio")):
            spread = one[ratio]
            cells += [f"{one[figure]['median']:,.0f}", f"{spread['median']:.3f}"]
            cells += [f"{spread['q25']:.3f} to {spread['q75']:.3f}"]
        table.add_row(way, *cells)
    console.print(table)
    console.print(aims_table(result))


if __name__ == "__main__":
    main()
