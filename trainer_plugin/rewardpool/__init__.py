"""The trainer's side: find a reward pool by its name and stream samples to it. Imports no torch.

import rewardpool

reward = rewardpool.Reward("rl/skywork", timeout=60)
scores = reward(prompts, responses)

`Pool` is the floor below: it takes samples that are made already, and no prompts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewardpool.client.answer import Judgement as Judgement
    from rewardpool.client.blocking import BlockingPool as BlockingPool
    from rewardpool.client.pool import Pool as Pool
    from rewardpool.client.report import Latency as Latency
    from rewardpool.client.report import Report as Report
    from rewardpool.config import FaultPolicies as FaultPolicies
    from rewardpool.config import Penalty as Penalty
    from rewardpool.config import RewardConfig as RewardConfig
    from rewardpool.demand.handle import JobDemand as JobDemand
    from rewardpool.demand.report import DemandReport as DemandReport
    from rewardpool.discovery.endpoint import Endpoint as Endpoint
    from rewardpool.discovery.find import discover as discover
    from rewardpool.errors import BrokenPoolError as BrokenPoolError
    from rewardpool.errors import ConfigError as ConfigError
    from rewardpool.errors import DeadlineError as DeadlineError
    from rewardpool.errors import FunctionFailedError as FunctionFailedError
    from rewardpool.errors import GroupAbortedError as GroupAbortedError
    from rewardpool.errors import InvalidSampleError as InvalidSampleError
    from rewardpool.errors import LogprobsMissingError as LogprobsMissingError
    from rewardpool.errors import ModelChangedError as ModelChangedError
    from rewardpool.errors import OtherRankError as OtherRankError
    from rewardpool.errors import PoolAccessError as PoolAccessError
    from rewardpool.errors import PoolError as PoolError
    from rewardpool.errors import PoolNotFoundError as PoolNotFoundError
    from rewardpool.errors import PoolNotReadyError as PoolNotReadyError
    from rewardpool.errors import PoolNotYetReadyError as PoolNotYetReadyError
    from rewardpool.errors import RevisionGoneError as RevisionGoneError
    from rewardpool.errors import RewardPoolError as RewardPoolError
    from rewardpool.errors import RolloutError as RolloutError
    from rewardpool.errors import SampleError as SampleError
    from rewardpool.errors import SampleTooLongError as SampleTooLongError
    from rewardpool.errors import SandboxError as SandboxError
    from rewardpool.errors import SandboxUnavailableError as SandboxUnavailableError
    from rewardpool.errors import ScoreError as ScoreError
    from rewardpool.errors import TrainingError as TrainingError
    from rewardpool.errors import UnscoredError as UnscoredError
    from rewardpool.errors import WrongModelError as WrongModelError
    from rewardpool.errors import WrongTokenizerError as WrongTokenizerError
    from rewardpool.files.score import FileReport as FileReport
    from rewardpool.logprobs import Logprobs as Logprobs
    from rewardpool.reward import Reward as Reward
    from rewardpool.rewards.episode import Episode as Episode
    from rewardpool.rewards.ledger.writer import LedgerReport as LedgerReport
    from rewardpool.rewards.rating import Rating as Rating
    from rewardpool.rewards.rating import StepReward as StepReward
    from rewardpool.sample import FunctionSample as FunctionSample
    from rewardpool.sample import Outcome as Outcome
    from rewardpool.sample import Sample as Sample
    from rewardpool.sample import Scored as Scored
    from rewardpool.sample import Unscored as Unscored
    from rewardpool.teacher import Teacher as Teacher

# Imported when first used: `import rewardpool` takes hundredths of a second, and a name no more than what it needs.
_NAMES = {
    "rewardpool.client.answer": "Judgement",
    "rewardpool.client.blocking": "BlockingPool",
    "rewardpool.client.pool": "Pool",
    "rewardpool.client.report": "Latency Report",
    "rewardpool.config": "FaultPolicies Penalty RewardConfig",
    "rewardpool.demand.handle": "JobDemand",
    "rewardpool.demand.report": "DemandReport",
    "rewardpool.discovery.endpoint": "Endpoint",
    "rewardpool.discovery.find": "discover",
    "rewardpool.errors": (
        "BrokenPoolError ConfigError DeadlineError FunctionFailedError GroupAbortedError InvalidSampleError"
        " LogprobsMissingError ModelChangedError OtherRankError PoolAccessError PoolError PoolNotFoundError"
        " PoolNotReadyError PoolNotYetReadyError RevisionGoneError RewardPoolError RolloutError SampleError"
        " SampleTooLongError SandboxError SandboxUnavailableError ScoreError TrainingError UnscoredError"
        " WrongModelError WrongTokenizerError"
    ),
    "rewardpool.files.score": "FileReport",
    "rewardpool.logprobs": "Logprobs",
    "rewardpool.reward": "Reward",
    "rewardpool.rewards.episode": "Episode",
    "rewardpool.rewards.ledger.writer": "LedgerReport",
    "rewardpool.rewards.rating": "Rating StepReward",
    "rewardpool.sample": "FunctionSample Outcome Sample Scored Unscored",
    "rewardpool.teacher": "Teacher",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("rewardpool")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
