"""Rollouts: responses of the policy, each returned as soon as it ends.

engine               protocol of both engines
from_config          `open_engine`, which opens the engine that the config names
transformers_engine  `generate` on an unsharded copy of the policy, batch by batch
staged               that engine, if it samples while another thread trains
vllm_engine          any number of responses at a time from a vLLM server, kept while its weights change
vllm_client          requests to that server: token ids in; token ids, probabilities and versions out
vllm_server          the server as a child process of the job
"""

from rewardpool_train.actor.rollout.engine import RolloutEngine, WeightSource
from rewardpool_train.actor.rollout.from_config import open_engine
from rewardpool_train.actor.rollout.transformers_engine import TransformersEngine
from rewardpool_train.actor.rollout.vllm_engine import VllmEngine

__all__ = ["RolloutEngine", "TransformersEngine", "VllmEngine", "WeightSource", "open_engine"]
