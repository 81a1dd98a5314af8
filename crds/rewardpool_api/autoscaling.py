"""Autoscaling of a pool: bounds, policies, and the speed at which it may grow and shrink.

Several policies may be given; the largest number that one of them wants counts. What the policies make of load and
demand is in `rewardpool_control.autoscaler`, one module each; docs/autoscaling.md tells when to take which.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rewardpool_api.quantities import Seconds, ShortText
from rewardpool_api.rules import ApiModel, Rule

PolicyType = Literal["QueueDepth", "DrainTime", "Demand", "External"]
Replicas = Annotated[int, Field(ge=1, le=10_000)]
Rate = Annotated[float, Field(ge=0.001, le=1_000_000)]


class QueueDepthPolicy(ApiModel):
    """As many replicas as hold the requests at the target."""

    target_per_replica: Annotated[int, Field(ge=1, le=1_000_000)]
    """Requests in flight or waiting that one replica should have."""
    target_tokens_per_replica: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Tokens in flight or waiting that one replica should have. Replaces targetPerReplica when the jobs announce the length of their samples. Default: only requests count."""


class DrainTimePolicy(ApiModel):
    """As many replicas as answer the requests that are there within a time, at the rate that one replica was measured to have."""

    target_seconds: Annotated[int, Field(ge=1, le=3600)]
    """Seconds within which all requests in flight or waiting should be answered."""


class DemandPolicy(ApiModel):
    """As many replicas as the bursts take that trainers announce, started in time for each; see docs/autoscaling.md."""

    drain_seconds: Annotated[int, Field(ge=1, le=3600)] = 5
    """Seconds after a burst's last sample within which the whole burst should be scored."""
    learn: bool = True
    """Learn from earlier bursts: size a job's burst for at least the peak of its last ones, and if no trainer announces any, expect bursts at the interval that the load has shown."""


class PolicySpec(ApiModel):
    """One way of choosing the number of replicas."""

    type: PolicyType = "QueueDepth"
    """QueueDepth: requests at the routers over a target per replica. DrainTime: as many as answer those requests in time, at the measured rate. Demand: what trainers announce, ahead of it. External: spec.replicas, written by HPA, KEDA or kubectl scale."""
    queue_depth: QueueDepthPolicy | None = None
    """Settings of the policy QueueDepth; required when that is the type."""
    drain_time: DrainTimePolicy | None = None
    """Settings of the policy DrainTime; required when that is the type."""
    demand: DemandPolicy | None = None
    """Settings of the policy Demand; required when that is the type, and {} takes the defaults."""

    @property
    def uses_service_rate(self) -> bool:
        """True if it uses the measured rate of a replica."""
        return self.type in ("DrainTime", "Demand")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.type != 'QueueDepth' || has(self.queueDepth)",
            message="spec.autoscaling.policy.queueDepth is required when spec.autoscaling.policy.type is QueueDepth, such as {targetPerReplica: 32}",
            holds=lambda policy: policy.type != "QueueDepth" or policy.queue_depth is not None,
        ),
        Rule(
            cel="self.type != 'DrainTime' || has(self.drainTime)",
            message="spec.autoscaling.policy.drainTime is required when spec.autoscaling.policy.type is DrainTime, such as {targetSeconds: 10}",
            holds=lambda policy: policy.type != "DrainTime" or policy.drain_time is not None,
        ),
        Rule(
            cel="self.type != 'Demand' || has(self.demand)",
            message="spec.autoscaling.policy.demand is required when spec.autoscaling.policy.type is Demand; {} takes its defaults",
            holds=lambda policy: policy.type != "Demand" or policy.demand is not None,
        ),
        Rule(
            cel="(self.type == 'QueueDepth' || !has(self.queueDepth)) && (self.type == 'DrainTime' || !has(self.drainTime)) && (self.type == 'Demand' || !has(self.demand))",
            message="spec.autoscaling.policy has settings of another type than its own, which would do nothing; to combine policies, list them in spec.autoscaling.policies",
            holds=lambda policy: (
                (policy.type == "QueueDepth" or policy.queue_depth is None)
                and (policy.type == "DrainTime" or policy.drain_time is None)
                and (policy.type == "Demand" or policy.demand is None)
            ),
        ),
    )


class ServiceRateSpec(ApiModel):
    """Service rate of one replica, for the policies that use it."""

    initial_per_replica: Rate | None = None
    """Requests per second that one replica is assumed to answer until the rate is measured. Default: the first burst measures it; until then DrainTime adds one replica at a time, and Demand starts as many as it may."""
    quantile: Annotated[float, Field(ge=0.05, le=0.95)] = 0.5
    """Quantile of the measured rates that is used. 0.5 is the median, which single long samples do not change; a lower value is more conservative."""


class StepSpec(ApiModel):
    """Most replicas that are added, or taken away, within a period; with both given, the larger one counts."""

    replicas: Replicas | None = None
    """Number of replicas that may be added or taken away within a period."""
    percent: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Share of the size at the beginning of the period, in percent and rounded up, that may be added or taken away within it."""
    period_seconds: Annotated[int, Field(ge=1, le=3600)] = 15
    """Length of the period, in seconds, to which the other two fields apply."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.replicas) || has(self.percent)",
            message="spec.autoscaling.scaleUp.step and scaleDown.step need replicas, percent or both",
            holds=lambda step: step.replicas is not None or step.percent is not None,
        ),
    )


