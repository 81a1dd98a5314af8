"""Four steps of training, straight on or with a stop after two of them, by as many ranks as torchrun starts.

PYTHONPATH=tests torchrun --nproc-per-node N -m support.checkpoint_job resume|killed CHECKPOINTS FILE

The beginning is part of `rank_jobs`.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from support.update_job import make_actor, share_of

from rewardpool_train.actor import checkpoint
from rewardpool_train.actor.fsdp import FsdpActor, RatedRollout
from rewardpool_train.actor.ranks import Ranks, join_job

STEPS, STOP = 4, 2


def train(actor: FsdpActor, minibatch: Sequence[RatedRollout], *, steps: int) -> dict[str, Any]:
    """Take some steps, with a random number after each; returns the weights, and the last number."""
    drawn = 0.0
    for _ in range(steps):
        actor.update(minibatch)
        drawn = torch.rand(1).item()
    weights = {name: weight.detach().full_tensor() for name, weight in actor.model.named_parameters()}
    return {"weights": weights, "drawn": drawn}


def begin(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Train all steps without a stop; then, from the start again, to the stop, and leave a checkpoint there."""
    straight, stopped, minibatch = make_actor(ranks), make_actor(ranks), share_of(ranks)
    torch.manual_seed(100 + ranks.rank)
    result = train(straight, minibatch, steps=STEPS)
    torch.manual_seed(100 + ranks.rank)
    train(stopped, minibatch, steps=STOP)
    checkpoint.save(folder, stopped, ranks=ranks, step=STOP, state={"rank": ranks.rank}, keep=2)
    stopped.save_pretrained(folder / "policy")
    return result


def resume(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Go on from the checkpoint to the end."""
    actor, minibatch = make_actor(ranks), share_of(ranks)
    resumed = checkpoint.load(folder, actor, ranks=ranks)
    return {"resumed": resumed, **train(actor, minibatch, steps=STEPS - STOP)}


def killed(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Be killed while a later checkpoint is being written: the weights are there, the rest is not."""
    actor, write = make_actor(ranks), checkpoint.dcp.save

    def write_and_die(*given: Any, **options: Any) -> None:
        write(*given, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.dcp.save = write_and_die
    checkpoint.save(folder, actor, ranks=ranks, step=STOP + 1, state={}, keep=2)
    return {}


def main() -> None:
    """Do one of the two, and save what came of it."""
    mode, folder, file = sys.argv[1:]
    with join_job(deadline_seconds=60) as ranks:
        result = {"resume": resume, "killed": killed}[mode](ranks, Path(folder))
        if ranks.first:
            torch.save(result, file)


if __name__ == "__main__":
    main()
