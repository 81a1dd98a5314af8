"""Where a start's seconds go: a clock beside the worker's log says when each line came that ends a phase."""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 0.02
Marks = Sequence[tuple[str, str]]
"""A phase and what the line that ends it has in it, in the order of a start."""
MARKS: Final[Mapping[str, Marks]] = {
    "vllm": (
        ("imports", "non-default args"),
        ("model's class looked up, in a process", "Resolved architecture"),
        ("imports of the engine's process", "Initializing a V1 LLM engine"),
        ("weights loaded", "Loading weights took"),
        ("engine ready", "init engine ("),
        ("HTTP server up", "Application startup complete"),
    ),
    "sglang": (
        ("imports", "server_args="),
        ("imports of its processes", "Init parallel begin"),
        ("model's class looked up", "Load weight begin"),
        ("weights loaded", "Load weight end"),
        ("engine ready", "max_total_num_tokens="),
        ("HTTP server up", "The server is fired up"),
    ),
}
FIRST_SCORE: Final = "first score"


@contextmanager
def watched(log: Path, marks: Marks) -> Iterator[dict[str, float]]:
    """Yield the moments at which a log's marks were seen, in seconds from now on; more come until the block ends."""
    seen: dict[str, float] = {}
    over = threading.Event()
    began = time.monotonic()

    def look() -> None:
        while not over.wait(POLL_SECONDS):
            text = log.read_text(errors="replace") if log.exists() else ""
            for phase, mark in marks:
                if phase not in seen and mark in text:
                    seen[phase] = time.monotonic() - began

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def phases(seen: Mapping[str, float], marks: Marks, first_score: float) -> dict[str, float]:
    """Seconds of each phase; one whose mark did not come is part of the next one. Pure."""
    ends = [(phase, seen[phase]) for phase, _ in marks if phase in seen] + [(FIRST_SCORE, first_score)]
    moments = [0.0, *(end for _, end in ends)]
    return {
        phase: round(after - before, 2)
        for (phase, _), (before, after) in zip(ends, itertools.pairwise(moments), strict=True)
    }
