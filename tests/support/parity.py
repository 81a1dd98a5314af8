"""Whether an engine scores as transformers does: the samples, the ways they are sent, and what is compared."""

import json
import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.fleet import server_python
from support.replicas import RefusedError, Replicas, numbers, replicas, spec_of
from support.tiny_models import CLASSES, MAX_POSITIONS, STEP

ENGINES = ("vllm", "sglang", "transformers")
JUDGES = ("vllm", "sglang")
"""Those that write."""
TINY_MODELS = Path(__file__).parent / "tiny_models.py"
MAKE_SECONDS = 900

Sample = str | list[int]
Numbers = list[float]
"""What is said of a sample: its score, and the values of its steps where it has steps."""
PAD = "<|endoftext|>"
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
    PAD,
    "yes",
    "no",
    "\u0301",
    " ",
    STEP,
)
SMALLEST_VOCABULARY = 256
"""Token ids below it are single bytes."""
STEP_ID = 262


def samples(count: int, *, seed: int = 1) -> list[Sample]:
    """Random samples, each with a step: texts of all kinds and, one in ten, token ids; one in twenty is very long."""
    rng = random.Random(seed)

    def sample() -> Sample:
        length = MAX_POSITIONS if rng.random() < 0.05 else rng.randint(1, 200)
        if rng.random() < 0.1:
            ids = [rng.randrange(SMALLEST_VOCABULARY) for _ in range(length)]
            ids[rng.randrange(length)] = STEP_ID
            return ids
        text = rng.choice("abcdefg")
        while len(text.encode()) < length - 32:
            text += " " + rng.choice(WORDS)
        return text if STEP in text else text + rng.choice((STEP, f"{STEP}."))

    return [sample() for _ in range(count)]


def run(*arguments: str) -> None:
    """Run tiny_models.py where transformers is."""
    done = subprocess.run(
        [server_python(), str(TINY_MODELS), *arguments], capture_output=True, text=True, timeout=MAKE_SECONDS
    )
    assert done.returncode == 0, done.stderr[-2000:]


def transformers_scores(name: str, model: Path, given: list[Sample], folder: Path) -> list[Numbers]:
    """What transformers computes in fp32 with a model of a class."""
    (folder / "samples.json").write_text(json.dumps(given))
    run("score", name, str(model), str(folder / "samples.json"), str(folder / "scores.json"))
    return [numbers(item) for item in json.loads((folder / "scores.json").read_text())]


def by_kind(given: list[Sample], size: int, score: Callable[[list[Sample]], list[Numbers]]) -> list[Numbers]:
    """Score in lists of `size`, texts and token ids apart, as the contract has it; eight requests at a time."""
    found: dict[int, Numbers] = {}
    with ThreadPoolExecutor(8) as pool:
        for kind in (str, list):
            places = [index for index, sample in enumerate(given) if isinstance(sample, kind)]
            lists = [places[start : start + size] for start in range(0, len(places), size)]
            for some, values in zip(lists, pool.map(lambda some: score([given[i] for i in some]), lists), strict=True):
                found.update(zip(some, values, strict=True))
    return [found[index] for index in range(len(given))]


def largest(one: list[Numbers], other: list[Numbers]) -> float:
    """The largest difference between what two say of the same samples."""
    return max(abs(x - y) for a, b in zip(one, other, strict=True) for x, y in zip(a, b, strict=True))


def compare(pool: Replicas, given: list[Sample], expected: list[Numbers]) -> dict[str, Any]:
    """Send the samples single, in lists of 8 and of 64 by the router, and every fifth to each of up to two replicas."""
    single = by_kind(given, 1, lambda some: pool.scores(some[0]))
    eight = by_kind(given, 8, pool.scores)
    many = by_kind(given, 64, pool.scores)
    # One after the other, so that both replicas compute the same batches.
    first, *others = ([pool.scores(sample, url=url)[0] for sample in given[::5]] for url in pool.urls)
    return {
        "texts": len(given),
        "max_abs_diff": max(largest(scores, expected) for scores in (single, eight, many)),
        "replica_diff": max((largest(first, other) for other in others), default=0.0),
    }


@dataclass(frozen=True)
class Known:
    """A tiny model of a class, with what transformers computes with it."""

    name: str
    model: Path
    samples: list[Sample]
    expected: list[Numbers]


def known(name: str, folder: Path, *, count: int) -> Known:
    """Make a model of a class, and score as many samples with it."""
    model, given = folder / "model", samples(count)
    run("make", name, str(model))
    expected = transformers_scores(name, model, given, folder)
    assert max(expected)[0] - min(expected)[0] > 0.1
    return Known(name, model, given, expected)


def measure(engine: str, known: Known, folder: Path) -> dict[str, Any]:
    """Serve a model by two replicas, and compare; or the words by which the engine refuses it."""
    pairs = list(zip(known.samples, known.expected, strict=True))
    if engine == "transformers":
        # Its classes score a text that ends in the pad token at an earlier one.
        pairs = [(sample, scores) for sample, scores in pairs if isinstance(sample, list) or not sample.endswith(PAD)]
    given, expected = ([*column] for column in zip(*pairs, strict=True))
    try:
        with replicas(spec_of(engine, known.model, CLASSES[known.name].head), folder) as pool:
            return compare(pool, given, expected)
    except RefusedError as refused:
        return {"refused": str(refused)}
