"""From rollouts to the log-probabilities of their tokens: padded to a rectangle, or packed into one row.

Both give the same numbers. Padding is simple, but wastes compute on shorter rollouts; packing (`packing`) wastes none,
and is for responses of very different lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from rewardpool_train.actor.data import Trajectory
from rewardpool_train.actor.packing import pack_rows, packed_logits

NO_PROBABILITY = -1e9  # in place of the logarithm of 0, which times 0 were NaN


@dataclass(frozen=True, kw_only=True)
class Forward:
    """Forward pass of rollouts through a model. Its settings change memory use and speed, not the result.

    Attributes:
        temperature: Sampling temperature, so that the probabilities are those that were sampled from.
        micro_batch: Rollouts per pass, if they are padded.
        pack_tokens: Tokens per pass, if they are packed; a longer rollout has its own pass. 0 pads.
    """

    pad_id: int
    device: torch.device
    temperature: float = 1.0
    micro_batch: int = 64
    pack_tokens: int = 0

    def parts(self, rollouts: Sequence[Trajectory]) -> list[list[int]]:
        """Return the indices of the rollouts of each pass; each rollout is in one pass."""
        if self.pack_tokens:
            return pack_rows([len(r.prompt_ids) + len(r.response_ids) for r in rollouts], budget=self.pack_tokens)
        starts = range(0, len(rollouts), self.micro_batch)
        return [list(range(start, min(start + self.micro_batch, len(rollouts)))) for start in starts]

    def log_probs(self, model: Any, part: Sequence[Trajectory]) -> torch.Tensor:
        """Return the log-probability of each response token as it was sampled, float32 (B, R); padding holds noise."""
        logits, targets = self._logits(model, part)
        return self._rows(-cross_entropy(logits, targets, reduction="none"), part)

    def log_probs_at(
        self, model: Any, part: Sequence[Trajectory], ids: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `log_probs`, and those of further tokens at each position.

        Args:
            ids: The tokens for each rollout, int64 (response tokens, k). Of those beyond the model's vocabulary the
                probability is 0: a larger model's may be padded with more.

        Returns:
            float32 (B, R) and (B, R, k); padding holds noise.
        """
        logits, targets = self._logits(model, part)
        log_probs = torch.log_softmax(logits, dim=-1)
        further = torch.cat(list(ids)) if self.pack_tokens else pad_sequence(list(ids), batch_first=True).flatten(0, 1)
        further = further.to(self.device)
        own = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
        last = log_probs.shape[1] - 1
        found = log_probs.gather(1, further.clamp(max=last)).masked_fill(further > last, NO_PROBABILITY)
        return self._rows(own, part), self._rows(found, part)

    def _logits(self, model: Any, part: Sequence[Trajectory]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scaled logits of N response tokens, float32 (N, vocabulary), and the tokens, int64 (N,).

        They are the rollouts' one after the other; unless they are packed, each with its padding.
        """
        if self.pack_tokens:
            logits, targets = packed_logits(model, part, device=self.device)
        else:
            logits, targets = padded_logits(model, token_batch(part, pad_id=self.pad_id, device=self.device))
        return logits.float() / self.temperature, targets

    def _rows(self, values: torch.Tensor, part: Sequence[Trajectory]) -> torch.Tensor:
        """Return the values of N response tokens, (N, ...), by rollout, (B, R, ...)."""
        if self.pack_tokens:
            return pad_sequence(values.split([len(rollout.response_ids) for rollout in part]), batch_first=True)
        return values.unflatten(0, (len(part), -1))

    def blank(self) -> Trajectory:
        """Return the shortest possible rollout, for a pass that is only made because other ranks make one."""
        return Trajectory(group=0, member=0, prompt_ids=[self.pad_id], response_ids=[self.pad_id], ended=True)


def compute_log_probs(model: Any, rollouts: Sequence[Trajectory], *, forward: Forward) -> list[torch.Tensor]:
    """Return each rollout's log-probabilities under an unsharded model: float32 (response tokens,), in their order."""
    found: dict[int, torch.Tensor] = {}
    for part in forward.parts(rollouts):
        with torch.no_grad():
            rows = forward.log_probs(model, [rollouts[at] for at in part])
        found |= {at: row[: len(rollouts[at].response_ids)] for at, row in zip(part, rows, strict=True)}
    return [found[at] for at in range(len(rollouts))]


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """Padded rollouts: P columns of left-padded prompt, R columns of right-padded response.

    Attributes:
        input_ids: int64 (B, P + R).
        attention_mask: int64 (B, P + R), 1 at tokens and 0 at padding.
        position_ids: int64 (B, P + R), counted from each prompt's first token.
        response_mask: bool (B, R), True at response tokens.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor
    response_mask: torch.Tensor


def token_batch(rollouts: Sequence[Trajectory], *, pad_id: int, device: torch.device) -> TokenBatch:
    """Return the rollouts padded so that all responses start in the same column."""
    prompt_width = max(len(rollout.prompt_ids) for rollout in rollouts)
    response_width = max(len(rollout.response_ids) for rollout in rollouts)
    ids = torch.full((len(rollouts), prompt_width + response_width), pad_id, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, rollout in enumerate(rollouts):
        first, last = prompt_width - len(rollout.prompt_ids), prompt_width + len(rollout.response_ids)
        ids[row, first:last] = torch.tensor([*rollout.prompt_ids, *rollout.response_ids])
        mask[row, first:last] = 1
    return TokenBatch(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0).to(device),
        response_mask=mask[:, prompt_width:].bool().to(device),
    )


def padded_logits(model: Any, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of each response token, (B * R, vocabulary), and the tokens, int64 (B * R,)."""
    width = batch.response_mask.shape[1]
    logits = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        use_cache=False,
        # The logits of a position are about the next token: those of the response start one column before it.
        logits_to_keep=width + 1,
    ).logits[:, :-1]
    return logits.flatten(0, 1), batch.input_ids[:, -width:].flatten()


def behaviour_log_probs(rollout: Trajectory) -> torch.Tensor:
    """Return the log-probabilities that a rollout was sampled with, float32 (response tokens,).

    Raises:
        ValueError: Its engine did not return them.
    """
    if rollout.log_probs is None:
        raise ValueError("the engine returned a rollout without log-probabilities; the loss needs them")
    return torch.tensor(rollout.log_probs, dtype=torch.float32)
