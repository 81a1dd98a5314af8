"""A teacher's answer about a response, as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class TeacherRows:
    """A teacher's log-probabilities at the R tokens of a response.

    Attributes:
        log_probs: Those of the tokens themselves, float32 (R,).
        top_ids: The teacher's most likely tokens, int64 (R, k); k is 0 without `top_k`.
        top_log_probs: Their log-probabilities, float32 (R, k).
    """

    log_probs: torch.Tensor
    top_ids: torch.Tensor
    top_log_probs: torch.Tensor

    def to_json(self) -> list[Any]:
        return [self.log_probs.tolist(), self.top_ids.tolist(), self.top_log_probs.tolist()]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "TeacherRows":
        log_probs, top_ids, top_log_probs = data
        return cls(
            torch.tensor(log_probs, dtype=torch.float32),
            torch.tensor(top_ids, dtype=torch.int64),
            torch.tensor(top_log_probs, dtype=torch.float32),
        )


def blank_rows(rows: int, top_k: int) -> TeacherRows:
    """Return an answer that only has the right shapes."""
    return TeacherRows(torch.zeros(rows), torch.zeros(rows, top_k, dtype=torch.int64), torch.zeros(rows, top_k))
