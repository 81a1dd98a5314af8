"""Status of a pool: the one place from which trainers and people learn its URL, model and health.

Conditions (each but GatewayReady and Sandboxed is always present once the operator has seen the pool; `reason` is one word for machines, see `reasons.py`;
`message` is for people):

| type | True means | False means | what it blocks |
|---|---|---|---|
| Ready | the pool is what its spec says: its present revision serves, or no replica is wanted (`AtZero`, `Suspended`, `Asleep`) | nothing serves yet or any more, or a rollout is under way, paused or failed | what applies manifests: `kubectl wait`, Flux, Argo CD |
| Serving | a score can be had now: at least one replica serves behind a router that answers | no worker, or no router, answers, or none is wanted | trainers wait or raise; at zero their first request starts a replica |
| WorkersReady | as many workers answer as are wanted | some are starting, failing or missing | nothing |
| RouterReady | every wanted router replica answers and holds the right workers | a router is starting or missing | Serving, when none answers |
| GatewayReady | of a pool with spec.gateway: every wanted gateway replica answers | a gateway is starting, missing or failing; the message has the cause | Ready |
| ScalingActive | the number of replicas is being decided from fresh metrics, or is fixed | metrics are missing: the size may grow by those that are there, and not shrink | shrinking |
| Progressing | a rollout or a start is under way | nothing is changing, or it does not go on: the deadline passed, rolled back, paused, or the golden set cannot be used | nothing |
| Sandboxed | of a pool of a function: what its processes should not reach was tried on every worker that answers, and refused | a worker's function reaches what it should not, or the worker does not serve for that reason; the message has what is missing, of several workers from the one with most. Unknown until a worker has answered | workers, where spec.sandbox.onMissing is Refuse |
| Degraded | something is wrong that does not heal by waiting; the message has the cause and the engine's last lines | no such thing | nothing |
"""

from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from rewardpool_api.certificate import MOST_WORDS
from rewardpool_api.costs import CostStatus
from rewardpool_api.demand import MAX_TOKENS_PER_SAMPLE, MOST_PER_REQUEST
from rewardpool_api.first_score import FirstScoreStatus
from rewardpool_api.job_scores import JobScores
from rewardpool_api.quantities import Count, Duration, Generation, MeasuredRate, Time
from rewardpool_api.rules import ApiModel

ConditionType = Literal[
    "Ready",
    "Serving",
    "WorkersReady",
    "RouterReady",
    "GatewayReady",
    "ScalingActive",
    "Progressing",
    "Sandboxed",
    "Degraded",
]
CONDITION_TYPES: Final[tuple[ConditionType, ...]] = get_args(ConditionType)
MAX_MESSAGE = 4096
"""Characters of a message that RewardPool writes; the engine's last lines are cut to fit."""
MAX_CONDITION_MESSAGE = 32_768
"""Characters that a condition's message may have, as in every API of Kubernetes (metav1.Condition)."""
MAX_REQUEST = 253
"""Characters of an annotation's value that is remembered."""
MAX_PARKED_NAMES = 32
"""Parked replicas that are named."""
NEVER_OBSERVED = -1
"""`status.observedGeneration` of a pool that no operator has seen; no object has this generation."""


class Condition(ApiModel):
    """One aspect of the pool's health, within the bounds of Kubernetes' metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """Type of the condition. Other controllers may add their own; docs/reference-status.md lists those of RewardPool."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds: True, False or Unknown."""
    reason: Annotated[str, Field(max_length=1024)]
    """Reason in CamelCase, for programs; docs/reference-status.md lists those of RewardPool."""
    message: Annotated[str, Field(max_length=MAX_CONDITION_MESSAGE)] = ""
    """Human-readable cause, and what to do about it."""
    last_transition_time: Time
    """RFC 3339 time of the last change of `status`."""
    observed_generation: Generation = 0
    """Generation of the spec that the condition was set for."""


class DownloadStatus(ApiModel):
    """Progress of the workers' download of the model; with several workers, the least."""

    phase: Literal["Resolving", "Waiting", "Downloading", "Verifying"]
    """Resolving: looking up the revision's commit. Waiting: for another worker's download into the same cache. Verifying: all bytes are there and are checked."""
    downloaded_bytes: Count = 0
    """Number of the model's bytes that are on the disk."""
    total_bytes: Count | None = None
    """Size of the model in bytes; absent until it is known."""
    note: Annotated[str, Field(max_length=512)] | None = None
    """Cause of a delay of the download, in words; absent if there is none."""
    workers: Count = 1
    """Number of workers that download the model, or wait for one that does."""
    time: Time
    """RFC 3339 time of these figures, which are written every few seconds."""


