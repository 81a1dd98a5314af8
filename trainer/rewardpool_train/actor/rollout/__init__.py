"""Rollouts: what the policy answers, each answer handed over the moment it ends.

engine               what both engines can do
from_config          `open_engine`, which makes the one that the config asks for
transformers_engine  `generate` on an unsharded copy of the policy, batch by batch
staged               that engine, where it samples while another thread trains
vllm_engine          any number of responses at a time from a vLLM server, kept while its weights change
vllm_client          what is said to such a server: token ids in, token ids, probabilities and versions out
vllm_server          the server as a child of the job
"""

from rewardpool_train.actor.rollout.engine import RolloutEngine, WeightSource
from rewardpool_train.actor.rollout.from_config import open_engine
from rewardpool_train.actor.rollout.transformers_engine import TransformersEngine
from rewardpool_train.actor.rollout.vllm_engine import VllmEngine

__all__ = ["RolloutEngine", "TransformersEngine", "VllmEngine", "WeightSource", "open_engine"]
