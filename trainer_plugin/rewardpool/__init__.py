"""What a trainer imports: find a reward pool by its name and stream samples to it. Imports no torch.

from rewardpool import Pool, RewardConfig, Sample

async with Pool(RewardConfig(reward_pool="rl/skywork")) as pool:
    async for index, outcome in pool.stream(samples):
        ...
"""

from rewardpool.client.blocking import BlockingPool
from rewardpool.client.pool import Pool
from rewardpool.client.report import DemandReport, Latency, Report
from rewardpool.config import Constant, RewardConfig
from rewardpool.demand.handle import JobDemand
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.discovery.find import discover
from rewardpool.sample import FunctionSample, Outcome, Sample, Scored, Unscored

__all__ = [
    "BlockingPool",
    "Constant",
    "DemandReport",
    "Endpoint",
    "FunctionSample",
    "JobDemand",
    "Latency",
    "Outcome",
    "Pool",
    "Report",
    "RewardConfig",
    "Sample",
    "Scored",
    "Unscored",
    "discover",
]
