"""Result for an episode: one total for the trainer, and all that it was made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewardpool.errors import SampleError


@dataclass(frozen=True, kw_only=True)
class StepReward:
    """The reward of one step of a response.

    Attributes:
        value: What a process reward model says of it, clipped and weighted; finite.
        end: Where it ends, in characters of `Episode.response`; the last step ends where the response does.
    """

    value: float
    end: int


@dataclass(frozen=True, kw_only=True)
class Rating:
    """Reward of one episode.

    Attributes:
        total: The reward; None where it is explicitly unscored, so that no number stands for "unknown".
        components: Raw score of every part of the reward by the part's name, before clip, normalization and weight.
            Every rating of one reward has the same names, in the same order; None where the part has no score, or was
            not asked because a gate had closed.
        info: By a part's name, what it said beside its score: a judge's words and votes, the further keys of a reward
            function's dict. Values can be written as JSON.
        revisions: By the name of each pool that was asked, the revisions of its workers that answered, in the order of
            their names: one, unless `one_revision` is off. Pools that do not say it are not among them.
        steps: With `supervision: process`, the rewards of the response's steps in their order, of which `total` is the
            aggregate that the pool declares; a penalty is one step. None where the total is
            None, and with any other reward.
        error: Why a part has no score, under `skip` or with a penalty; the first one of several. It has the `fault`.
    """

    total: float | None
    components: Mapping[str, float | None]
    info: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    revisions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    steps: tuple[StepReward, ...] | None = None
    error: SampleError | None = None
