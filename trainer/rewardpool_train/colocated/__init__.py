"""A reward model on the trainer's own GPUs: it sleeps while the trainer computes, and is awake to score.

    gpu_scheduler.py  whose turn the GPU is: a pure function of who waits for it
    rank_lock.py      the other ranks of the job, and the lock that they and the engines have the GPUs by
    gpu.py            `SharedGpu`, which carries that out around a training loop
    pipeline.py       the same around rollouts, learner and score of a `rewardpool_train.pipeline`

`rewardpool.client.wake_lock` keeps a pool of this machine awake. What puts an engine to sleep, and proves that it woke
with its weights, is on the other side: the pool's supervisor and the worker's sleep middleware. docs/colocated.md has
the whole story.
"""

from rewardpool_train.colocated.gpu import SharedGpu, TurnReport
from rewardpool_train.colocated.gpu_scheduler import Costs

__all__ = ["Costs", "SharedGpu", "TurnReport"]
