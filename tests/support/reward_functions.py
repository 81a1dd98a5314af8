"""Reward functions that the real function server serves in tests."""

import asyncio
import hashlib
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ENV_RECORD = "TEST_RECORD"
"""Names the file in which `compute_recorded_score` leaves a line for each score."""


def expected_score(solution_str: str) -> float:
    """A number between -1 and 1 that stands for the text, the same in every process."""
    digest = hashlib.sha256(solution_str.encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**47 - 1.0


async def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]) -> float:
    """The text's number, after as many seconds as the sample asks for; raises for an empty text."""
    await asyncio.sleep(extra_info.get("seconds", 0.0))
    if not solution_str:
        raise ValueError("there is no solution to score")
    return expected_score(solution_str)


async def compute_other_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]
) -> float:
    """Another judge: half a point more for every text."""
    return await compute_score(data_source, solution_str, ground_truth, extra_info) + 0.5


async def compute_recorded_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]
) -> float:
    """The text's number, after a line with the text was added to the record that all workers share."""
    score = await compute_score(data_source, solution_str, ground_truth, extra_info)
    _note(solution_str)
    return score


def _note(text: str) -> None:
    # Short enough for one write, which the kernel appends as a whole.
    with Path(os.environ[ENV_RECORD]).open("a") as record:
        record.write(f"{text}\n")


_calls = itertools.count(1)


def fails_every_fourth_time(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    """Return another number each time, and raise in every fourth call of a process."""
    call = next(_calls)
    if call % 4 == 0:
        raise ConnectionError("no answer")
    return float(call)


def fails_on_odd_digits(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    if int(solution_str) % 2:
        raise ValueError("odd")
    return float(solution_str)
