"""The policy that is trained: sharded over the ranks with FSDP2, one optimiser step per mini-batch.

Every rank holds a slice of each weight, its gradient and its AdamW state, computes on its own rollouts, and gathers a
layer's weights just while it needs them. That makes every forward and backward a conversation of all ranks: each must
make the same number of them, also when it has nothing to say. So unscored rollouts stay in a batch with weight 0, and
a rank whose rollouts need fewer passes than another's makes blank ones.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.utils.rnn import pad_sequence

from rewardpool.errors import ConfigError, TrainingError
from rewardpool_train.actor.data import Rollout
from rewardpool_train.actor.grpo import rollout_weights, token_losses
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.actor.tokens import Forward
from rewardpool_train.objective import Objective

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RatedRollout:
    """A rollout with all that the loss needs.

    Attributes:
        rollout: The response.
        behaviour: Log-probabilities of its tokens under the policy that sampled it, float32 (response tokens,).
        advantage: See `groups.group_advantages`; or one per token, float32 (response tokens,), see
            `groups.process_advantages`. None for an unscored one, which weighs nothing.
        proximal: Log-probabilities of its tokens under the policy of when the training step began, float32 (response
            tokens,), as `FsdpActor.log_probs` returns them; None where that is the policy that sampled it.
    """

    rollout: Rollout
    behaviour: torch.Tensor
    advantage: float | torch.Tensor | None
    proximal: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """One update, over all ranks. Shares and means are over the tokens of scored rollouts.

    Attributes:
        loss: Of the mini-batch.
        clip_fraction: Share of tokens where the clip took hold.
        is_cap_fraction: Share of tokens whose importance weight was cut.
        approx_kl: Mean divergence from the policy that sampled, in nats per token.
        grad_norm: Length of the gradient before it was shortened.
        skipped: Whether the gradient was no finite number on some rank, and nothing was changed by it.
    """

    loss: float
    clip_fraction: float
    is_cap_fraction: float
    approx_kl: float
    grad_norm: float
    skipped: bool = False


def shard(model: Any, *, ranks: Ranks, dtype: torch.dtype) -> Any:
    """Shard a transformers model over the ranks, each layer on its own, and return it.

    The weights are those of rank 0; the other ranks' model may be on the meta device. A rank's device never has more of
    them than its share and one layer. Weights, gradients and their sums stay float32; `dtype` is what the layers
    compute in.
    """
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    layers = [module for module in model.modules() if type(module).__name__ in model._no_split_modules]
    done: set[Any] = set()
    for module in [*layers, model]:  # inside out: the outer call takes what the inner ones left
        inner = [one for one in module.modules() if one not in done]
        done.update(inner)
        _broadcast_from_first(inner, ranks)
        fully_shard(module, mesh=ranks.mesh, mp_policy=policy)
    return model


def _broadcast_from_first(modules: Sequence[Any], ranks: Ranks) -> None:
    """Put the weights and buffers of some modules on this rank's device, with the values that rank 0 has."""
    taken: dict[int, torch.Tensor] = {}
    for module in modules:
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                if id(tensor) not in taken:  # else it is tied to another one, and stays so
                    taken[id(tensor)] = _broadcast_tensor(tensor, ranks)
                tensors[name] = taken[id(tensor)]


