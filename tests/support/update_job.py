"""One update in several ways, by any number of ranks (`rank_jobs`): the same eight rollouts, shared out."""

import dataclasses
from typing import Any

import torch
from support import tiny_policy

from rewardpool_train.actor.data import Trajectory
from rewardpool_train.actor.fsdp import FsdpActor, RatedRollout
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.actor.tokens import Forward, compute_log_probs
from rewardpool_train.objective import Objective

# Shares of 4 are unequal where it matters: two unscored rollouts in one of them, other lengths in each.
ADVANTAGES = [1.0, None, -0.5, None, 2.0, -1.0, 0.3, -0.8]
OBJECTIVE = Objective(kl=0.05, fixed_length=9)
FORWARD = Forward(pad_id=tiny_policy.PAD, device=torch.device("cpu"), micro_batch=3)

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole": {"forward": dataclasses.replace(FORWARD, micro_batch=8)},
    "packed": {"forward": dataclasses.replace(FORWARD, pack_tokens=24)},
    "recomputed": {"activation_checkpointing": True},
    "bfloat16": {"dtype": torch.bfloat16},
    "token": {"objective": dataclasses.replace(OBJECTIVE, loss_agg_mode="token-mean")},
    "fixed_length": {"objective": dataclasses.replace(OBJECTIVE, loss_agg_mode="seq-mean-token-sum-norm")},
    "sequence": {"objective": dataclasses.replace(OBJECTIVE, ratio="sequence")},
}
"""What `FsdpActor` is given in each, where it differs from the first."""


def rated_rollouts() -> list[RatedRollout]:
    """Random rollouts, the same in every process, sampled by a policy that is not quite the one that is trained."""
    generator = torch.Generator().manual_seed(1)

    def tokens(count: int) -> list[int]:
        return torch.randint(0, 10, (count,), generator=generator).tolist()

    rollouts = [
        Trajectory(group=0, member=at, prompt_ids=tokens(1 + at % 3), response_ids=tokens(2 + at), ended=False)
        for at in range(len(ADVANTAGES))
    ]
    behaviour = compute_log_probs(tiny_policy.make_policy(seed=0), rollouts, forward=FORWARD)
    return [
        RatedRollout(rollout=rollout, behaviour=then + 0.05, advantage=advantage, proximal=then - 0.05)
        for rollout, then, advantage in zip(rollouts, behaviour, ADVANTAGES, strict=True)
    ]


def make_actor(ranks: Ranks, **options: Any) -> FsdpActor:
    """Return an actor that differs from the plain one in the options given."""
    return FsdpActor(
        **{
            "model": tiny_policy.make_policy(seed=0),
            "ranks": ranks,
            "objective": OBJECTIVE,
            "forward": FORWARD,
            "learning_rate": 1e-2,
            "max_grad_norm": 1e9,
            "reference": tiny_policy.make_policy(seed=7),
            **options,
        },
    )


def share_of(ranks: Ranks) -> list[RatedRollout]:
    """Return this rank's rollouts."""
    everything = rated_rollouts()
    size = len(everything) // ranks.size
    return everything[ranks.rank * size : (ranks.rank + 1) * size]


def update(ranks: Ranks, **options: Any) -> dict[str, Any]:
    """Update once; returns figures, gradients, weights as the rollout copy gets them, and log-probabilities."""
    actor, minibatch = make_actor(ranks, **options), share_of(ranks)
    copy = tiny_policy.make_policy(seed=5)
    log_probs = actor.log_probs([rated.rollout for rated in minibatch])
    actor.copy_weights_to(copy)  # also right after a pass that no backward follows
    stats = actor.update(minibatch)
    actor.copy_weights_to(copy)
    return {
        "gradients": {name: weight.grad.full_tensor() for name, weight in actor.model.named_parameters()},
        "weights": dict(copy.named_parameters()),
        "stats": stats,
        "log_probs": log_probs,
        "nothing": actor.update([dataclasses.replace(rated, advantage=None) for rated in minibatch]),
    }


def uneven_update(ranks: Ranks) -> dict[str, Any]:
    """Update with all rollouts on the last rank, and none on any other."""
    actor = make_actor(ranks)
    actor.update(rated_rollouts() if ranks.rank == ranks.size - 1 else [])
    return {"gradients": {name: weight.grad.full_tensor() for name, weight in actor.model.named_parameters()}}


def updates(ranks: Ranks) -> dict[str, Any]:
    """Update in every way; returns what came of each."""
    return {name: update(ranks, **options) for name, options in WAYS.items()} | {"uneven": uneven_update(ranks)}
