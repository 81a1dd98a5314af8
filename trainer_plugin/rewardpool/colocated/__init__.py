"""A reward model on the trainer's own GPUs: it sleeps while the trainer computes, and is awake to score.

    awake.py     a pool of this machine, held awake by this process: `Pool.awake`
    elsewhere.py the same from the event loop of another thread
    turns.py     whose turn the GPU is: a pure function of who waits for it
    peers.py     the other ranks of the job, and the lock that they and the engines have the GPUs by
    gpu.py       `SharedGpu`, which carries that out around a training loop
    pipeline.py  the same around rollouts, learner and score of a `rewardpool.pipeline`

What puts an engine to sleep, and proves that it woke with its weights, is on the other side: the pool's supervisor and
the worker's sleep middleware. docs/colocated.md has the whole story.
"""

from rewardpool.colocated.gpu import SharedGpu, TurnReport
from rewardpool.colocated.turns import Costs

__all__ = ["Costs", "SharedGpu", "TurnReport"]
