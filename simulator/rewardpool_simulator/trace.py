"""What a trace is: a pool, the jobs that use it, and what goes wrong meanwhile.

Not a list of requests. A trainer that waits for scores asks later for the next ones, so a trace says how jobs behave,
and the simulator lets them live with the fleet (`trainers.py`). A recorded trace is the exception: it says when
requests came, and nothing follows from a late score.

Traces are YAML or JSON with camelCase names, as manifests are; those that come with the package are in `traces/`.
"""

import math
from collections.abc import Iterator
from random import Random
from typing import Annotated, ClassVar, Final, Literal

import yaml
from pydantic import Field, ValidationError

from rewardpool_api.demand import JOB_PATTERN, MAX_JOB_NAME, MAX_SECONDS, Demand
from rewardpool_api.documents import yaml_problem
from rewardpool_api.rules import ApiModel, Rule

MAX_SAMPLES: Final = 100_000
"""Of one burst: each of them is an event or two."""
Time = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Length = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Samples = Annotated[int, Field(ge=1, le=MAX_SAMPLES)]


class TraceError(ValueError):
    """The text says what is wrong with a trace, a line per field."""


class Duration(ApiModel):
    """How long something takes, by chance or always the same."""

    type: Literal["Constant", "Uniform", "Lognormal", "Pareto"] = "Constant"
    """Uniform: between `seconds` and `mostSeconds`. Lognormal: `seconds` is the median, `shape` sigma. Pareto:
    `seconds` is the least, `shape` alpha, of which less means a longer tail."""
    seconds: Length
    """What it takes, or see `type`."""
    most_seconds: Length | None = None
    """No more than this: an answer is cut at its length limit."""
    shape: Annotated[float, Field(gt=0, le=10)] | None = None
    """Sigma, or alpha."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.type != 'Uniform' || has(self.mostSeconds)",
            message="a duration of type Uniform needs mostSeconds",
            holds=lambda duration: duration.type != "Uniform" or duration.most_seconds is not None,
        ),
        Rule(
            cel="!(self.type in ['Lognormal', 'Pareto']) || has(self.shape)",
            message="a duration of type Lognormal or Pareto needs shape",
            holds=lambda duration: duration.type not in ("Lognormal", "Pareto") or duration.shape is not None,
        ),
        Rule(
            cel="!has(self.mostSeconds) || self.seconds <= self.mostSeconds",
            message="a duration's seconds must not be greater than its mostSeconds",
            holds=lambda duration: duration.seconds <= (duration.most_seconds or math.inf),
        ),
    )

    def draw(self, chance: Random) -> float:
        """Seconds, by chance."""
        most = self.most_seconds or math.inf
        match self.type:
            case "Constant":
                return self.seconds
            case "Uniform":
                return chance.uniform(self.seconds, most)
            case "Lognormal":
                return min(most, self.seconds * chance.lognormvariate(0.0, self.shape or 0.0))
            case "Pareto":
                return min(most, self.seconds * chance.paretovariate(self.shape or 1.0))


class FleetSpec(ApiModel):
    """What a replica is, and how many there may be."""

    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Most replicas of any policy."""
    start_seconds: Duration
    """From a replica's making to its first request."""
    service_seconds: Duration
    """What one sample takes at a replica that works on it."""
    concurrency: Annotated[int, Field(ge=1, le=4096)]
    """Samples that a replica works on at once, each as fast as if it were alone."""
    queue: Annotated[int, Field(ge=0, le=65_536)] | None = None
    """Samples that the router gives a replica beyond those. Default: as many as `concurrency`. What does not fit
    anywhere the router holds."""

    @property
    def room(self) -> int:
        """Samples that a replica takes."""
        return self.concurrency + (self.concurrency if self.queue is None else self.queue)


class PolicyFigures(ApiModel):
    """What whoever sets up the pool would tell any autoscaler."""

    target_per_replica: Annotated[int, Field(ge=1, le=65_536)]
    """Requests in flight or waiting per replica."""
    drain_seconds: Annotated[int, Field(ge=1, le=3600)] = 5
    """For policies DrainTime and Demand."""
    cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600
    """For those of our policies that go to zero only after a while."""


