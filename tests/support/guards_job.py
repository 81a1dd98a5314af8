"""What one rank of a job cannot do, the others hear of at once: every rank writes what it met to FILE.RANK.

PYTHONPATH=tests torchrun --nproc-per-node N -m support.guards_job FOLDER
"""

import dataclasses
import math
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from support import tiny_policy
from support.update_job import make_actor, share_of
from torch.distributed.tensor import DTensor

from rewardpool._rewards import RunningMoments
from rewardpool_train.actor import checkpoint, fsdp
from rewardpool_train.actor.fsdp import FsdpActor, RatedRollout
from rewardpool_train.actor.loading import load_to_shard
from rewardpool_train.actor.ranks import Ranks, join_job
from rewardpool_train.actor.rollout import VllmEngine
from rewardpool_train.actor.rollout.vllm_client import SocketAddress
from rewardpool_train.config import VllmConfig

LIMIT_BYTES = 4096
"""Of a file that a rank may write, less than the policy has: a write beyond it fails as one to a full disk does."""


def weights_of(actor: FsdpActor) -> dict[str, torch.Tensor]:
    """All weights, gathered; a copy."""
    return {name: weight.detach().full_tensor().clone() for name, weight in actor.model.named_parameters()}


def trouble(work: Callable[[], Any]) -> dict[str, Any]:
    """What this rank is told, and after how many seconds."""
    began = time.monotonic()
    try:
        work()
    except Exception as error:
        return {"type": type(error).__name__, "text": str(error), "seconds": time.monotonic() - began}
    return {"type": None, "text": "", "seconds": time.monotonic() - began}


def full_folder(ranks: Ranks, actor: FsdpActor, folder: Path) -> dict[str, Any]:
    """Hand weights over, and write a checkpoint's state, where rank 0 can write no more."""
    engine = VllmEngine(
        SocketAddress(folder / "nobody.sock"),
        settings=VllmConfig(weights_folder=folder),
        ranks=ranks,
        encode=lambda prompt: [1],
        end_ids=[tiny_policy.END],
        max_new_tokens=4,
        temperature=1.0,
    )
    state = {"rank": "x" * LIMIT_BYTES * 2 * ranks.first}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    save, checkpoint.dcp.save = checkpoint.dcp.save, lambda *_, **__: None  # it tells the ranks by itself
    if ranks.first:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, before[1]))
    try:
        return {
            "push": trouble(lambda: engine.load(actor, 1)),
            "save": trouble(
                lambda: checkpoint.save(folder / "checkpoints", actor, ranks=ranks, step=1, state=state, keep=1)
            ),
        }
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        checkpoint.dcp.save = save


def broken(minibatch: list[RatedRollout]) -> list[RatedRollout]:
    """The same, with a NaN among the probabilities of the first rollout."""
    first, *others = minibatch
    behaviour = first.behaviour.clone()
    behaviour[0] = math.nan
    return [dataclasses.replace(first, behaviour=behaviour), *others]


def odd_gradients(ranks: Ranks) -> dict[str, Any]:
    """Update with a NaN on the last rank alone, then without, then until it is too much."""
    actor, minibatch = make_actor(ranks, max_skipped=2), share_of(ranks)
    odd = broken(minibatch) if ranks.rank == ranks.size - 1 else minibatch
    start = weights_of(actor)
    found: dict[str, Any] = {"skipped": actor.update(odd)}
    found["unchanged"] = all(torch.equal(weight, start[name]) for name, weight in weights_of(actor).items())
    found["optimizer"] = len(actor.optimizer.state)
    found["next"] = actor.update(minibatch)
    found["in a row"] = [trouble(lambda: actor.update(odd))["type"] for _ in range(3)]
    found["finite"] = all(weight.isfinite().all().item() for weight in weights_of(actor).values())
    return found


def loaded(ranks: Ranks, policy: Path) -> dict[str, Any]:
    """Shard a policy of which only rank 0 has weights; the most weights that this rank had whole on its device."""
    whole: list[int] = []
    shard = fsdp.fully_shard

    def noting(module: Any, **options: Any) -> Any:
        plain = [weight for weight in model.parameters() if not isinstance(weight, DTensor) and not weight.is_meta]
        whole.append(sum(weight.numel() for weight in plain))
        return shard(module, **options)

    model = load_to_shard(policy, ranks=ranks)
    buffers = len(list(model.buffers()))
    fsdp.fully_shard = noting
    try:
        actor = make_actor(ranks, model=model, reference=None)
    finally:
        fsdp.fully_shard = shard
    return {
        "weights": weights_of(actor),
        "whole": max(whole),
        "tied": actor.model.lm_head.weight is actor.model.model.embed_tokens.weight,
        "buffers": [buffer.detach().clone() for buffer in actor.model.buffers()],
        "meta": any(buffer.is_meta for buffer in actor.model.buffers()) or not buffers,
        "stats": actor.update(share_of(ranks)),
        "training": actor.model.training,
    }


def shared_moments(ranks: Ranks) -> tuple[float, float]:
    """Count another score on each rank; what scores are scaled by then."""
    moments = RunningMoments({"part": None})
    moments.count({"part": float(ranks.rank)})
    moments.advance(1, together=ranks.all_gather)
    scaling = moments.scale_of("part", 1)
    return scaling.mean, scaling.std


def main() -> None:
    """Meet all of it."""
    folder = Path(sys.argv[1])
    with join_job(deadline_seconds=60) as ranks:
        results = {
            "full": full_folder(ranks, make_actor(ranks), folder),
            "odd": odd_gradients(ranks),
            "moments": shared_moments(ranks),
            "loaded": loaded(ranks, folder / "policy"),
            "tied": loaded(ranks, folder / "tied"),
            "missing": trouble(
                lambda: load_to_shard(folder / "nothing" if ranks.first else folder / "policy", ranks=ranks)
            ),
        }
        torch.save(results, folder / f"result.{ranks.rank}")


if __name__ == "__main__":
    main()
