"""Whether an engine scores as transformers does: the samples, the ways they are sent, and what is compared."""

import json
import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.fleet import server_python
from support.replicas import RefusedError, Replicas, replicas, spec_of

CLASSES = ("Qwen2", "Qwen3", "Llama", "Mistral", "Gemma2")
"""transformers' names of the classes, each with a head of one label."""
ENGINES = ("vllm", "sglang")
TINY_MODELS = Path(__file__).parent / "tiny_models.py"
MAKE_SECONDS = 900

Sample = str | list[int]
WORDS = (
    "the",
    "answer",
    "is",
    "42",
    "Größe",
    "漢字",
    "😀",
    "\n",
    "\t",
    "<|user|>",
    "<|end|>",
    "<|endoftext|>",
    "\u0301",
    " ",
)
VOCABULARY = 256
"""Token ids below it are single bytes."""
LONGEST = 1024
"""Tokens."""


def samples(count: int, *, seed: int = 1) -> list[Sample]:
    """Random samples: texts of all kinds, one in twenty as long as the model takes, one in ten as token ids."""
    rng = random.Random(seed)

    def sample() -> Sample:
        length = LONGEST if rng.random() < 0.05 else rng.randint(1, 200)
        if rng.random() < 0.1:
            return [rng.randrange(VOCABULARY) for _ in range(length)]
        text = rng.choice("abcdefg")
        while len(text.encode()) < length - 32:
            text += " " + rng.choice(WORDS)
        return text

    return [sample() for _ in range(count)]


def run(*arguments: str) -> None:
    """Run tiny_models.py where transformers is."""
    done = subprocess.run(
        [server_python(), str(TINY_MODELS), *arguments], capture_output=True, text=True, timeout=MAKE_SECONDS
    )
    assert done.returncode == 0, done.stderr[-2000:]


def transformers_scores(model: Path, given: list[Sample], folder: Path) -> list[float]:
    """What transformers computes in fp32."""
    (folder / "samples.json").write_text(json.dumps(given))
    run("score", str(model), str(folder / "samples.json"), str(folder / "scores.json"))
    found: list[float] = json.loads((folder / "scores.json").read_text())
    return found


def by_kind(given: list[Sample], size: int, score: Callable[[list[Sample]], list[float]]) -> list[float]:
    """Score in lists of `size`, texts and token ids apart, as the contract has it; eight requests at a time."""
    found: dict[int, float] = {}
    with ThreadPoolExecutor(8) as pool:
        for kind in (str, list):
            places = [index for index, sample in enumerate(given) if isinstance(sample, kind)]
            lists = [places[start : start + size] for start in range(0, len(places), size)]
            for some, values in zip(lists, pool.map(lambda some: score([given[i] for i in some]), lists), strict=True):
                found.update(zip(some, values, strict=True))
    return [found[index] for index in range(len(given))]


def largest(one: list[float], other: list[float]) -> float:
    """The largest difference between two lists of scores."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def compare(pool: Replicas, given: list[Sample], expected: list[float]) -> dict[str, Any]:
    """Send the samples single, in lists of 8 and of 64 by the router, and every fifth to each replica."""
    single = by_kind(given, 1, lambda some: pool.scores(some[0]))
    eight = by_kind(given, 8, pool.scores)
    many = by_kind(given, 64, pool.scores)
    # One after the other, so that both replicas compute the same batches.
    first, second = ([pool.scores(sample, url=url)[0] for sample in given[::5]] for url in pool.urls)
    return {
        "texts": len(given),
        "max_abs_diff": max(largest(scores, expected) for scores in (single, eight, many)),
        "replica_diff": largest(first, second),
    }


def measure(engine: str, kind: str, folder: Path, *, count: int) -> dict[str, Any]:
    """Make a model, serve it by two replicas, and compare; or the words by which the engine refuses it."""
    model = folder / "model"
    run("make", kind, str(model))
    given = samples(count)
    expected = transformers_scores(model, given, folder)
    assert max(expected) - min(expected) > 0.1
    try:
        with replicas(spec_of(engine, model), folder) as pool:
            return compare(pool, given, expected)
    except RefusedError as refused:
        return {"refused": str(refused)}
