"""A reward model on the trainer's own GPUs: it sleeps while the trainer computes, and wakes to score.

    gpu_scheduler.py  whose turn the GPU is: a pure function of who waits for it
    gpu.py            `SharedGpu`, which carries out those turns around a training loop, and the lock between ranks
    pipeline.py       the same around rollouts, learner and score of a `rewardpool_train.pipeline`

`rewardpool._client.wake_lock` keeps a pool of this machine awake. The pool's supervisor and the worker's sleep
middleware put an engine to sleep, and check that it woke with its weights. docs/colocated.md explains all of it.
"""

from rewardpool_train.colocated.gpu import GpuLock, Peers, SharedGpu, TurnReport
from rewardpool_train.colocated.gpu_scheduler import Costs

__all__ = ["Costs", "GpuLock", "Peers", "SharedGpu", "TurnReport"]
