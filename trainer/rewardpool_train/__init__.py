"""The training job: GRPO on FSDP2 with any reward of `rewardpool`, and rollout, reward and update overlapped.

job, config, update_config  `python -m rewardpool_train CONFIG.yaml`, and all fields of its file
pipeline/    which of rollout, reward and training comes next; for your own loop as well; imports no torch
actor/       the policy: losses, packing, checkpoints, rollouts by transformers or vLLM
colocated/   a reward model that sleeps on the trainer's own GPUs
"""

from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling
from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, MiniBatch, RatedGroup, RolledGroup, SettledScore
from rewardpool_train.pipeline.schedule import Plan

__all__ = [
    "DynamicSampling",
    "GroupScore",
    "GroupTask",
    "MiniBatch",
    "Overlap",
    "Pipeline",
    "Plan",
    "RatedGroup",
    "RolledGroup",
    "SettledScore",
]