MAX_REVISIONS = 4
"""Revisions whose model is named: the present and the stable one, and others that still have replicas."""


class RevisionModel(ApiModel):
    """The model that one revision of the workers serves."""

    revision: Annotated[str, Field(max_length=63)]
    """Name of the revision, as each answer of its workers has it."""
    source: Annotated[str, Field(max_length=1024)]
    """Where the model comes from, as in spec.model.source."""
    commit: Annotated[str, Field(max_length=MAX_REQUEST)] | None = None
    """Version that the revision is pinned to: the hub's commit, or the digest of an S3 listing; absent for other sources."""
    served_name: Annotated[str, Field(max_length=MAX_REQUEST)]
    """Value of the field `model` in a request."""
    tokenizer: Annotated[str, Field(max_length=64)] | None = None
    """Digest of the model's tokenizer and chat template, of a teacher that of its vocabulary, as each answer has it; absent for judges, functions and until a worker answered."""
    max_model_len: Count | None = None
    """Longest sample in tokens, as the engine says."""
    head: Annotated[str, Field(max_length=64)] | None = None
    """Type of spec.model.head; absent for a model with one label."""
    step_token: Annotated[str, Field(max_length=256)] | None = None
    """Token at the ends of steps, where the model scores steps."""
    dtype: Annotated[str, Field(max_length=64)] | None = None
    """Number format that the engine computes in, as in spec.engine.dtype."""


class CertificateStatus(ApiModel):
    """Dependence of a worker's numbers on batch, order and cache, as measured before it was first ready."""

    outcome: Literal["Certified", "NotCertified"]
    """Certified: a sample's numbers do not depend on how it is requested, beyond what spec.engine.dtype allows. NotCertified: that is unknown, and the worker serves; the message says why."""
    max_abs_diff: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Largest difference between a number and that of the same sample requested alone; absent if unknown."""
    message: Annotated[str, Field(max_length=MOST_WORDS)] = ""
    """What was compared, in words."""


class ModelStatus(ApiModel):
    """The model as it is served."""

    type: Literal["Discriminative", "Generative", "Function", "Teacher"]
    """How the model scores, as in spec.model.type."""
    engine: str | None = None
    """Engine that serves the model: spec.engine.name, or what the source stands for."""
    served_name: str
    """Value of the field `model` in a request to the router."""
    adapters: list[str] | None = None
    """Names of the LoRA adapters that every worker scores by, beside the model itself; a new one is here when its rollout is done."""
    max_model_len: Count | None = None
    """Longest sample in tokens, as the engine says; absent for functions and until a worker answered."""
    commit: str | None = None
    """Version that the current revision is pinned to: the hub's commit, or the digest of an S3 listing."""
    revisions: Annotated[list[RevisionModel], Field(max_length=MAX_REVISIONS)] = []
    """Models of the revisions that have replicas or may get them, the current one first."""
    certificate: CertificateStatus | None = None
    """Self-test of the least certain worker; absent for judges, functions and until a worker answered."""
    download: DownloadStatus | None = None
    """Download in progress; absent if there is none."""


class KeyRotation(ApiModel):
    """The change of the pool's keys that is under way, or the last one."""

    phase: Literal["Preparing", "Changing", "Done"]
    """Preparing: workers learn the next key. Changing: routers change to it, one by one. Done: there is one key again."""
    since: Time
    """RFC 3339 time at which the present phase began."""
    request: Annotated[str, Field(max_length=MAX_REQUEST)] | None = None
    """Last value of the annotation rewardpool.dev/rotate-key that the operator acted on."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """Pods that the rotation has waited for too long, in words; empty if there are none."""


class AuthStatus(ApiModel):
    """Access of a trainer, beside the URL: where the key is (one place, or none when auth is disabled), and whom to trust."""

    secret_name: str | None = None
    """Name of the Secret in the pool's namespace whose entry `key` is the key."""
    key_file: str | None = None
    """Path of the file that holds the key, for a pool on one machine."""
    ca_bundle: str | None = None
    """Certificates, as PEM in base64, by which an https URL is verified; absent where the URL is http."""
    rotation: KeyRotation | None = None
    """Progress of the latest rotation of the pool's keys; absent before the first one."""