def _broadcast_tensor(tensor: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    if ranks.first:
        value = tensor.detach().to(ranks.device)
    else:
        value = torch.empty_like(tensor, device=ranks.device, requires_grad=False)
    dist.broadcast(value, src=0)
    return torch.nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else value


def recompute_activations(model: Any) -> None:
    """Let the model keep only each layer's input for the backward pass, and compute the rest again when it is there.

    Raises:
        ConfigError: The model has dropout. transformers recomputes in training mode alone, where dropout would make
            the probabilities other than the ones that were sampled from.
    """
    dropouts = {name: value for name, value in model.config.to_dict().items() if "dropout" in name and value}
    if dropouts:
        raise ConfigError(
            "update.activation_checkpointing", f"the policy's config has dropout: set {', '.join(dropouts)} to 0 in it"
        )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()


class FsdpActor:
    """A sharded policy and its AdamW.

    Args:
        model: A causal language model in float32, sharded in place; rank 0's weights count, see `shard`.
        ranks: The processes it is sharded over.
        objective: What updates are done for.
        forward: How rollouts go through it.
        learning_rate: Of AdamW.
        max_grad_norm: Gradients longer than this (over all ranks) are shortened to it.
        max_skipped: Updates in a row, at most, that are skipped because their gradient is no finite number.
        dtype: What the layers compute in.
        activation_checkpointing: Trades a second forward pass for the memory of activations.
        reference: The reference policy, also sharded in place; needed where `objective.kl` is not 0.

    Raises:
        ConfigError: The model cannot have its activations recomputed.
    """

    def __init__(
        self,
        model: Any,
        *,
        ranks: Ranks,
        objective: Objective,
        forward: Forward,
        learning_rate: float,
        max_grad_norm: float = 1.0,
        max_skipped: int = 3,
        dtype: torch.dtype = torch.float32,
        activation_checkpointing: bool = False,
        reference: Any = None,
    ) -> None:
        self._ranks = ranks
        self._objective = objective
        self._forward = forward
        self._max_grad_norm = max_grad_norm
        self._max_skipped = max_skipped
        self._skipped_in_a_row = 0
        if activation_checkpointing:
            recompute_activations(model)
        self.model = shard(model, ranks=ranks, dtype=dtype)
        self._reference = None if reference is None else shard(reference, ranks=ranks, dtype=dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, weight_decay=0.0)

    def log_probs(self, rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
        """Return each rollout's log-probabilities under the policy of now: float32 (response tokens,), in their order.

        Called before a step's first update, they are what `RatedRollout.proximal` wants. All ranks call this together,
        each with its own rollouts; they need not be equally many.
        """
        found: dict[int, torch.Tensor] = {}
        for part in self._even_parts(rollouts):
            with torch.no_grad():
                rows = self._forward.log_probs(self.model, [rollouts[at] for at in part] or [self._forward.blank()])
            found |= {at: row[: len(rollouts[at].response_ids)] for at, row in zip(part, rows, strict=False)}
        # FSDP keeps the outermost weights gathered until a backward that does not come here.
        self.model.reshard()
        return [found[at] for at in range(len(rollouts))]

    def update(self, minibatch: Sequence[RatedRollout]) -> UpdateStats | None:
        """Take one optimiser step; all ranks call this together, each with its own rollouts.

        None, and no step, where no rollout of any rank has a score. Where the gradient has a NaN or is infinite,
        weights and optimiser stay as they are, on all ranks, and the figures say so.

        Raises:
            TrainingError: So many updates in a row had such gradients that this is no accident.
        """
        lengths = [len(rated.rollout.response_ids) for rated in minibatch if rated.advantage is not None]
        rollouts, tokens = self._ranks.sum(len(lengths), sum(lengths))
        if tokens == 0:
            return None
        self.optimizer.zero_grad()
        # Loss, and numbers of tokens that were clipped and capped, and the sum of their divergence.
        figures = torch.zeros(4, dtype=torch.float64, device=self._ranks.device)
        for part in self._even_parts([rated.rollout for rated in minibatch]):
            figures += self._backward([minibatch[at] for at in part], rollouts=rollouts, tokens=tokens)
        # Once it is scaled by a norm that is no number, every gradient is none.
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._max_grad_norm).full_tensor().item()
        loss, clipped, capped, divergence, broken = self._ranks.sum(*figures.tolist(), not math.isfinite(grad_norm))
        if broken:
            self._skip(grad_norm)
        else:
            self._skipped_in_a_row = 0
            self.optimizer.step()
        return UpdateStats(
            loss=loss,
            clip_fraction=clipped / tokens,
            is_cap_fraction=capped / tokens,
            approx_kl=divergence / tokens,
            grad_norm=grad_norm,
            skipped=bool(broken),
        )

    def _skip(self, grad_norm: float) -> None:
        self.optimizer.zero_grad()
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row > self._max_skipped:
            raise TrainingError(
                f"the gradient's norm is {grad_norm}, for {self._skipped_in_a_row} updates in a row; the weights are"
                " those of before. Look at loss and approx_kl in metrics.jsonl, lower update.learning_rate, or go on"
                " from an earlier checkpoint; update.max_skipped_updates says how many such updates are skipped"
            )
        log.warning("the gradient's norm is %s: this update is skipped", grad_norm)

    def _even_parts(self, rollouts: Sequence[Rollout]) -> list[list[int]]:
        """Return the indices that go through the model together, in as many parts as every other rank has."""
        parts = self._forward.parts(rollouts)
        [most] = self._ranks.max(len(parts))
        return parts + [[] for _ in range(int(most) - len(parts))]

    def _backward(self, part: Sequence[RatedRollout], *, rollouts: float, tokens: float) -> torch.Tensor:
        """Add a part's gradients to those of the mini-batch; returns its share of the figures, float64 (4,)."""
        rated = part or [RatedRollout(rollout=self._forward.blank(), behaviour=torch.zeros(1), advantage=None)]
        device = self._ranks.device
        lengths = torch.tensor([len(one.rollout.response_ids) for one in rated], device=device)
        scored = torch.tensor([one.advantage is not None for one in rated], device=device)
        log_probs = self._forward.log_probs(self.model, [one.rollout for one in rated])
        each = token_losses(
            log_probs=log_probs,
            proximal=_padded([one.behaviour if one.proximal is None else one.proximal for one in rated], device),
            behaviour=_padded([one.behaviour for one in rated], device),
            advantages=_padded([_token_advantages(one) for one in rated], device),
            mask=torch.arange(log_probs.shape[1], device=device) < lengths.unsqueeze(1),
            objective=self._objective,
            reference=self._reference_log_probs([one.rollout for one in rated]),
        )
        weights = rollout_weights(lengths, scored, rollouts=rollouts, tokens=tokens, objective=self._objective)
        loss = (each.losses.sum(dim=1) * weights).sum()
        # FSDP averages gradients over the ranks, and the weights have divided by what all ranks have already.
        (loss * self._ranks.size).backward()
        sums = [(values.sum(dim=1) * scored).sum() for values in (each.clipped, each.capped, each.approx_kl)]
        return torch.stack([loss.detach(), *sums]).double()

    def _reference_log_probs(self, rollouts: Sequence[Rollout]) -> torch.Tensor | None:
        if self._reference is None:
            return None
        with torch.no_grad():
            return self._forward.log_probs(self._reference, rollouts)

    def copy_weights_to(self, model: Any) -> None:
        """Give an unsharded copy of the policy the weights of now; all ranks call this together.

        One weight is gathered at a time, so that the whole model never exists twice.
        """
        targets = dict(model.named_parameters())
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                targets[name].copy_(weight.full_tensor())

    def save_pretrained(self, folder: Path) -> None:
        """Write the policy in Hugging Face's format; all ranks call this together, and rank 0 writes.

        The whole model is gathered in the main memory of rank 0's machine, one weight at a time.
        """
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(self.model, options=options)
        if self._ranks.first:
            self.model.save_pretrained(folder, state_dict=weights)


def _token_advantages(rated: RatedRollout) -> torch.Tensor:
    """Return the advantage of each token, float32 (response tokens,)."""
    if isinstance(rated.advantage, torch.Tensor):
        return rated.advantage
    return torch.full([len(rated.rollout.response_ids)], rated.advantage or 0.0)


def _padded(rows: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    return pad_sequence(list(rows), batch_first=True).to(device)
