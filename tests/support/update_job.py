"""One update by as many ranks as torchrun starts: the same eight rollouts, shared out; the result in one file.

PYTHONPATH=tests torchrun --nproc-per-node N -m support.update_job FILE
"""

import sys

import torch
from support import tiny_policy

from rewardpool.actor.data import Rollout
from rewardpool.actor.fsdp import FsdpActor, Objective, RatedRollout, behaviour_log_probs
from rewardpool.actor.ranks import joined

# Shares of 4 are unequal where it matters: two unscored rollouts in one of them, other lengths in each.
ADVANTAGES = [1.0, None, -0.5, None, 2.0, -1.0, 0.3, -0.8]
OBJECTIVE = Objective(clip=0.2, kl=0.05, temperature=1.0, max_grad_norm=1e9, micro_batch=3)


def rated_rollouts() -> list[RatedRollout]:
    """Random rollouts, the same in every process, sampled by a policy that is not quite the one that is trained."""
    generator = torch.Generator().manual_seed(1)

    def tokens(count: int) -> list[int]:
        return torch.randint(0, 10, (count,), generator=generator).tolist()

    rollouts = [
        Rollout(group=0, member=at, prompt_ids=tokens(1 + at % 3), response_ids=tokens(2 + at), ended=False)
        for at in range(len(ADVANTAGES))
    ]
    sampled_by = tiny_policy.make_policy(seed=0)
    behaviour = behaviour_log_probs(
        sampled_by, rollouts, objective=OBJECTIVE, pad_id=tiny_policy.PAD, device=torch.device("cpu")
    )
    return [
        RatedRollout(rollout=rollout, behaviour=then + 0.05, advantage=advantage)
        for rollout, then, advantage in zip(rollouts, behaviour, ADVANTAGES, strict=True)
    ]


def main() -> None:
    """Update once, and save gradients, weights as the rollout copy gets them, and figures."""
    with joined(deadline_seconds=60) as ranks:
        actor = FsdpActor(
            tiny_policy.make_policy(seed=0),
            ranks=ranks,
            objective=OBJECTIVE,
            learning_rate=1e-2,
            pad_id=tiny_policy.PAD,
            reference=tiny_policy.make_policy(seed=7),
        )
        everything = rated_rollouts()
        share = len(everything) // ranks.size
        stats = actor.update(everything[ranks.rank * share : (ranks.rank + 1) * share])
        copy = tiny_policy.make_policy(seed=5)
        actor.copy_weights_to(copy)
        gradients = {name: weight.grad.full_tensor() for name, weight in actor.model.named_parameters()}
        nothing = actor.update(
            [RatedRollout(rollout=r.rollout, behaviour=r.behaviour, advantage=None) for r in everything]
        )
        if ranks.first:
            weights = dict(copy.named_parameters())
            torch.save({"gradients": gradients, "weights": weights, "stats": stats, "nothing": nothing}, sys.argv[1])


if __name__ == "__main__":
    main()
