"""The examples of docs/rewards.md and docs/judges.md are read and run."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_worker import FakeWorker

from rewardpool._rewards import Rating
from rewardpool._rewards.config import parse_reward

DOCS = Path(__file__).parents[3] / "docs"
PAGE = "".join((DOCS / name).read_text() for name in ("rewards.md", "judges.md"))
CONFIGS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def example(function: str) -> Any:
    """The function of that name in the page."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/rewards.md", "exec"), names)
    return names[function]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_config_of_the_page_is_one(config: str) -> None:
    parse_reward(yaml.safe_load(config)["reward"])


async def test_the_documented_call_rates() -> None:
    async with FakeWorker() as worker:
        reward = {"url": worker.url, "type": "Function", "name": "length"}
        total, components = await example("rate")({"reward": reward}, "?", "4")
    assert components == {"length": total}


def test_the_documented_hook_makes_totals() -> None:
    ratings = [Rating(total=total, components={}) for total in (1.0, 3.0, None)]
    assert example("best_takes_all")(ratings) == [0.0, 1.0, None]
    assert example("best_takes_all")(ratings[2:]) == [None]
