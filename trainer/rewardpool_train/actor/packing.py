"""Sequence packing: rollouts one after the other in a single row, without padding.

    tokens      p p p r r | p p r r r r | p r
    positions   0 1 2 3 4 | 0 1 2 3 4 5 | 0 1

Positions restart with each rollout. Without an attention mask, transformers derives the boundaries from the position
ids, and no token attends across one: with a block-diagonal mask for SDPA, a block mask for flex attention, and by
sequence lengths in FlashAttention's variable-length kernels, which skip masked work. Models whose layers carry a state
along the row (Mamba and similar ones) cannot be packed this way.
"""

from collections.abc import Sequence
from typing import Any

import torch

from rewardpool_train.actor.data import Trajectory


def pack_rows(lengths: Sequence[int], *, budget: int) -> list[list[int]]:
    """Return the sequences that share each row, as indices into `lengths`.

    First fit, the longest first, which needs at most 11/9 of the fewest rows plus one (Johnson 1973). A sequence longer
    than the budget has a row of its own.

    Args:
        lengths: Tokens of each sequence, prompt and response.
        budget: Maximum number of tokens in a row of several sequences.
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for at in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
        row = next((row for row, left in enumerate(free) if left >= lengths[at]), None)
        if row is None:
            row = len(rows)
            rows.append([])
            free.append(budget)
        rows[row].append(at)
        free[row] -= lengths[at]
    return rows


def packed_logits(
    model: Any, rollouts: Sequence[Trajectory], *, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of all N response tokens, (N, vocabulary), and the tokens, int64 (N,)."""
    ids: list[int] = []
    positions: list[int] = []
    asked: list[int] = []
    for rollout in rollouts:
        start, prompt, response = len(ids), len(rollout.prompt_ids), len(rollout.response_ids)
        ids += [*rollout.prompt_ids, *rollout.response_ids]
        positions += range(prompt + response)
        # The logits of a position are about the next token: those of the response start one before it.
        asked += range(start + prompt - 1, start + prompt + response - 1)
    row = torch.tensor(ids, device=device)
    columns = torch.tensor(asked, device=device)
    logits = model(
        input_ids=row.unsqueeze(0),
        attention_mask=None,
        position_ids=torch.tensor([positions], device=device),
        use_cache=False,
        logits_to_keep=columns,
    ).logits[0]
    return logits, row[columns + 1]
