"""What becomes of an episode: one total for the trainer, and beside it everything the total was made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewardpool.errors import SampleError


@dataclass(frozen=True, kw_only=True)
class Rating:
    """How good one episode is.

    Attributes:
        total: The reward; None where it is explicitly unscored, so that no number stands for "unknown".
        components: Raw score of every part of the reward by the part's name, before clip, whitening and weight. Every
            rating of one reward has the same names, in the same order; None where the part has no score, or was not
            asked because a gate had closed.
        info: By a part's name, what it said beside its score: a judge's words and votes, the further keys of a reward
            function's dict. Values can be written as JSON.
        error: Why a part has no score, under the policies `skip` and `{constant: x}`; the first one of several.
    """

    total: float | None
    components: Mapping[str, float | None]
    info: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    error: SampleError | None = None
