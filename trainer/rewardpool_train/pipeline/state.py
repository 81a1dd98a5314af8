"""What a pipeline has outstanding, for a checkpoint: with the learner's weights of the same moment, a job goes on as if
nothing had happened.

Every group that was begun is in exactly one of four places: trained on; dropped, because it taught nothing and another
was begun in its place; outstanding, with its rollouts and the scores that are known; or to be rolled out again, because
not all of its rollouts had ended. A score that is known is asked for again only where its group turns out to be scored
by two revisions of a pool. Those of a group that is judged as a whole are known together: a checkpoint has all of them
or none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Self

from rewardpool_train.pipeline.parts import R
from rewardpool_train.pipeline.schedule import Plan, ScheduleName


@dataclass(frozen=True, kw_only=True)
class GroupState(Generic[R]):
    """A group whose rollouts are all there.

    Attributes:
        index: Its number.
        step: That it was begun for.
        version: Of the policy when it was begun.
        rollouts: One per member.
        scores: By member, those that are known; None for a rollout that has explicitly none.
    """

    index: int
    step: int
    version: int
    rollouts: Sequence[R]
    scores: Mapping[int, float | None]


@dataclass(frozen=True, kw_only=True)
class PipelineState(Generic[R]):
    """Where a job is.

    Attributes:
        schedule: That it runs by.
        plan: That it follows; a resumed job may have more steps.
        trained: Mini-batches trained on, which is the policy's version.
        begun: Groups begun; the indices below it.
        groups: Outstanding ones; the complete ones first, in the order in which they became so.
        again: Groups that are to be rolled out again: their steps, by their indices.
        dropped: Groups that were replaced and never trained on.
        rounds: Of dynamic sampling, in the step that is being trained.
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
        """See to it that a job can go on from here.

        Raises:
            ValueError: The job has another schedule or other sizes, or the state contradicts itself.
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
        """Return it as what JSON can express, if `encode` returns such for a rollout."""
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
        """Return what `to_json` made; `decode` undoes its `encode`.

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
