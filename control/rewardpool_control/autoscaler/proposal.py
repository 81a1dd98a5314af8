"""Number of replicas that a policy proposes."""

import math
from dataclasses import dataclass
from typing import Final, Self

MOST: Final = 1e9


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A number of replicas with its reason."""

    exact: float
    """Replicas, before rounding up; the tolerance goes by this."""
    reason: str

    @classmethod
    def whole(cls, replicas: int, reason: str) -> Self:
        """Return a proposal of so many, without a fraction."""
        return cls(exact=float(replicas), reason=reason)

    @property
    def replicas(self) -> int:
        """Rounded up. What differs from a whole number by rounding errors alone is that number."""
        return math.ceil(min(self.exact - 1e-9, MOST))
