"""The trained policy: sharded over the ranks with FSDP2, one optimiser step per mini-batch.

Every rank holds a slice of each weight, its gradient and its AdamW state, computes on its own rollouts, and gathers a
layer's weights only while it needs them. So every forward and backward pass is a collective of all ranks, and each rank
must make the same number of passes. Unscored rollouts therefore stay in a batch with weight 0, and a rank that needs
fewer passes than another makes blank ones.

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
from rewardpool_train.actor.data import Trajectory
from rewardpool_train.actor.grpo import rollout_weights, token_losses, top_divergence
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.actor.teacher_rows import TeacherRows, blank_rows
from rewardpool_train.actor.tokens import Forward
from rewardpool_train.objective import Objective

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RatedRollout:
    """A rollout with everything that the loss needs.

    Attributes:
        behaviour: Log-probabilities of its tokens under the policy that sampled it, float32 (response tokens,).
        advantage: See `advantages.group_advantages`; or one per token, float32 (response tokens,), see
            `advantages.process_advantages`. None for an unscored rollout, which has weight 0.
        proximal: Log-probabilities of its tokens under the policy at the begin of the training step, float32 (response
            tokens,), as `FsdpActor.log_probs` returns them; None if that policy sampled it.
        teacher: A teacher's answer about it; read if `Objective.distillation` is not 0.
    """

    rollout: Trajectory
    behaviour: torch.Tensor
    advantage: float | torch.Tensor | None
    proximal: torch.Tensor | None = None
    teacher: TeacherRows | None = None


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """Figures of an update, over all ranks. Shares and means are over the tokens of scored rollouts.

    Attributes:
        is_cap_fraction: Share of tokens whose importance weight was capped.
        approx_kl: Mean divergence from the policy that sampled, in nats per token.
        grad_norm: Norm of the gradient before clipping.
        skipped: Whether the gradient was not finite on some rank, and the update was skipped.
    """

    loss: float
    clip_fraction: float
    is_cap_fraction: float
    approx_kl: float
    grad_norm: float
    skipped: bool = False


def shard(model: Any, *, ranks: Ranks, dtype: torch.dtype) -> Any:
    """Shard a transformers model over the ranks, layer by layer, and return it.

    The weights are those of rank 0; the other ranks' model may be on the meta device. A rank's device never holds more
    of them than its share and one layer. Weights, gradients and their sums stay float32; the layers compute in `dtype`.
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
    """Put the weights and buffers of some modules on this rank's device, with the values of rank 0."""
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
    """Keep only each layer's input for the backward pass, and compute the other activations again there.

    Raises:
        ConfigError: The model has dropout. transformers only recomputes in training mode, where dropout would change
            the probabilities from those that were sampled from.
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
        model: A causal language model in float32, sharded in place; the weights of rank 0 are used, see `shard`.
        max_grad_norm: Maximum norm of the gradient (over all ranks); longer ones are scaled down.
        max_skipped: Maximum number of consecutive updates that are skipped because their gradient is not finite.
        reference: The reference policy, also sharded in place; required if `objective.kl` is not 0.

    Raises:
        ConfigError: The model's activations cannot be recomputed.
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

    def log_probs(self, rollouts: Sequence[Trajectory]) -> list[torch.Tensor]:
        """Return each rollout's log-probabilities under the current policy: float32 (response tokens,), in their order.

        Before a step's first update, these are the values for `RatedRollout.proximal`. All ranks call this together,
        each with its own rollouts, whose number may differ.
        """
        found: dict[int, torch.Tensor] = {}
        for part in self._even_parts(rollouts):
            with torch.no_grad():
                rows = self._forward.log_probs(self.model, [rollouts[at] for at in part] or [self._forward.blank()])
            found |= {at: row[: len(rollouts[at].response_ids)] for at, row in zip(part, rows, strict=False)}
        # FSDP keeps the outermost weights gathered until a backward pass, and there is none here.
        self.model.reshard()
        return [found[at] for at in range(len(rollouts))]

    def update(self, minibatch: Sequence[RatedRollout]) -> UpdateStats | None:
        """Take one optimiser step; all ranks call this together, each with its own rollouts.

        Return None without a step if no rollout of any rank has a score. If the gradient is NaN or infinite, weights
        and optimiser stay unchanged on all ranks, and `skipped` is set.

        Raises:
            TrainingError: More than `max_skipped` consecutive updates had such gradients.
        """
        lengths = [len(rated.rollout.response_ids) for rated in minibatch if rated.advantage is not None]
        rollouts, tokens = self._ranks.sum(len(lengths), sum(lengths))
        if tokens == 0:
            return None
        self.optimizer.zero_grad()
        # Loss, number of clipped tokens, number of capped tokens, sum of the divergence.
        figures = torch.zeros(4, dtype=torch.float64, device=self._ranks.device)
        for part in self._even_parts([rated.rollout for rated in minibatch]):
            figures += self._backward([minibatch[at] for at in part], rollouts=rollouts, tokens=tokens)
        # Scaling by a norm that is NaN makes every gradient NaN.
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
                " unchanged. Check loss and approx_kl in metrics.jsonl, lower update.learning_rate, or resume from an"
                " earlier checkpoint; update.max_skipped_updates is the number of such updates that are skipped"
            )
        log.warning("the gradient's norm is %s: this update is skipped", grad_norm)

    def _even_parts(self, rollouts: Sequence[Trajectory]) -> list[list[int]]:
        """Return the indices of the rollouts of each pass, in as many passes as every other rank has."""
        parts = self._forward.parts(rollouts)
        [most] = self._ranks.max(len(parts))
        return parts + [[] for _ in range(int(most) - len(parts))]

    def _backward(self, part: Sequence[RatedRollout], *, rollouts: float, tokens: float) -> torch.Tensor:
        """Add a part's gradients to those of the mini-batch; return its share of the figures, float64 (4,)."""
        rated = part or [RatedRollout(rollout=self._forward.blank(), behaviour=torch.zeros(1), advantage=None)]
        device = self._ranks.device
        lengths = torch.tensor([len(one.rollout.response_ids) for one in rated], device=device)
        scored = torch.tensor([one.advantage is not None for one in rated], device=device)
        log_probs, divergence = self._log_probs(rated)
        each = token_losses(
            log_probs=log_probs,
            proximal=_padded([one.behaviour if one.proximal is None else one.proximal for one in rated], device),
            behaviour=_padded([one.behaviour for one in rated], device),
            advantages=_padded([_token_advantages(one) for one in rated], device),
            mask=torch.arange(log_probs.shape[1], device=device) < lengths.unsqueeze(1),
            objective=self._objective,
            reference=self._reference_log_probs([one.rollout for one in rated]),
            teacher_divergence=divergence,
        )
        weights = rollout_weights(lengths, scored, rollouts=rollouts, tokens=tokens, objective=self._objective)
        loss = (each.losses.sum(dim=1) * weights).sum()
        # FSDP averages gradients over the ranks, but the weights are already divided by the totals of all ranks.
        (loss * self._ranks.size).backward()
        sums = [(values.sum(dim=1) * scored).sum() for values in (each.clipped, each.capped, each.approx_kl)]
        return torch.stack([loss.detach(), *sums]).double()

    def _log_probs(self, rated: Sequence[RatedRollout]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the log-probability of each response token, and the divergence from its teacher; float32 (B, R)."""
        rollouts = [one.rollout for one in rated]
        if not self._objective.distillation:
            return self._forward.log_probs(self.model, rollouts), None
        width = max((one.teacher.top_ids.shape[1] for one in rated if one.teacher is not None), default=0)
        # Those without an answer have no weight.
        teachers = [one.teacher or blank_rows(len(one.rollout.response_ids), width) for one in rated]
        log_probs, own = self._forward.log_probs_at(self.model, rollouts, [rows.top_ids for rows in teachers])
        theirs = _padded([rows.top_log_probs for rows in teachers], self._ranks.device)
        return log_probs, top_divergence(own, theirs)

    def _reference_log_probs(self, rollouts: Sequence[Trajectory]) -> torch.Tensor | None:
        if self._reference is None:
            return None
        with torch.no_grad():
            return self._forward.log_probs(self._reference, rollouts)

    def copy_weights_to(self, model: Any) -> None:
        """Copy the current weights to an unsharded copy of the policy; all ranks call this together.

        One weight is gathered at a time, so the whole model never exists twice.
        """
        targets = dict(model.named_parameters())
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                targets[name].copy_(weight.full_tensor())

    def save_pretrained(self, folder: Path) -> None:
        """Write the policy in Hugging Face's format on rank 0; all ranks call this together.

        The whole model is gathered in main memory of rank 0's machine, one weight at a time.
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
