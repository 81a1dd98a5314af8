"""The policy that is trained: sharded over the ranks with FSDP2, one optimiser step per mini-batch.

Every rank holds a slice of each weight, its gradient and its AdamW state, computes on its own rollouts, and gathers a
layer's weights just while it needs them. That makes every forward and backward a conversation of all ranks: each must
make the same number of them, also when it has nothing to say. So unscored rollouts stay in a batch with weight 0.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.utils.rnn import pad_sequence

from rewardpool.actor.data import Rollout
from rewardpool.actor.grpo import TokenBatch, response_log_probs, rollout_losses, token_batch
from rewardpool.actor.ranks import Ranks


@dataclass(frozen=True, kw_only=True)
class RatedRollout:
    """A rollout with all that the loss needs.

    Attributes:
        rollout: The response.
        behaviour: Log-probabilities of its tokens under the policy that sampled it, float32 (response tokens,).
        advantage: In standard deviations of its group; None for an unscored one, which weighs nothing.
    """

    rollout: Rollout
    behaviour: torch.Tensor
    advantage: float | None


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What an update is done for; see `grpo`.

    Attributes:
        clip: How far a token's probability may move before its gradient is cut, as a share.
        kl: Weight of the divergence from the reference policy; 0 needs no reference.
        temperature: Of the sampling, so that the probabilities are the ones sampled from.
        max_grad_norm: Gradients longer than this (over all ranks) are shortened to it.
        micro_batch: Rollouts per forward and backward; a matter of memory, not of the result.
    """

    clip: float
    kl: float
    temperature: float
    max_grad_norm: float
    micro_batch: int


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """One update, over all ranks.

    Attributes:
        loss: Mean over the scored rollouts.
        clipped: Share of their tokens where the clip took hold, mean over the scored rollouts.
        grad_norm: Length of the gradient before it was shortened.
    """

    loss: float
    clipped: float
    grad_norm: float


def shard(model: Any, *, ranks: Ranks, dtype: torch.dtype) -> Any:
    """Shard a transformers model over the ranks, each layer on its own, and return it.

    Weights, gradients and their sums stay float32; `dtype` is what the layers compute in.
    """
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    layers = [module for module in model.modules() if type(module).__name__ in model._no_split_modules]
    for module in [*layers, model]:  # inside out: the outer call takes what the inner ones left
        fully_shard(module, mesh=ranks.mesh, mp_policy=policy)
    return model


class FsdpActor:
    """A sharded policy and its AdamW.

    Args:
        model: A causal language model in float32, the same on every rank; it is sharded in place.
        ranks: The processes it is sharded over.
        objective: What updates are done for.
        learning_rate: Of AdamW.
        pad_id: Token id that stands for no token.
        dtype: What the layers compute in.
        reference: The reference policy, also sharded in place; needed where `objective.kl` is not 0.
    """

    def __init__(
        self,
        model: Any,
        *,
        ranks: Ranks,
        objective: Objective,
        learning_rate: float,
        pad_id: int,
        dtype: torch.dtype = torch.float32,
        reference: Any = None,
    ) -> None:
        self._ranks = ranks
        self._objective = objective
        self._pad_id = pad_id
        self.model = shard(model, ranks=ranks, dtype=dtype)
        self._reference = None if reference is None else shard(reference, ranks=ranks, dtype=dtype)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, weight_decay=0.0)

    def update(self, minibatch: Sequence[RatedRollout]) -> UpdateStats | None:
        """Take one optimiser step; all ranks call this together, each with its own rollouts and equally many.

        The loss is the mean over the scored rollouts of all ranks. None, and no step, where there is none.
        """
        scored = sum(rated.advantage is not None for rated in minibatch)
        [overall] = self._ranks.sum(scored)
        if overall == 0:
            return None
        self._optimizer.zero_grad()
        loss, clipped = self._accumulate(minibatch, scored_overall=overall)
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._objective.max_grad_norm)
        self._optimizer.step()
        loss, clipped = self._ranks.sum(loss, clipped)
        return UpdateStats(loss=loss, clipped=clipped, grad_norm=grad_norm.full_tensor().item())

    def _accumulate(self, minibatch: Sequence[RatedRollout], *, scored_overall: float) -> tuple[float, float]:
        """Add up the gradients; returns this rank's share of the mean loss and of the mean clipped share."""
        loss = clipped = 0.0
        size = self._objective.micro_batch
        for start in range(0, len(minibatch), size):
            part = minibatch[start : start + size]
            losses, clips = self._losses(part)
            weights = torch.tensor(
                [float(rated.advantage is not None) / scored_overall for rated in part], device=losses.device
            )
            share = (losses * weights).sum()
            # FSDP averages gradients over the ranks, and the weights have divided by all rollouts of all ranks already.
            (share * self._ranks.size).backward()
            loss += share.item()
            clipped += (clips * weights).sum().item()
        return loss, clipped

    def _losses(self, part: Sequence[RatedRollout]) -> tuple[torch.Tensor, torch.Tensor]:
        device = self._ranks.device
        batch = token_batch([rated.rollout for rated in part], pad_id=self._pad_id, device=device)
        return rollout_losses(
            response_log_probs(self.model, batch, temperature=self._objective.temperature),
            pad_sequence([rated.behaviour for rated in part], batch_first=True).to(device),
            torch.tensor([rated.advantage or 0.0 for rated in part], device=device),
            batch.response_mask,
            clip=self._objective.clip,
            reference=self._reference_log_probs(batch),
            kl=self._objective.kl,
        )

    def _reference_log_probs(self, batch: TokenBatch) -> torch.Tensor | None:
        if self._reference is None:
            return None
        with torch.no_grad():
            return response_log_probs(self._reference, batch, temperature=self._objective.temperature)

    def copy_weights_to(self, model: Any) -> None:
        """Give an unsharded copy of the policy the weights of now; all ranks call this together.

        One weight is gathered at a time, so that the whole model never exists twice.
        """
        targets = dict(model.named_parameters())
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                targets[name].copy_(weight.full_tensor())


def behaviour_log_probs(
    model: Any, rollouts: Sequence[Rollout], *, objective: Objective, pad_id: int, device: torch.device
) -> list[torch.Tensor]:
    """Return each rollout's log-probabilities under `model`, the copy that sampled it: float32 (response tokens,)."""
    found: list[torch.Tensor] = []
    for number in range(math.ceil(len(rollouts) / objective.micro_batch)):
        part = rollouts[number * objective.micro_batch : (number + 1) * objective.micro_batch]
        with torch.no_grad():
            batch = token_batch(part, pad_id=pad_id, device=device)
            log_probs = response_log_probs(model, batch, temperature=objective.temperature)
        found += [row[: len(rollout.response_ids)] for row, rollout in zip(log_probs, part, strict=True)]
    return found