class GatewayStatus(ApiModel):
    """Where trainers find the gateway, and the key that it takes."""

    url: str
    """Base URL at which trainers ask the gateway."""
    secret_name: str | None = None
    """Name of the Secret in the pool's namespace whose entry `key` is the gateway's key."""
    key_file: str | None = None
    """Path of the file that holds the gateway's key, for a pool on one machine."""
    ready_replicas: Count = 0
    """Number of gateway replicas that answer."""


class LoadStatus(ApiModel):
    """Requests at the routers, summed over router replicas."""

    in_flight: Count = 0
    """Number of requests that workers are computing now."""
    waiting: Count = 0
    """Requests that a router accepted and that are not at a worker: it retries, or has no worker."""
    tokens_per_request: Annotated[float, Field(ge=1, le=MAX_TOKENS_PER_SAMPLE * MOST_PER_REQUEST)] | None = None
    """Mean tokens of these requests, as the jobs announce them; absent if no job announces the length of its samples."""

    @property
    def tokens_in_flight(self) -> int | None:
        """Tokens of the requests in flight; None where that is not known."""
        return None if self.tokens_per_request is None else round(self.in_flight * self.tokens_per_request)

    @property
    def tokens_waiting(self) -> int | None:
        """Tokens of those that wait; None where that is not known."""
        return None if self.tokens_per_request is None else round(self.waiting * self.tokens_per_request)


Limit = Literal[
    "MinReplicas",
    "MaxReplicas",
    "Budget",
    "Step",
    "Tolerance",
    "Window",
    "CooldownSeconds",
    "MetricsUnavailable",
    "Unschedulable",
]
"""What keeps the number from being what the policies ask for; each is explained in docs/autoscaling.md."""


class ScalingDecision(ApiModel):
    """One change of the wanted number of replicas."""

    time: Time
    """RFC 3339 time at which the number was decided."""
    replicas: Count
    """Number of replicas that was decided on."""
    reason: str
    """Human-readable cause of the decision."""
    limit: Limit | None = None
    """Limit that held the number up or down; absent if there was none."""


class DesiredAt(ApiModel):
    """Number that the policies proposed; scaling down uses a window of these."""

    time: Time
    """RFC 3339 time at which the recommendation began, or for earlier ones ended."""
    replicas: Count
    """Number of replicas that the policies asked for."""


class BusyRate(ApiModel):
    """Rate of one busy replica over some seconds."""

    rate: MeasuredRate
    """Requests per second that the replica answered, or tokens if tokensPerSample is set."""
    in_flight: Count
    """Fewest requests, or tokens, that the replica had in flight meanwhile."""


class ServiceRateStatus(ApiModel):
    """Service rate of one replica, as measured."""

    per_replica: MeasuredRate
    """Requests per second that a saturated replica answers, or tokens per second if tokensPerSample is set."""
    in_flight: Count
    """Requests, or tokens, in flight that saturate a replica: the fewest with which it reached about this rate."""
    tokens_per_sample: Annotated[float, Field(ge=1, le=MAX_TOKENS_PER_SAMPLE)] | None = None
    """Mean tokens of the samples of the newest measurement; absent if no job announces the length of its samples."""
    measured: Annotated[list[BusyRate], Field(max_length=16)] = []
    """Measurements that the rate was made from, newest last."""
    time: Time
    """RFC 3339 time of the newest measurement."""

    @property
    def samples_per_second(self) -> float:
        """`per_replica` in samples."""
        return self.per_replica / (self.tokens_per_sample or 1.0)

    @property
    def samples_in_flight(self) -> float:
        """`in_flight` in samples."""
        return self.in_flight / (self.tokens_per_sample or 1.0)


class WorkerStart(ApiModel):
    """Start of one replica, and its duration."""

    worker: str
    """Name of the replica that started."""
    seconds: Duration
    """Seconds from the replica's creation to its first score."""


class Burst(ApiModel):
    """A time in which there were requests, between two in which there were none, or were those of other jobs."""

    begun: Time
    """RFC 3339 time of the burst's first request."""
    ended: Time | None = None
    """RFC 3339 time since which there is none; absent while it goes on."""
    replicas: Count = 0
    """Largest number of replicas that the requests at the routers needed during the burst."""
    jobs: Annotated[list[str], Field(max_length=32)] = []
    """Jobs that announced samples during the burst; empty if none did."""


