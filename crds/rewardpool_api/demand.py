"""A training job's announcement to a pool of the samples that it will send.

On Kubernetes it travels as a `Lease` in the pool's namespace, one per job and pool, renewed while the job lives; on one
machine as a file in the pool's folder. When the trainer dies nobody renews it, it lapses, and so does the demand.

    metadata.name                              demand-POOL.JOB
    metadata.labels   rewardpool.dev/pool      POOL
                      rewardpool.dev/component demand
    metadata.annotations rewardpool.dev/demand the JSON of `Demand`
    metadata.ownerReferences                   the RewardPool, so that it goes with the pool
    spec.holderIdentity, leaseDurationSeconds, acquireTime, renewTime

Times within a demand are seconds from its renewal. When that was is said by the API server (`metadata.managedFields`),
or by the file system, and not by the trainer: clocks of trainers need not agree with anybody's.
"""

import json
import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, ValidationError

from rewardpool_api import names
from rewardpool_api.job_scores import JobScores
from rewardpool_api.rules import ApiModel, Rule

Phase = Literal["Starting", "Rollout", "Update", "Ended"]

MAX_JOB_NAME: Final = 63
JOB_PATTERN: Final = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
MAX_SAMPLES: Final = 1_000_000_000
"""Of one burst; more is taken for this many."""
MAX_TOKENS: Final = 10**15
"""Of one burst; more is taken for this many."""
MAX_TOKENS_PER_SAMPLE: Final = 1e9
"""No engine takes a sample of so many."""
MAX_SECONDS: Final = 604_800.0
"""A week: what lies beyond is no plan."""
MOST_PER_REQUEST: Final = 64
"""Samples that one request of a trainer may have."""
MAX_BYTES: Final = 4096
"""Of a demand's JSON."""
LEASE_SECONDS: Final = 15
"""Within which a trainer renews its demand, by default; it does so three times as often."""
MAX_LEASE_SECONDS: Final = 300
"""A demand that would outlive its trainer by more than this is taken to last this long."""

FutureSeconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]


class Demand(ApiModel):
    """Expectation of one job, as of its last renewal. All times are seconds from that renewal."""

    job: Annotated[str, Field(max_length=MAX_JOB_NAME, pattern=JOB_PATTERN)]
    """Name of the job; two jobs that use one pool have different ones."""
    phase: Phase
    """Starting: it loads, its first burst is to come. Rollout: samples are coming. Update: none come until the next burst. Ended: no more will."""
    samples: Annotated[int, Field(ge=0)] | None = None
    """Samples of one burst; None where nobody knows."""
    tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens of one burst; None where nobody knows."""
    starts_in_seconds: FutureSeconds | None = None
    """Until the next burst begins. None in the phase Rollout, and where nobody knows."""
    spread_seconds: FutureSeconds = 0.0
    """Over how long a burst's samples come; 0 when they come all at once."""
    every_seconds: FutureSeconds | None = None
    """From the beginning of one burst to that of the next; None where nobody knows yet."""
    ends_in_seconds: FutureSeconds | None = None
    """Until the job is over; None where nobody knows."""
    stalled: bool = False
    """The trainer does nothing but wait for scores."""
    score_wait: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of its latest step in which it did so; None where it does not know."""
    scored: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Samples that were scored for it since it began to announce; None where it does not count them."""
    scores: JobScores | None = None
    """Its raw scores, of this process alone; None before the first one, and where it does not say."""
    samples_per_request: Annotated[float, Field(ge=1, le=MOST_PER_REQUEST, allow_inf_nan=False)] | None = None
    """Mean of the requests that it has in flight, for routers count requests and replicas work on samples. None: one each."""
    tokens_per_sample: Annotated[float, Field(ge=1, le=MAX_TOKENS_PER_SAMPLE, allow_inf_nan=False)] | None = None
    """Mean of the samples that it has in flight, for a replica takes longer for long ones. None where it does not know."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.tokens) || !has(self.samples) || self.tokens >= self.samples",
            message="tokens must not be fewer than samples: each has at least one; leave tokens out where they are not known",
            holds=lambda demand: None in (demand.tokens, demand.samples) or demand.tokens >= demand.samples,
        ),
    )


class DemandError(ValueError):
    """The text says what is wrong with an announcement, in a sentence."""


def parse_demand(text: str) -> Demand:
    """The demand of a JSON text.

    Raises:
        DemandError: it is none.
    """
    if len(text) > MAX_BYTES:
        raise DemandError(f"it has more than {MAX_BYTES} characters")
    try:
        return Demand.model_validate(json.loads(text), extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DemandError(f"{where or 'it'}: {first['msg']}") from None
    except (ValueError, RecursionError):
        raise DemandError("it is no JSON") from None


def dump_demand(demand: Demand) -> str:
    """The JSON of a demand."""
    return demand.model_dump_json(by_alias=True, exclude_none=True)


def job_name(text: str) -> str:
    """A name that a job may have, from any text: lower case, other characters become hyphens, cut to length."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower())[:MAX_JOB_NAME].strip("-")
    return name or "job"


def lease_name(pool: str, job: str) -> str:
    """Name of the Lease. Neither a pool nor a job has a dot in its name, so no two pairs share one."""
    return f"demand-{pool}.{job}"


def lease_labels(pool: str) -> dict[str, str]:
    """Labels of the Lease; by these the operator finds it."""
    return {names.LABEL_POOL: pool, names.LABEL_COMPONENT: names.COMPONENT_DEMAND}


def lease_manifest(
    demand: Demand, *, pool: str, namespace: str, pool_uid: str | None, seconds: int, now: str
) -> dict[str, Any]:
    """The whole Lease as a trainer applies it; `now` is an RFC 3339 time with microseconds."""
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": pool, "uid": pool_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": lease_name(pool, demand.job),
            "namespace": namespace,
            "labels": lease_labels(pool),
            "annotations": {names.ANNOTATION_DEMAND: dump_demand(demand)},
            **({"ownerReferences": [owner]} if pool_uid else {}),
        },
        "spec": {"holderIdentity": demand.job, "leaseDurationSeconds": seconds, "renewTime": now},
    }
