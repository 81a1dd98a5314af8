"""Real vLLM and SGLang on this machine's CPU, behind a real sglang-router: one replica, then two.

direct   one pooled aiohttp session straight to the engines' ports, in turn: the limit
session  the same session through the router
client   `rewardpool.Pool.stream` through the router
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
from client_cost.figures import Ratios
from rich.progress import Progress
from support import parity
from support.launch_target import KEY
from support.replicas import SERVED_NAME, Replicas, replicas, spec_of
from support.tiny_models import CLASSES, STEP
from ways import bare_call, callers, streamed

from engine.starts import MARKS, phases, watched
from engine.turns import Scores, take_turns
from rewardpool import Pool, RewardConfig
from rewardpool_api import RewardPoolSpec

ONE_LABEL: Final = "one label"
TOKEN_LEVEL: Final = "token level"
MODELS: Final[Mapping[str, tuple[str, ...]]] = {"vllm": (ONE_LABEL, TOKEN_LEVEL), "sglang": (ONE_LABEL,)}
"""By engine; SGLang has no scores of steps."""
REPLICAS: Final = (1, 2)
CONCURRENCY: Final = 32
TEXT_CHARACTERS: Final = (100, 300)
"""Least and most; a character is a token of the tiny models."""
NO_PREFIX_CACHE: Final = {"vllm": "--no-enable-prefix-caching", "sglang": "--disable-radix-cache"}
"""Else only the first way to send a text would have it computed."""
WAYS: Final = ("direct", "session", "client")
RATIOS: Final[Ratios] = {
    "client/direct": ("client", "direct"),
    "session/direct": ("session", "direct"),
    "client/session": ("client", "session"),
}


def texts(count: int, *, steps: bool) -> list[str]:
    """So many random texts, each with its own number, and with steps where they are asked for."""
    rng = random.Random(1)

    def text(number: int) -> str:
        words, length = f"{number}:", rng.randint(*TEXT_CHARACTERS)
        while len(words) < length:
            words += f" {rng.randrange(10**6)}" + (STEP if steps and rng.random() < 0.1 else "")
        return words + (STEP if steps else "")

    return [text(number) for number in range(count)]


def pool_spec(engine: str, model: str, folder: Path) -> RewardPoolSpec:
    """Make the tiny model of that kind; returns the spec of a pool that serves it."""
    name = "Qwen3" if model == ONE_LABEL else "process-reward"
    parity.run("make", name, str(folder / name))
    given = spec_of(engine, folder / name, CLASSES[name].head).model_dump(by_alias=True, exclude_none=True)
    given["engine"]["args"] += [NO_PREFIX_CACHE[engine]]
    return RewardPoolSpec.model_validate(given)


def measure(engine: str, folder: Path, *, samples: int, rounds: int, progress: Progress) -> Iterator[dict[str, Any]]:
    """Each model with each number of replicas: its start, then the rounds.

    Args:
        engine: Its name in a manifest.
        folder: For models, keys and logs; it is made.
        samples: Of each way in a round.
        rounds: Those that count.
        progress: Gets a bar for each of them.
    """
    for number, model in enumerate(MODELS[engine]):
        place = folder / f"model-{number}"
        place.mkdir(parents=True)
        spec = pool_spec(engine, model, place)
        given = texts(samples, steps=model == TOKEN_LEVEL)
        for count in REPLICAS:
            what = f"{engine}, {model}, {count} replica{'s' * (count > 1)}"
            bar = progress.add_task(f"{what}: start", total=None)
            at = place / f"replicas-{count}"
            with (
                watched(at / "worker-0" / "engine.log", MARKS[engine]) as seen,
                replicas(spec, at, count=count) as pool,
            ):
                start = phases(seen, MARKS[engine], pool.start_seconds)
                progress.update(bar, description=what, total=rounds * len(WAYS))
                found = asyncio.run(_rounds(pool, at / "key", given, rounds, lambda: progress.advance(bar)))  # noqa: B023
            yield {"model": model, "replicas": count, "start": start, **found}


async def _rounds(
    pool: Replicas, key_file: Path, given: list[str], rounds: int, done: Callable[[], None]
) -> dict[str, Any]:
    scores = Scores()
    settings = RewardConfig(
        url=pool.router, key_file=key_file, served_name=SERVED_NAME, concurrency=CONCURRENCY, announce=False
    )
    headers = {"Authorization": f"Bearer {KEY}"}
    # Every way is idle while the others have their turn, engines close what was idle for 5 s, and a bare session sends
    # nothing anew.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    async with aiohttp.ClientSession(connector=connector) as session, Pool(settings) as client:
        direct = bare_call(session, pool.urls, headers, model=SERVED_NAME)
        routed = bare_call(session, [pool.router], headers, model=SERVED_NAME)
        ways = (
            callers(direct, CONCURRENCY, scores.check),
            callers(routed, CONCURRENCY, scores.check),
            streamed(client, scores.check),
        )
        named = dict(zip(WAYS, ways, strict=True))
        found = await take_turns(named, given, rounds=rounds, ratios=RATIOS, scores=scores, done=done)
        report = client.report()
        return {**found, "hedges": report.hedges, "retried": report.retried, "attempts": report.attempts}