class ScaleUpSpec(ApiModel):
    """Speed at which the pool grows."""

    step: StepSpec | None = None
    """Limits how much the pool grows in a period. Default: it grows at once to the wanted size."""


class ScaleDownSpec(ApiModel):
    """Caution with which the pool shrinks."""

    stabilization_window_seconds: Seconds = 120
    """Shrink only to the largest size that was recommended within this window. Between two bursts the window is skipped if every running job has announced when its next one begins."""
    step: StepSpec | None = None
    """Limits how much the pool shrinks in a period. Default: it shrinks at once to the wanted size."""


class BudgetSpec(ApiModel):
    """Replicas that several pools of a namespace share. Every pool of the budget names it, and gives the same number."""

    name: ShortText
    """The budget's name; pools of the namespace with the same name share it."""
    max_replicas: Replicas
    """Maximum number of replicas of all its pools together. If pools differ, the smallest number applies, and a condition says so."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Order of the pools when there are not enough replicas for all: pools that a trainer waits for come first, then those with the higher priority. Among equals, each keeps its replicas."""


class AutoscalingSpec(ApiModel):
    """Bounds and policies of the number of replicas."""

    min_replicas: Annotated[int, Field(ge=0, le=10_000)] = 1
    """Minimum number of replicas while there is work, or was recently. 0 lets the pool scale to zero after cooldownSeconds."""
    max_replicas: Replicas
    """Maximum number of replicas that the autoscaler may request."""
    policy: PolicySpec | None = None
    """Single policy that chooses the number of replicas; set either this or `policies`."""
    policies: Annotated[list[PolicySpec], Field(min_length=1, max_length=3)] | None = None
    """Several policies, each type at most once. The largest recommendation is used."""
    service_rate: ServiceRateSpec = ServiceRateSpec()
    """Throughput of one replica, for the policies DrainTime and Demand."""
    tolerance_percent: Annotated[int, Field(ge=0, le=90)] = 10
    """Keep the size while the recommendation differs from it by no more than this percentage."""
    scale_up: ScaleUpSpec = ScaleUpSpec()
    """Limits on how quickly the pool grows."""
    scale_down: ScaleDownSpec = ScaleDownSpec()
    """Limits on how quickly the pool shrinks."""
    cooldown_seconds: Seconds = 600
    """Seconds without a request after which a pool with minReplicas 0 scales to zero."""
    parked: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Number of replicas beyond the wanted ones, up to maxReplicas, that are started but kept out of the routers' lists, so that scaling up needs no start. They use memory. Not for replicas with GPUs, nor together with a budget."""
    budget: BudgetSpec | None = None
    """Share replicas with other pools of the namespace. On Kubernetes; one machine warns."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            message="spec.autoscaling.minReplicas must not be greater than spec.autoscaling.maxReplicas",
            holds=lambda scaling: scaling.min_replicas <= scaling.max_replicas,
        ),
        Rule(
            cel="has(self.policy) != has(self.policies)",
            message="spec.autoscaling needs either policy, such as {queueDepth: {targetPerReplica: 32}}, or policies to combine several, and not both",
            holds=lambda scaling: (scaling.policy is None) != (scaling.policies is None),
        ),
        Rule(
            cel="!has(self.policies) || self.policies.all(one, self.policies.exists_one(other, other.type == one.type))",
            message="spec.autoscaling.policies must have each type once",
            holds=lambda scaling: len({policy.type for policy in scaling.combined}) == len(scaling.combined),
        ),
        Rule(
            cel="!has(self.policies) || !self.policies.exists(one, one.type == 'External')",
            message="spec.autoscaling.policies must not have External, which cannot be combined; give it as spec.autoscaling.policy",
            holds=lambda scaling: not any(policy.type == "External" for policy in scaling.policies or ()),
        ),
        Rule(
            cel="!has(self.budget) || self.parked == 0",
            message="spec.autoscaling.parked must not be set beside spec.autoscaling.budget: a parked replica would be nobody's share",
            holds=lambda scaling: scaling.budget is None or not scaling.parked,
        ),
        Rule(
            cel="self.parked <= self.maxReplicas",
            message="spec.autoscaling.parked must not be greater than spec.autoscaling.maxReplicas",
            holds=lambda scaling: scaling.parked <= scaling.max_replicas,
        ),
        Rule(
            cel="!has(self.budget) || self.minReplicas <= self.budget.maxReplicas",
            message="spec.autoscaling.minReplicas must not be greater than spec.autoscaling.budget.maxReplicas",
            holds=lambda scaling: scaling.budget is None or scaling.min_replicas <= scaling.budget.max_replicas,
        ),
    )

    @property
    def combined(self) -> tuple[PolicySpec, ...]:
        """The policies, however they were given."""
        return (self.policy,) if self.policy is not None else tuple(self.policies or ())

    @property
    def is_external(self) -> bool:
        """True if another controller or a person writes spec.replicas."""
        return self.policy is not None and self.policy.type == "External"

    @property
    def named(self) -> str:
        """The policies in words, such as `policy QueueDepth` or `policies QueueDepth and Demand`."""
        types = [policy.type for policy in self.combined]
        return f"policy {types[0]}" if len(types) == 1 else f"policies {', '.join(types[:-1])} and {types[-1]}"
