"""What was done for one sample so far."""

import itertools
import os
import uuid
from dataclasses import dataclass, field

from rewardpool.deadline import already_waited

_IMPORT = uuid.uuid4().hex
_EFFORTS = itertools.count(1)
"""With the process, which may have been forked, they name a sample; a random number for each would cost more."""


@dataclass(slots=True, eq=False)
class Effort:
    """Counts of one sample, over all its requests; `label` names it in messages."""

    label: str
    request_id: str = field(default_factory=lambda: f"{_IMPORT}-{os.getpid()}-{next(_EFFORTS)}")
    seconds: float = field(default_factory=already_waited)
    """From when its first attempt was due to its end; before that, what it has used up of its deadline."""
    attempts: int = 0
    setbacks: int = 0
    overtaken: int = 0
    """Those of them since which, or while which, the pool answered another sample."""
    failures: float = 0.0
    """Setbacks at a worker, the only ones that are bounded by number; see `FAILURES` in `retry`."""
    kind: str = ""
    """Of the last setback."""
    problem: str = ""
    """The last setback, in words."""
    refused_keys: frozenset[str | None] = field(default=frozenset(), repr=False)
    """Keys that were refused since all of them were tried last."""
