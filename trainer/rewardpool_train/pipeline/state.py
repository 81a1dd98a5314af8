"""State of a pipeline, for a checkpoint: with the learner's weights of the same moment, a job resumes from it.

Every group that has begun is in exactly one of four states: trained on; dropped, because it had no gradient and another
group replaced it; outstanding, with its rollouts and known scores; or to be rolled out again, because not all of its
rollouts had ended. A known score is requested again only if its group turns out to be scored by two revisions of a
pool. Scores of a group that is judged as a whole become known together: a checkpoint has all of them or none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Self

from rewardpool_train.pipeline.parts import R
from rewardpool_train.pipeline.schedule import Plan, ScheduleName


@dataclass(frozen=True, kw_only=True)
class GroupState(Generic[R]):
    """A group whose rollouts have all ended.

    Attributes:
        version: Version of the policy when the group began.
        rollouts: One per member.
        scores: Known scores, by member; None for a rollout that is explicitly unscored.
    """

    index: int
    step: int
    version: int
    rollouts: Sequence[R]
    scores: Mapping[int, float | None]


@dataclass(frozen=True, kw_only=True)
class PipelineState(Generic[R]):
    """Progress of a job, and its outstanding groups.

    Attributes:
        plan: A resumed job may have more steps.
        trained: Mini-batches trained on, which is the policy's version.
        begun: Groups begun, that is the indices below this one.
        groups: Outstanding groups; complete groups first, in the order in which they became complete.
        again: Steps of the groups to roll out again, by index.
        dropped: Groups that were replaced and never trained on.
        rounds: Rounds of dynamic sampling in the current step.
    """

    schedule: ScheduleName
    plan: Plan
    trained: int
    begun: int
    groups: Sequence[GroupState[R]]
    again: Mapping[int, int]
    dropped: int = 0
    rounds: int = 0

    def check(self, schedule: ScheduleName, plan: Plan) -> None:
        """Check that a job can resume from this state.

        Raises:
            ValueError: The job has another schedule or other sizes, or the state is inconsistent.
        """
        for name, then, now in [("schedule", self.schedule, schedule), *_sizes(self.plan, plan)]:
            if then != now:
                raise ValueError(f"the checkpoint was made with {name} {then}, and this job has {now}")
        if self.trained > plan.steps * plan.minibatches_per_step:
            raise ValueError(f"the checkpoint has {self.trained} mini-batches trained, more than this job's steps have")
        trained = self.trained * plan.groups_per_minibatch
        accounted = trained + self.dropped + len(self.groups) + len(self.again)
        if accounted != self.begun:
            raise ValueError(f"the checkpoint accounts for {accounted} groups of the {self.begun} that were begun")

    def to_json(self, encode: Callable[[R], Any]) -> dict[str, Any]:
        """Return the state as JSON values; `encode` does so for a rollout."""
        groups = [
            {
                "index": group.index,
                "step": group.step,
                "version": group.version,
                "rollouts": [encode(rollout) for rollout in group.rollouts],
                "scores": [[member, score] for member, score in group.scores.items()],
            }
            for group in self.groups
        ]
        return {
            "schedule": self.schedule,
            "plan": asdict(self.plan),
            "trained": self.trained,
            "begun": self.begun,
            "groups": groups,
            "again": [[index, step] for index, step in self.again.items()],
            "dropped": self.dropped,
            "rounds": self.rounds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], decode: Callable[[Any], R]) -> Self:
        """Return the state that `to_json` wrote; `decode` reverses its `encode`.

        Raises:
            KeyError: A field is missing.
        """
        groups = [
            GroupState(
                index=group["index"],
                step=group["step"],
                version=group["version"],
                rollouts=[decode(rollout) for rollout in group["rollouts"]],
                scores={member: score for member, score in group["scores"]},  # noqa: C416 - JSON has lists of two
            )
            for group in data["groups"]
        ]
        return cls(
            schedule=data["schedule"],
            plan=Plan(**data["plan"]),
            trained=data["trained"],
            begun=data["begun"],
            groups=groups,
            again=dict(data["again"]),
            dropped=data["dropped"],
            rounds=data["rounds"],
        )


def _sizes(then: Plan, now: Plan) -> list[tuple[str, int, int]]:
    names = ("groups_per_step", "groups_per_minibatch", "group_size")
    return [(name, getattr(then, name), getattr(now, name)) for name in names]
