"""A real vLLM teacher's `/health` while it answers long sequences: routers take out a worker that is late."""

import asyncio
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
from support.parity import run
from support.replicas import ON_CPU, SERVED_NAME, Replicas, replicas

from rewardpool import Pool, RewardConfig
from rewardpool_api import RewardPoolSpec
from rewardpool_api.teacher_wire import question

EVERY_SECONDS: Final = 0.02
"""Between two requests for `/health`."""
AT_ONCE: Final = 4
BYTES: Final = 256
"""Token ids below it are single bytes of the tiny model's."""


def measure(folder: Path, *, positions: int, top_k: int, requests: int) -> dict[str, Any]:
    """Return the seconds of `/health`, and those of the answers meanwhile, through the router.

    Args:
        folder: For the model, the key and logs; it is there.
        positions: Rows of an answer.
        top_k: Most likely tokens of each row.
        requests: Sequences, `AT_ONCE` at a time.
    """
    model = folder / "model"
    run("make", "generative", str(model))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": positions + 2}))
    source = {"source": f"file://{model}", "type": "Teacher", "topK": top_k}
    engine = {"name": "vllm", "dtype": "float32", "maxModelLen": positions + 2, **ON_CPU["vllm"]}
    spec = RewardPoolSpec.model_validate({"model": source, "engine": engine})
    with replicas(spec, folder / "replicas", count=1) as started:
        found = asyncio.run(_asked(started, folder / "replicas" / "key", positions, top_k, requests))
    return {"positions": positions, "top_k": top_k, "requests": requests, "at_once": AT_ONCE, **found}


async def _asked(started: Replicas, key: Path, positions: int, top_k: int, requests: int) -> dict[str, Any]:
    chance = random.Random(7)
    settings = RewardConfig(
        url=started.router, key_file=key, served_name=SERVED_NAME, concurrency=AT_ONCE, timeout=600, announce=False
    )
    answers: list[float] = []
    async with Pool(settings) as pool, aiohttp.ClientSession() as session:

        async def ask(name: int) -> None:
            asked = question([chance.randrange(BYTES) for _ in range(positions + 1)], top_k=top_k)
            began = time.perf_counter()
            await pool.logprobs_of(asked, label=str(name))
            answers.append(time.perf_counter() - began)

        watch = asyncio.create_task(_health(session, started.urls[0]))
        for first in range(0, requests, AT_ONCE):
            await asyncio.gather(*map(ask, range(first, min(first + AT_ONCE, requests))))
        watch.cancel()
        health = await watch
    return {
        "health_seconds": {"median": statistics.median(health), "slowest": max(health), "requests": len(health)},
        "answer_seconds": {"median": statistics.median(answers), "slowest": max(answers)},
    }


async def _health(session: aiohttp.ClientSession, url: str) -> list[float]:
    """Ask for `/health` until this is cancelled, and return the seconds of each answer."""
    seconds = []
    try:
        while True:
            began = time.perf_counter()
            async with session.get(f"{url}/health") as answer:
                answer.raise_for_status()
            seconds.append(time.perf_counter() - began)
            await asyncio.sleep(EVERY_SECONDS)
    except asyncio.CancelledError:
        return seconds