class JobSpec(ApiModel):
    """One training job."""

    name: Annotated[str, Field(max_length=MAX_JOB_NAME, pattern=JOB_PATTERN)]
    starts_at_seconds: Time = 0.0
    load_seconds: Time = 0.0
    """Until the first rollout: model loading, compilation."""
    mode: Literal["Synchronous", "OneStepOff", "FullyAsync"] = "Synchronous"
    """Synchronous: rollout, scores, update, one after the other. OneStepOff: the next rollout runs while this one is
    scored and trained on. FullyAsync: rollouts run up to `staleness` updates ahead, and an update takes the first
    `samples` that are scored."""
    staleness: Annotated[int, Field(ge=1, le=64)] = 2
    """Of mode FullyAsync alone."""
    steps: Annotated[int, Field(ge=1, le=100_000)]
    samples: Samples
    """Per step."""
    rollout_seconds: Duration
    """From the beginning of a rollout to its last sample."""
    arrivals: Literal["AtOnce", "Spread", "LongTailed"]
    """When a rollout's samples come. AtOnce: all at its end. Spread: evenly. LongTailed: most early, few late, the
    last at its end."""
    update_seconds: Duration
    """What an update takes, with whatever comes before the next rollout can begin."""
    callers: Samples | None = None
    """Samples that the trainer has asked for and not got at any time, at most. Default: no limit."""
    announces: bool = True
    """Whether it announces its demand."""
    dies_after_steps: Annotated[int, Field(ge=0)] | None = None
    """It is killed in the rollout after that step, with no word to anybody. Default: it ends as planned."""

    @property
    def ahead(self) -> int:
        """Rollouts that may begin before the updates on earlier ones are done."""
        return {"Synchronous": 0, "OneStepOff": 1, "FullyAsync": self.staleness}[self.mode]


class Arrivals(ApiModel):
    """Requests that come whatever the fleet does, as a recording has them."""

    at_seconds: Time
    samples: Samples
    over_seconds: Time = 0.0
    """Spread evenly over this."""


class RecordedDemand(ApiModel):
    """A demand that a job announced while a trace was recorded."""

    at_seconds: Time
    demand: Demand


class Loss(ApiModel):
    """Replicas that vanish with what they work on, which is asked for again elsewhere."""

    at_seconds: Time
    share: Annotated[float, Field(gt=0, le=1)]
    """Of the replicas that there are, rounded up."""


class Span(ApiModel):
    """A while."""

    from_seconds: Time
    until_seconds: Time

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.fromSeconds < self.untilSeconds",
            message="fromSeconds must be less than untilSeconds",
            holds=lambda span: span.from_seconds < span.until_seconds,
        ),
    )


class Shortage(Span):
    """A while in which the cluster has no room for more."""

    replicas: Annotated[int, Field(ge=0)]
    """No more than these fit; those that are there stay."""


class Faults(ApiModel):
    """What goes wrong."""

    losses: list[Loss] = []
    shortages: list[Shortage] = []
    blind: list[Span] = []
    """Times in which the routers' metrics are missing."""


class Trace(ApiModel):
    """A pool's life for a while."""

    description: str = ""
    """What it stands for, and where its figures come from."""
    seconds: Length
    """How long it is looked at; longer where the jobs take longer."""
    fleet: FleetSpec
    figures: PolicyFigures
    jobs: Annotated[list[JobSpec], Field(max_length=64)] = []
    arrivals: Annotated[list[Arrivals], Field(max_length=200_000)] = []
    demands: Annotated[list[RecordedDemand], Field(max_length=200_000)] = []
    faults: Faults = Faults()

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="size(self.jobs) + size(self.arrivals) > 0",
            message="a trace needs jobs or arrivals",
            holds=lambda trace: bool(trace.jobs or trace.arrivals),
        ),
        Rule(
            cel="self.jobs.all(job, self.jobs.exists_one(other, other.name == job.name))",
            message="a trace's jobs must have different names",
            holds=lambda trace: len({job.name for job in trace.jobs}) == len(trace.jobs),
        ),
    )


def parse_trace(text: str, *, name: str) -> Trace:
    """The trace of a YAML or JSON text.

    Args:
        text: of the file.
        name: of the file, for messages.

    Raises:
        TraceError: it is none; names the field.
    """
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TraceError(f"{name}: it is not YAML: {yaml_problem(error)}") from None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:  # of a tag, or of its depth
        raise TraceError(f"{name}: it cannot be read: {error}") from None
    if not isinstance(raw, dict):
        raise TraceError(f"{name} is no trace: it is not an object; `rewardpool trace show sync-grpo` shows one")
    try:
        return Trace.model_validate(raw)
    except ValidationError as error:
        raise TraceError("\n".join(f"{name}: {problem}" for problem in _problems(error))) from None


def _problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        yield f"{where}: {problem['msg']}" if where else problem["msg"]