class ScalingStatus(ApiModel):
    """The autoscaler's decision and the state it needs to decide the same after a restart."""

    desired: Count
    """Number of replicas that the autoscaler wants now."""
    reason: str
    """Human-readable cause of the present number."""
    recommended_replicas: Count | None = None
    """Number of replicas that the policies recommend, before bounds, steps, windows and budget; absent without policies."""
    limit: Limit | None = None
    """Limit that keeps `desired` from being `recommendedReplicas`; absent if there is none."""
    idle_since: Time | None = None
    """RFC 3339 time since which there have been no requests; absent while there are some."""
    quiet_since: Time | None = None
    """RFC 3339 time since which all announcing jobs report that they send no samples; absent while one sends them or is about to."""
    unannounced: Time | None = None
    """RFC 3339 time of the last request that no job had announced; absent after window and cooldown have passed."""
    window: Annotated[list[DesiredAt], Field(max_length=64)] = []
    """Recommendations: last the present one with the time it began, before it larger ones with the time they ended."""
    service_rate: ServiceRateStatus | None = None
    """Measured throughput of one replica; absent until the first measurement."""
    starts: Annotated[list[WorkerStart], Field(max_length=8)] = []
    """Start times of the latest replicas, newest last."""
    bursts: Annotated[list[Burst], Field(max_length=16)] = []
    """Latest bursts, newest last, for policy Demand with `learn`."""
    history: Annotated[list[ScalingDecision], Field(max_length=10)] = []
    """Last ten changes of the wanted number, newest last."""


class DemandStatus(ApiModel):
    """Announcement of one job, and the replicas wanted for it."""

    job: str
    """Name of the job, or of its Lease if the announcement is malformed."""
    state: Literal["Live", "Lapsed", "Ended", "Ignored"]
    """Live: it counts. Lapsed: the job did not renew it in time. Ended: the job withdrew it. Ignored: it is malformed; the message says why."""
    phase: str | None = None
    """Phase of the training job: Starting, Rollout or Update."""
    samples: Count | None = None
    """Number of samples in one burst of the job."""
    tokens: Count | None = None
    """Number of tokens in one burst of the job; absent if the job does not report it."""
    next_burst: Time | None = None
    """RFC 3339 time at which the next burst begins, or the present one began to be expected; absent if that is unknown."""
    replicas: Count = 0
    """Number of replicas that the pool keeps for the job now."""
    stalled: bool = False
    """Whether the trainer only waits for scores."""
    score_wait: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of its latest step that the trainer waited for scores, from 0 to 1; absent if the job does not report it."""
    scores: JobScores | None = None
    """Raw scores that rank 0 of the job got; absent if the job does not report them."""
    message: Annotated[str, Field(max_length=512)] = ""
    """Remark on the announcement, such as that it was too large and was cut."""


class FailedRollout(ApiModel):
    """A revision that failed; it is not tried again before the spec renders to another one."""

    revision: str
    """Name of the revision that failed."""
    reason: str
    """Why the revision failed: ProgressDeadlineExceeded or ParityExceeded."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """The cause, with the engine's last lines or the differing scores."""
    time: Time
    """RFC 3339 time at which the revision was found to have failed."""


class ParityStatus(ApiModel):
    """Outcome of the comparison of the golden set's scores."""

    revision: str
    """Name of the revision whose scores were compared."""
    outcome: Literal["Passed", "Failed", "Waiting", "Unusable"]
    """Waiting: the scores are not all there yet. Unusable: the golden set is missing or malformed."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """Differences of the scores, or what the comparison waits for."""


class RolloutStatus(ApiModel):
    """Which revisions there are, what became of them, and the state that the decision needs after a restart."""

    target_revision: str
    """Revision that has the wanted number of replicas: the current one, or the stable one while the current one failed, waits or is paused."""
    stable_revision: str | None = None
    """The last revision whose wanted workers all answered. Kept, at zero replicas, until a newer one is stable."""
    previous_revision: str | None = None
    """The stable revision before that one, kept at zero replicas for `rewardpool rollback`. Older ones are deleted."""
    failed: FailedRollout | None = None
    """Failure of the current revision; absent if it has not failed."""
    parity: ParityStatus | None = None
    """Outcome of the present revision's comparison, when spec.rollout.parity is set."""
    silent_since: Time | None = None
    """RFC 3339 time since which no worker of the present revision serves though some are wanted; the deadline runs from here."""
    replace_reason: Annotated[str, Field(max_length=MAX_MESSAGE)] | None = None
    """Message of the scheduler or a quota for which the rollout replaces replicas one by one; kept until the rollout ends."""


