"""The trainer's side: find a reward pool by its name and stream samples to it. Imports no torch.

import rewardpool

reward = rewardpool.Reward("rl/skywork", timeout=60)
scores = reward(prompts, responses)

`Pool` is the floor below: it takes samples that are made already, and no prompts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewardpool._client.answer import Judgement as Judgement
    from rewardpool._client.blocking import BlockingPool as BlockingPool
    from rewardpool._client.metrics import ReportCollector as ReportCollector
    from rewardpool._client.metrics import ScoreWaitCollector as ScoreWaitCollector
    from rewardpool._client.pool import Pool as Pool
    from rewardpool._client.report import Latency as Latency
    from rewardpool._client.report import Report as Report
    from rewardpool._config import FaultPolicies as FaultPolicies
    from rewardpool._config import Penalty as Penalty
    from rewardpool._config import RewardConfig as RewardConfig
    from rewardpool._demand.handle import JobDemand as JobDemand
    from rewardpool._demand.report import DemandReport as DemandReport
    from rewardpool._discovery.endpoint import Endpoint as Endpoint
    from rewardpool._discovery.find import discover as discover
    from rewardpool._files.score import FileReport as FileReport
    from rewardpool._logprobs import Logprobs as Logprobs
    from rewardpool._policy.text import PolicyText as PolicyText
    from rewardpool._reward import Reward as Reward
    from rewardpool._rewards.episode import Episode as Episode
    from rewardpool._rewards.lazy import LazyReward as LazyReward
    from rewardpool._rewards.ledger.writer import LedgerReport as LedgerReport
    from rewardpool._rewards.open import open_reward as open_reward
    from rewardpool._rewards.opened import OpenReward as OpenReward
    from rewardpool._rewards.rating import Rating as Rating
    from rewardpool._rewards.rating import StepReward as StepReward
    from rewardpool._sample import FunctionSample as FunctionSample
    from rewardpool._sample import Outcome as Outcome
    from rewardpool._sample import Sample as Sample
    from rewardpool._sample import Scored as Scored
    from rewardpool._sample import Unscored as Unscored
    from rewardpool._score_waits import ScoreWaits as ScoreWaits
    from rewardpool._teacher import Teacher as Teacher
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
    from rewardpool_api.teacher_wire import vocabulary_digest as vocabulary_digest

# Imported when first used: `import rewardpool` takes hundredths of a second, and a name no more than what it needs.
_NAMES = {
    "rewardpool._client.answer": "Judgement",
    "rewardpool._client.blocking": "BlockingPool",
    "rewardpool._client.metrics": "ReportCollector ScoreWaitCollector",
    "rewardpool._client.pool": "Pool",
    "rewardpool._client.report": "Latency Report",
    "rewardpool._config": "FaultPolicies Penalty RewardConfig",
    "rewardpool._demand.handle": "JobDemand",
    "rewardpool._demand.report": "DemandReport",
    "rewardpool._discovery.endpoint": "Endpoint",
    "rewardpool._discovery.find": "discover",
    "rewardpool._files.score": "FileReport",
    "rewardpool._logprobs": "Logprobs",
    "rewardpool._policy.text": "PolicyText",
    "rewardpool._reward": "Reward",
    "rewardpool._rewards.episode": "Episode",
    "rewardpool._rewards.lazy": "LazyReward",
    "rewardpool._rewards.ledger.writer": "LedgerReport",
    "rewardpool._rewards.open": "open_reward",
    "rewardpool._rewards.opened": "OpenReward",
    "rewardpool._rewards.rating": "Rating StepReward",
    "rewardpool._sample": "FunctionSample Outcome Sample Scored Unscored",
    "rewardpool._score_waits": "ScoreWaits",
    "rewardpool._teacher": "Teacher",
    "rewardpool_api.teacher_wire": "vocabulary_digest",
    "rewardpool.errors": (
        "BrokenPoolError ConfigError DeadlineError FunctionFailedError GroupAbortedError InvalidSampleError"
        " LogprobsMissingError ModelChangedError OtherRankError PoolAccessError PoolError PoolNotFoundError"
        " PoolNotReadyError PoolNotYetReadyError RevisionGoneError RewardPoolError RolloutError SampleError"
        " SampleTooLongError SandboxError SandboxUnavailableError ScoreError TrainingError UnscoredError"
        " WrongModelError WrongTokenizerError"
    ),
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
