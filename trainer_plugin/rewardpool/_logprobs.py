"""A teacher's answer for one sequence."""

from array import array
from dataclasses import dataclass, field
from typing import Any

from rewardpool_api.teacher_wire import SequenceQuestion, Values


@dataclass(frozen=True)
class Logprobs:
    """Log-probabilities of a sequence's tokens, in a row for each position; never with a gap.

    Row r belongs to the token at position `start + r`, given all tokens before it; there are n - start rows for n
    tokens. Token 0 has no log-probability, so `start` is at least 1.

    Arrays are memoryviews with a shape: `numpy.asarray(logprobs.logprobs)` makes a NumPy array of one without a copy,
    and `torch.from_numpy` of that a tensor. One that was not requested is None.

    Attributes:
        start: Position of the first row.
        revision: Of the pool's workers that answered; None where the server names none.
        flat: The numbers as the wire has them, row by row.
    """

    start: int
    revision: str | None
    _asked: SequenceQuestion = field(repr=False)
    flat: Values = field(repr=False)

    def __len__(self) -> int:
        return self._asked.rows

    @property
    def token_ids(self) -> memoryview:
        """Tokens that the rows belong to, as they were sent; int32, shape (rows,)."""
        return memoryview(self.flat.token_ids)

    @property
    def logprobs(self) -> memoryview:
        """Their log-probabilities; float32, shape (rows,)."""
        return memoryview(self.flat.logprobs)

    @property
    def top_ids(self) -> memoryview | None:
        """Most likely tokens at each position, the likeliest first; int32, shape (rows, top_k)."""
        return _shaped(self.flat.top_ids, self._asked.rows, self._asked.top_k)

    @property
    def top_logprobs(self) -> memoryview | None:
        """Log-probabilities of those; float32, shape (rows, top_k)."""
        return _shaped(self.flat.top_logprobs, self._asked.rows, self._asked.top_k)

    @property
    def ids_logprobs(self) -> memoryview | None:
        """Log-probabilities of the requested `ids`; float32, shape (rows, m)."""
        return _shaped(self.flat.ids_logprobs, self._asked.rows, self._asked.ids_per_row)


def _shaped(values: "array[Any]", rows: int, columns: int) -> memoryview | None:
    """A view of a table; None where it has no columns."""
    code: Any = values.typecode
    return memoryview(values).cast("B").cast(code, (rows, columns)) if columns else None
