"""From an episode to a rating, whatever rates it: a pool of any type, a Python function, or a mixture of them.

from rewardpool import Episode, open_reward

async with open_reward("rl/skywork") as reward:
    rating = await reward.rate(Episode(prompt="What is 2 + 2?", response="4"))
"""

from rewardpool._rewards.announced import JobFacts, open_announced
from rewardpool._rewards.blocking import BlockingReward
from rewardpool._rewards.episode import Episode, Message
from rewardpool._rewards.lazy import LazyReward
from rewardpool._rewards.open import open_reward
from rewardpool._rewards.opened import OpenReward
from rewardpool._rewards.rating import Rating
from rewardpool._rewards.running import RunningMoments

__all__ = [
    "BlockingReward",
    "Episode",
    "JobFacts",
    "LazyReward",
    "Message",
    "OpenReward",
    "Rating",
    "RunningMoments",
    "open_announced",
    "open_reward",
]