class SleepStatus(ApiModel):
    """Sleep of the engines of a pool that shares its GPUs with trainers."""

    state: Literal["Awake", "Changing", "Asleep"]
    """Awake: a trainer holds the pool awake, and samples are scored. Asleep: no engine has the GPU. Changing: neither yet."""
    holders: Annotated[list[Annotated[str, Field(max_length=MAX_REQUEST)]], Field(max_length=256)] = []
    """Processes that hold the pool awake, by the names of their files."""


class WorkerProcess(ApiModel):
    """A replica as people see it in `rewardpool status`; only written on one machine, where there are no pods to look at."""

    name: str
    """Name of the replica, such as worker-1."""
    revision: str
    """Revision of the command that the replica was started with."""
    url: str
    """Base URL at which the replica itself listens."""
    pid: Count | None = None
    """Process id of the leader of the replica's process group."""
    phase: str
    """Starting, Ready, Parked, Asleep, Draining, or Waiting (backing off after a failed start)."""
    restarts: Count = 0
    """Number of times that the replica was restarted."""
    in_flight: Count | None = None
    """Requests that the replica has in flight, as the routers report them."""


class RewardPoolStatus(ApiModel):
    """Observed state of the pool: its URL, its workers and its health. Written by the operator alone."""

    observed_generation: Generation = NEVER_OBSERVED
    """Generation of the spec that the status describes; -1 until the operator has seen the pool, which kstatus (Flux, Helm) waits for."""
    url: str | None = None
    """Base URL of the router; trainers post to URL/v1/embeddings or URL/v1/chat/completions."""
    ready: str = ""
    """Serving replicas out of the wanted ones, such as `1/2`, as `kubectl get` shows them."""
    replicas: Count = 0
    """Number of workers, excluding draining and parked ones."""
    ready_replicas: Count = 0
    """Number of workers that answer and are in every router's list."""
    draining_replicas: Count = 0
    """Number of workers that finish their requests in flight before they stop."""
    parked_replicas: Count = 0
    """Number of workers that answer and are in no router's list, kept ready for scaling up."""
    parked_workers: Annotated[list[str], Field(max_length=MAX_PARKED_NAMES)] = []
    """Names of the first 32 parked workers, whose pods are Ready for Kubernetes like any other."""
    router_replicas: Count = 0
    """Number of routers that the pool is to have: spec.router.replicas, or its default."""
    selector: str = ""
    """Label selector of the worker pods, for the scale subresource."""
    current_revision: str = ""
    """Revision that the pool runs or is being rolled to."""
    model: ModelStatus | None = None
    """Model as the pool serves it now, and how far its download is."""
    auth: AuthStatus = AuthStatus()
    """Location of the pool's key, and the certificates that trainers trust."""
    gateway: GatewayStatus | None = None
    """Gateway of a pool with spec.gateway, and its key; absent for any other."""
    load: LoadStatus | None = None
    """Requests at the routers; absent while their metrics are missing."""
    conditions: Annotated[
        list[Condition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = []
    """Aspects of the pool's health, one for each type."""
    scaling: ScalingStatus | None = None
    """The autoscaler's last decision, and its state for the next one."""
    demands: Annotated[list[DemandStatus], Field(max_length=32)] = []
    """Announcement of each training job, and its effect on the pool."""
    costs: CostStatus | None = None
    """GPU-seconds of the pool and of each job; absent for a pool without GPUs."""
    first_score: FirstScoreStatus | None = None
    """Waiting time of the last request that found the pool at zero, by its causes; absent before the first one."""
    rollout: RolloutStatus | None = None
    """Revisions of the workers: the present one, the stable one, and a failed one."""
    sleep: SleepStatus | None = None
    """Whether the engines sleep; only where they can, on one machine."""
    workers: list[WorkerProcess] = []
    """Processes of the replicas, for a pool on one machine only."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of that type, or None when it was never set."""
        return next((condition for condition in self.conditions if condition.type == kind), None)
