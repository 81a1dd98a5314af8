"""A reward function that most groups of random digits agree on, and that notes what it was asked."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

ENV_NOTES = "RARE_REWARD_NOTES"
"""Folder in which every process notes the prompts it was asked about, a number a line."""


def has_a_pair_of_sevens(data_source: Any, solution_str: str, ground_truth: Any, extra_info: dict[str, Any]) -> float:
    """Return 1.0 for a response with two sevens in a row, else 0.0."""
    with (Path(os.environ[ENV_NOTES]) / str(os.getpid())).open("a") as notes:
        notes.write(f"{extra_info['number']}\n")
    return float("77" in solution_str)


def asked(folder: Path) -> Counter[int]:
    """How many responses to each prompt were rated, by all processes."""
    return Counter(int(line) for notes in folder.iterdir() for line in notes.read_text().splitlines())
