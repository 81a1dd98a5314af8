"""The section `distillation` of a training job's config."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from rewardpool._config import FaultPolicies, Penalty, RewardConfig, pool_fields
from rewardpool._mistakes import Mistakes
from rewardpool.errors import ConfigError
from rewardpool_api.teacher_wire import MOST_TOP_K
from rewardpool_train.config_part import ConfigPart, Positive

PATH = "distillation"


class DistillationConfig(ConfigPart):
    """On-policy distillation: the reverse divergence from the policy to a teacher, alone or beside a reward."""

    teacher: str | dict[str, Any] | None = None
    """Pool of type Teacher: its `namespace/name`, its URL, or the fields of a reward with one pool, such as
    `{pool: rl/teacher, on_failure: skip}`."""
    by_data_source: dict[str, str | dict[str, Any]] = {}
    """Teachers of the prompts with these `data_source`s, instead of `teacher`."""
    weight: Positive = 1.0
    """Weight of the divergence, beside advantages of standard deviation 1."""
    top_k: Annotated[int, Field(ge=0, le=MOST_TOP_K)] = 0
    """Tokens at each position over which the divergence is computed exactly, those that the teacher finds most likely,
    with all others as one more. 0 estimates it at the sampled token alone."""

    @property
    def advantage_weight(self) -> float:
        """Weight of log pi_teacher - log pi in tokens' advantages; 0 if the loss has the divergence."""
        return 0.0 if self.top_k else self.weight

    @property
    def loss_weight(self) -> float:
        """Weight of the divergence over the teacher's likeliest tokens in the loss; 0 if advantages have it."""
        return self.weight if self.top_k else 0.0

    def pools(self) -> Mapping[str | None, RewardConfig]:
        """Return the teachers' pools by `data_source`, None for all others.

        Raises:
            ConfigError: There is no teacher, or pools are invalid; it names all of them.
        """
        mistakes = Mistakes()
        pools: dict[str | None, RewardConfig] = {}
        given: dict[str | None, Any] = {} if self.teacher is None else {None: self.teacher}
        given |= self.by_data_source.items()
        for source, teacher in given.items():
            path = f"{PATH}.teacher" if source is None else f"{PATH}.by_data_source.{source}"
            with mistakes.gather():
                fields = pool_fields(teacher) if isinstance(teacher, str) else teacher
                pools[source] = _without_penalty(RewardConfig.parse(fields, path=path), path)
        if not given:
            mistakes.add(f"{PATH}.teacher", "is missing: name a pool of type Teacher, such as rl/teacher")
        mistakes.check()
        return pools


def _without_penalty(pool: RewardConfig, path: str) -> RewardConfig:
    policy = pool.on_failure
    if isinstance(policy, FaultPolicies) and isinstance(policy.policy, Penalty):
        raise ConfigError(f"{path}.on_failure.policy", "must be raise or skip: no number stands for log-probabilities")
    return pool
