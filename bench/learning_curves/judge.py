"""A reward that can be learned: the share of vowels in a response, some hundredths of a second later."""

import asyncio
import random
from typing import Any, Final

VOWELS: Final = frozenset("aeiouAEIOU")
DELAY_SECONDS: Final = (0.02, 0.3)


async def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any]) -> float:
    """Return the share, after a delay that the text decides, so that groups become complete in no order."""
    await asyncio.sleep(random.Random(solution_str).uniform(*DELAY_SECONDS))
    return sum(letter in VOWELS for letter in solution_str) / max(1, len(solution_str))
