"""The format of a trace: a pool, the jobs that use it, and faults.

A trace is not a list of requests. A trainer that waits for scores submits its next samples later, so a trace says how
jobs behave, and the simulator runs them together with the fleet (`trainers.py`). A recorded trace is the exception: it
has the times of requests, and a late score delays nothing.

Traces are YAML or JSON with camelCase names, as manifests are; those that come with the package are in `traces/`.
"""

import math
from collections.abc import Iterator
from random import Random
from typing import Annotated, ClassVar, Final, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError

from rewardpool_api.demand import JOB_PATTERN, MAX_JOB_NAME, MAX_SECONDS, Demand
from rewardpool_api.documents import yaml_problem
from rewardpool_api.rules import ApiModel, Rule

MAX_SAMPLES: Final = 100_000  # of one burst: each sample is an event or two
Time = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Length = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
M = TypeVar("M", bound=ApiModel)
Samples = Annotated[int, Field(ge=1, le=MAX_SAMPLES)]


class TraceError(ValueError):
    """A trace that is not valid; the text has a line per field."""


class Duration(ApiModel):
    """A duration, constant or random."""

    type: Literal["Constant", "Uniform", "Lognormal", "Pareto"] = "Constant"
    """Uniform: between `seconds` and `mostSeconds`. Lognormal: `seconds` is the median, `shape` sigma. Pareto:
    `seconds` is the minimum, `shape` alpha: the smaller, the longer the tail."""
    seconds: Length
    most_seconds: Length | None = None
    """Maximum, such as that of an answer with a length limit."""
    shape: Annotated[float, Field(gt=0, le=10)] | None = None

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

    def draw(self, random: Random) -> float:
        most = self.most_seconds or math.inf
        match self.type:
            case "Constant":
                return self.seconds
            case "Uniform":
                return random.uniform(self.seconds, most)
            case "Lognormal":
                return min(most, self.seconds * random.lognormvariate(0.0, self.shape or 0.0))
            case "Pareto":
                return min(most, self.seconds * random.paretovariate(self.shape or 1.0))


class FleetSpec(ApiModel):
    """Speed of a replica, and the allowed number of replicas."""

    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    start_seconds: Duration
    """From a replica's creation until it is ready."""
    service_seconds: Duration
    concurrency: Annotated[int, Field(ge=1, le=4096)]
    """Samples that a replica works on at once, each as fast as if it were alone."""
    queue: Annotated[int, Field(ge=0, le=65_536)] | None = None
    """Samples that a replica queues in addition (default: as many as `concurrency`). The router keeps all others."""

    @property
    def replica_capacity(self) -> int:
        """Samples that a replica works on and queues."""
        return self.concurrency + (self.concurrency if self.queue is None else self.queue)


class PolicyFigures(ApiModel):
    """The settings that any autoscaler needs."""

    target_per_replica: Annotated[int, Field(ge=1, le=65_536)]
    """Requests in flight or waiting per replica."""
    drain_seconds: Annotated[int, Field(ge=1, le=3600)] = 5
    """For policies DrainTime and Demand."""
    cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600
    """For RewardPool's own policies: time without load before they scale to zero."""


class JobSpec(ApiModel):
    """One training job."""

    name: Annotated[str, Field(max_length=MAX_JOB_NAME, pattern=JOB_PATTERN)]
    starts_at_seconds: Time = 0.0
    load_seconds: Time = 0.0
    """Time until the first rollout: model loading, compilation."""
    mode: Literal["Synchronous", "OneStepOff", "FullyAsync"] = "Synchronous"
    """Synchronous: rollout, scores and update follow each other. OneStepOff: the next rollout runs while this one is
    scored and trained on. FullyAsync: rollouts run up to `staleness` updates ahead, and an update trains on the first
    `samples` that are scored."""
    staleness: Annotated[int, Field(ge=1, le=64)] = 2
    """Only for mode FullyAsync."""
    steps: Annotated[int, Field(ge=1, le=100_000)]
    samples: Samples
    """Per step."""
    rollout_seconds: Duration
    """From a rollout's begin to its last sample."""
    arrivals: Literal["AtOnce", "Spread", "LongTailed"]
    """When a rollout's samples come. AtOnce: all at its end. Spread: evenly. LongTailed: most early, few late, the
    last at its end."""
    update_seconds: Duration
    """An update, with all that precedes the next rollout."""
    callers: Samples | None = None
    """Most samples that are submitted and not scored at one time (default: no limit)."""
    announces: bool = True
    dies_after_steps: Annotated[int, Field(ge=0)] | None = None
    """Step after which the job is killed in its next rollout, without an announcement (default: it ends as planned)."""

    @property
    def ahead(self) -> int:
        """Rollouts that may begin before the updates on earlier ones are done."""
        return {"Synchronous": 0, "OneStepOff": 1, "FullyAsync": self.staleness}[self.mode]


class Arrivals(ApiModel):
    """Recorded requests, which come whatever the fleet does."""

    at_seconds: Time
    samples: Samples
    over_seconds: Time = 0.0
    """Time over which the samples are spread evenly."""


class RecordedDemand(ApiModel):
    """A demand that a job announced during a recording."""

    at_seconds: Time
    demand: Demand


class Loss(ApiModel):
    """A loss of replicas, whose requests start anew on others."""

    at_seconds: Time
    share: Annotated[float, Field(gt=0, le=1)]
    """Share of the replicas that have a GPU, rounded up."""


class Interval(ApiModel):
    """A time interval."""

    from_seconds: Time
    until_seconds: Time

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.fromSeconds < self.untilSeconds",
            message="fromSeconds must be less than untilSeconds",
            holds=lambda interval: interval.from_seconds < interval.until_seconds,
        ),
    )


class Shortage(Interval):
    """A time in which the cluster has room for few replicas."""

    replicas: Annotated[int, Field(ge=0)]
    """Replicas that fit; running ones stay."""


class Faults(ApiModel):
    """Faults of the cluster."""

    losses: list[Loss] = []
    shortages: list[Shortage] = []
    blind: list[Interval] = []
    """Times in which the routers' metrics are missing."""


class Trace(ApiModel):
    """A pool, its jobs or requests, and faults."""

    description: str = ""
    seconds: Length
    """Least length of a run, which goes on until all jobs have ended."""
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
    """Parse a trace as `parse_document` does."""
    return parse_document(Trace, text, name=name)


def parse_document(model: type[M], text: str, *, name: str) -> M:
    """Parse the YAML or JSON of a trace.

    Raises:
        TraceError: the text is not a valid trace; the message names the field.
    """
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TraceError(f"{name}: not YAML: {yaml_problem(error)}") from None
    except (
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        RecursionError,
    ) as error:  # of a tag, or of too deep a nesting
        raise TraceError(f"{name}: cannot be read: {error}") from None
    if not isinstance(raw, dict):
        raise TraceError(f"{name}: expected an object; `rewardpool trace show sync-grpo` prints a valid trace")
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise TraceError("\n".join(f"{name}: {problem}" for problem in _problems(error))) from None


def _problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        yield f"{where}: {problem['msg']}" if where else problem["msg"]
