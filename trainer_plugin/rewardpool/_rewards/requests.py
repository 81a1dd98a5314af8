"""Number of requests for the responses to one prompt, so that a job announces what its pools will receive. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from rewardpool._rewards.judges.listwise import tables_of
from rewardpool._rewards.judges.pairwise import pairs_of
from rewardpool._rewards.part_config import JudgeConfig

# A pair is shown in both orders.
ORDERS = 2


@dataclass(frozen=True)
class Asked:
    """A pool that a part asks, and how; a judge's meta reward model is asked once for each of its answers."""

    pool: str
    # For a pool without a judge the default, which is one request for each response.
    judge: JudgeConfig


def requests_of(judge: JudgeConfig, members: int) -> int:
    """Return the requests for so many responses to one prompt; answers that cannot be read cost further ones."""
    if judge.mode == "pointwise":
        questions = members
    elif judge.mode == "listwise":
        questions = len(tables_of(members, judge.together))
    elif judge.against == "reference":
        questions = members * ORDERS
    else:
        questions = len(pairs_of(members, judge.opponents)) * ORDERS
    return questions * judge.votes


def requests_by_pool(asked: Iterable[Asked], members: int) -> dict[str, int]:
    """Return the requests for so many responses to one prompt, by pool; all gates are taken to open."""
    found: dict[str, int] = {}
    for one in asked:
        found[one.pool] = found.get(one.pool, 0) + requests_of(one.judge, members)
    return found
