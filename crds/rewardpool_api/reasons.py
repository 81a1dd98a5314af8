"""Every reason that a condition or an event of a pool may give: one word for machines, with what it means.

A reason is part of the API: alerts, scripts and `rewardpool explain` compare it. So each is defined here once, and the
documentation's tables are made from this module. What Kubernetes itself says of a container (such as
`CreateContainerConfigError`) is in the message of `PodNotStarting`: no word from outside is ever a reason.
"""

from enum import StrEnum
from typing import Final, Self


class _Reason(StrEnum):
    """A word and its meaning."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


class ConditionReason(_Reason):
    """Why a condition is what it is."""

    # Ready and Serving
    SERVING = "Serving", "At least one worker is in every router that answers: samples are scored."
    SUSPENDED = "Suspended", "spec.suspend is set."
    AT_ZERO = "AtZero", "No replica is wanted just now; the message says why."
    ASLEEP = (
        "Asleep",
        "Every engine sleeps, and its GPU is the trainer's; a trainer that holds the pool awake wakes them.",
    )
    WAKING = "Waking", "A trainer holds the pool awake, and its engines are on their way."
    FALLING_ASLEEP = "FallingAsleep", "No trainer holds the pool awake: its workers leave the router and go to sleep."
    ROUTER_NOT_READY = "RouterNotReady", "No router answers yet."
    STARTING = "Starting", "Workers or routers are on their way, and nothing is known to be wrong."
    NO_SCORE = "NoScore", "A worker that starts listens and gives no score yet; the message has its reason."

    # WorkersReady, RouterReady and GatewayReady
    ALL_READY = "AllReady", "As many as are wanted serve."
    UPDATING_WORKER_LIST = "UpdatingWorkerList", "A router's list differs from the workers and is being repaired."

    # ScalingActive
    FIXED = "Fixed", "spec.replicas holds."
    EXTERNAL = "External", "spec.replicas holds, written by HPA, KEDA or a person, within the bounds."
    REPLICAS_NOT_SET = (
        "ReplicasNotSet",
        "The policy is External and nobody wrote spec.replicas, so no HPA can read the scale; the size stays.",
    )
    QUEUE_DEPTH = "QueueDepth", "The number follows the requests at the routers."
    DRAIN_TIME = "DrainTime", "The number follows the time in which the requests at the routers shall be answered."
    DEMAND = "Demand", "The number follows what training jobs announce."
    COMBINED = "Combined", "The number is the largest that one of several policies wants."
    BUDGET_DISAGREES = (
        "BudgetDisagrees",
        "Pools of one budget state different maxReplicas of it; the smallest holds, and the number is decided by it.",
    )
    METRICS_UNAVAILABLE = (
        "MetricsUnavailable",
        "A router did not say what it holds, so the number may grow and not shrink.",
    )

    # Progressing
    STABLE = "Stable", "Nothing is changing."
    UPDATE_AVAILABLE = (
        "UpdateAvailable",
        "Nothing is changing, and workers that were made now would differ: the operator was upgraded, or drainSeconds"
        " or progressDeadlineSeconds changed. `rewardpool restart` or a changed spec brings them.",
    )
    DOWNLOADING = "Downloading", "Workers download the model; the message has the bytes."
    SCALING = "Scaling", "The number of workers is on its way to what is wanted."
    SURGING = "Surging", "A rollout: new workers start beside the old ones."
    REPLACING = "Replacing", "A rollout: an old worker leaves before a new one starts."
    NO_ROOM = (
        "ReplacingForLackOfRoom",
        "A rollout under strategy Auto: there is no room for one more worker, so they are replaced one by one.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "No node takes a new worker, and an old one's leaving would not help: a taint, a volume, a queue. On one"
        " machine: no GPU is free for it.",
    )
    PAUSED = "Paused", "spec.rollout.paused is set: the stable revision serves and is scaled, a newer one waits."
    CHECKING_PARITY = "CheckingParity", "A new worker answers; its scores of the golden set are being compared."
    GOLDEN_SET_UNUSABLE = (
        "GoldenSetUnusable",
        "The golden set is missing or malformed, so the rollout waits; the message names ConfigMap, entry and line.",
    )
    DEADLINE_EXCEEDED = (
        "ProgressDeadlineExceeded",
        "No worker of the present revision served within spec.rollout.progressDeadlineSeconds.",
    )
    PARITY_EXCEEDED = (
        "ParityExceeded",
        "The present revision scores the golden set differently by more than maxAbsDiff, or not at all.",
    )
    ROLLED_BACK = (
        "RolledBack",
        "The present revision failed and the stable one serves, until the spec changes; the message has the cause.",
    )

    # Sandboxed
    ENFORCED = "Enforced", "Every worker that answers tried what its function should not reach, and was refused."
    WEAKENED = (
        "Weakened",
        "A worker's function reaches what it should not, and is served; the message has the worker and what is"
        " missing.",
    )
    NOT_TRIED = "NotTried", "No worker of this spec has answered yet, and what its function reaches is not known."

    # Degraded
    AS_EXPECTED = "AsExpected", "Nothing is wrong that waiting does not heal."
    REPLICAS_DISAGREE = (
        "ReplicasDisagree",
        "A worker scores the probe text differently from the others of its revision, and is kept from the routers; the"
        " message has the worker, both numbers and what may differ.",
    )
    NUMBERS_VARY = (
        "NumbersVary",
        "A worker gives a sample other numbers in a batch, in another order or behind a cached prefix than alone, by"
        " more than spec.engine.dtype allows, and serves nothing; the message has the difference, what is allowed and"
        " the setting against it. No other attempt would change that: a rollout fails at once, and `rewardpool up`"
        " gives up.",
    )
    MODEL_NOT_FOUND = "ModelNotFound", "There is no model where spec.model.source points, or it is refused."
    FUNCTION_NOT_FOUND = (
        "FunctionNotFound",
        "There is no such module as spec.model.source names, or no such function in it, or its git repository lacks the"
        " commit or folder. No other attempt would change that: a rollout fails at once, and `rewardpool up` refuses or"
        " gives up.",
    )
    FUNCTION_NOT_FETCHED = (
        "FunctionNotFetched",
        "The git repository with the function cannot be read: its host does not answer or wants credentials, or the"
        " image has no git; the message has which. It is tried again, with growing pauses.",
    )
    FUNCTION_NOT_LOADABLE = (
        "FunctionNotLoadable",
        "The function of spec.model.source cannot be loaded: its module is not valid Python or imports what is not"
        " there, or it takes other arguments; the message has the line. No other attempt would change that: a rollout"
        " fails at once, and `rewardpool up` gives up.",
    )
    FUNCTION_RAISES = (
        "FunctionRaises",
        "The module of spec.model.source fails while it is imported, by an error of its own; the message has it. It is"
        " tried again, with growing pauses.",
    )
    SANDBOX_UNAVAILABLE = (
        "SandboxUnavailable",
        "Where a worker runs, the function would reach what it should not, and spec.sandbox.onMissing is Refuse; the"
        " message has what is missing. No other attempt there would change that: a rollout fails at once, and"
        " `rewardpool up` gives up.",
    )
    NO_AGENT_SANDBOX = (
        "NoAgentSandbox",
        "spec.sandbox.runtime is AgentSandbox, and the operator can make no SandboxClaims: the message says what to"
        " install or to set. Nothing of the pool changes meanwhile.",
    )
    NO_ACCELERATOR = (
        "NoAccelerator",
        "The engine finds no accelerator where it runs. Where spec.worker.gpus is 0, no other attempt would change"
        " that: a rollout fails at once, and `rewardpool up` gives up.",
    )
    MODEL_UNAUTHORIZED = (
        "ModelUnauthorized",
        "The hub or store refuses the model: conditions not accepted, a token or credentials missing or wrong.",
    )
    MODEL_CHANGED = "ModelChanged", "The objects of an s3:// model are not those that the running workers serve."
    SOURCE_UNREACHABLE = "SourceUnreachable", "The hub or store does not answer; it is tried again, ever less often."
    DOWNLOAD_THROTTLED = "DownloadThrottled", "The hub or store wants fewer requests; it is tried again later."
    DOWNLOAD_STALLED = "DownloadStalled", "Nothing of a download moved for ten minutes; it was ended and begun anew."
    CHECKSUM_MISMATCH = "ChecksumMismatch", "A file is not what the server says it is, also at the second attempt."
    CACHE_CHANGED = (
        "CacheChanged",
        "Files in the model's cache are not those that were downloaded; the message names them, and no engine starts.",
    )
    DISK_FULL = "DiskFull", "The model does not fit into its cache."
    CACHE_UNUSABLE = "CacheUnusable", "The model's cache cannot be read or written; the message has the system's words."
    DOWNLOADER_MISSING = "DownloaderMissing", "The image has no client for the source, such as boto3 for s3://."
    OUT_OF_MEMORY = "OutOfMemory", "The worker does not fit into the memory of its GPU or container."
    MODEL_REFUSED = (
        "ModelRefused",
        "The checkpoint cannot be served as it is: it needs its own code and spec.model.trustRemoteCode is false, or it"
        " lacks a head or weights; the message says which.",
    )
    BAD_ARGUMENTS = "BadArguments", "The engine refuses how it was started."
    PORT_IN_USE = "PortInUse", "The port is taken by another process."
    ENGINE_EXITED = "EngineExited", "The engine ended for a cause of its own; the message has its last lines."
    HUNG = "Hung", "The process runs and stopped answering; it is started again."
    WEIGHTS_LOST = (
        "WeightsLost",
        "A woken engine scored its probe differently than before it slept; it is started again.",
    )
    NO_SLEEP_HERE = (
        "NoSleepHere",
        "spec.engine.sleep.enabled is for a pool on one machine; in a cluster its workers stay awake.",
    )
    IMAGE_PULL = "ImagePull", "The container image cannot be had."
    POD_NOT_STARTING = "PodNotStarting", "The node took the pod and cannot start it; the message has Kubernetes' words."
    NODE_LOST = (
        "NodeLost",
        "A worker's node does not report any more, and no router reaches the worker.",
    )
    ROUTER_SILENT = (
        "RouterSilent",
        "A router has not answered the operator for some seconds; where its metrics count, the size may only grow.",
    )
    WORKER_NOT_LISTED = (
        "WorkerNotListed",
        "A router has not listed a ready worker for a minute: most often it does not reach it.",
    )
    ROUTER_REFUSES = "RouterRefuses", "A router refuses the operator's calls."
    TLS_UNUSABLE = (
        "TlsUnusable",
        "The Secret of spec.router.tls is missing or no certificate with its key; no router is started or changed.",
    )
    VOCABULARY_DIFFERS = (
        "VocabularyDiffers",
        "The model's vocabulary is not that of spec.gateway.vocabulary, so the gateway passes on no answer of it.",
    )
    CERTIFICATE_REFUSED = (
        "CertificateRefused",
        "The routers' certificate is for another host, has ended, or is not signed by the Secret's ca.crt.",
    )
    APPLY_FAILED = "ApplyFailed", "The API server refuses an object of the pool; the message has its words."
    NAME_TAKEN = (
        "NameTaken",
        "An object of a name that the pool needs is not the pool's own; the message names it. Nothing is deployed.",
    )
    NAMESPACE_NOT_SERVED = (
        "NamespaceNotServed",
        "The operator may not see all kinds of objects in the pool's namespace, and leaves the pool as it is or goes by"
        " what it knows; a Role is missing there, and the message says for which kind.",
    )
    INVALID_OBJECT = (
        "InvalidObject",
        "The stored pool is not valid, where no schema sees or an older one let it through; its size and routers stay.",
    )
    NULL_IGNORED = (
        "NullIgnored",
        "A podTemplate has a null, which removes nothing; {$patch: delete} in its place removes the field.",
    )
    SECRETS_UNREADABLE = (
        "SecretsUnreadable",
        "The API server does not show the pool's Secrets; keys that are known go on, and are neither made nor changed.",
    )
    CERTIFICATE_UNREADABLE = (
        "CertificateUnreadable",
        "The API server does not show the Secret of spec.router.tls; the certificate that was read last goes on.",
    )
    GOLDEN_SET_UNREADABLE = (
        "GoldenSetUnreadable",
        "The API server does not show the golden set's ConfigMap; what was read last holds.",
    )
    DEMANDS_UNREADABLE = (
        "DemandsUnreadable",
        "The API server does not say whether a training job's demand was renewed; the demand counts meanwhile.",
    )
    RECONCILE_FAILED = (
        "ReconcileFailed",
        "The operator fails to decide about the pool, a fault of RewardPool; the routers' lists are kept.",
    )
    API_SERVER_UNREACHABLE = (
        "ApiServerUnreachable",
        "The API server does not answer, or refuses the operator's Lease; the routers' lists are kept.",
    )
    STATUS_NOT_WRITTEN = (
        "StatusNotWritten",
        "The API server does not take the pool's status, which is therefore old; metrics and /healthz say it.",
    )
    FAILED_CREATE = "FailedCreate", "Kubernetes cannot make the pods: a quota, a webhook, a Pod Security level."

    # One machine
    STOPPED = "Stopped", "The pool was stopped by `rewardpool down` or a signal."
    GAVE_UP = "GaveUp", "No worker ever became ready, so the pool was stopped."
    SUPERVISOR_GONE = "SupervisorGone", "The supervisor of a pool on one machine was killed."
    SUPERVISOR_FAILED = "SupervisorFailed", "The supervisor of a pool on one machine failed, a fault of RewardPool."


class EventReason(_Reason):
    """Reason of an event. Warnings are emitted once, when they begin."""

    NOT_SERVING = "NotServing", "The pool served and stopped, although a replica is wanted."
    DEGRADED = (
        "Degraded",
        "Something is wrong that waiting does not heal; the message begins with the reason.",
    )
    NOT_DEGRADED = "NotDegraded", "The problem is gone."
    PROGRESSING = "Progressing", "A rollout goes on in another way: for lack of room, one by one."
    NOT_PROGRESSING = "NotProgressing", "A rollout or start stopped: its deadline passed, or it is paused or held."
    SCALED = "Scaled", "The wanted number of replicas changed; the message says why."
    BUDGET_DISAGREES = (
        "BudgetDisagrees",
        "Pools of one budget state different maxReplicas of it, and the smallest holds; the message says which.",
    )
    DRAINING = "Draining", "A worker leaves the routers and finishes what it has in flight."
    ROUTERS_REPAIRED = (
        "RoutersRepaired",
        "Routers' worker lists were not as the operator had left them, and were repaired; summed up over a minute.",
    )
    ROLLOUT_STARTED = "RolloutStarted", "Workers of another revision are replacing those there are."
    ROLLOUT_COMPLETED = "RolloutCompleted", "All wanted workers of the new revision answer; it is the good one now."
    PARITY_PASSED = "ParityPassed", "The new revision scores the golden set as it should, and takes traffic."
    PARITY_EXCEEDED = "ParityExceeded", "The new revision scores the golden set differently; it gets no traffic."
    ROLLED_BACK = (
        "RolledBack",
        "The new revision failed and the stable one serves; the message has the cause.",
    )
    KEY_ROTATION_STARTED = "KeyRotationStarted", "New keys were made; workers learn the pool's next key first."
    KEY_ROTATION_WAITS = "KeyRotationWaits", "A rotation waits for pods for longer than it should; it goes on waiting."
    KEY_ROTATED = "KeyRotated", "All routers have the new keys, and the old ones are taken nowhere any more."
    KEY_REFUSED = "KeyRefused", "Somebody wrote into the key's Secret what cannot be a key; it was taken back."
    DEMAND_BEGAN = "DemandBegan", "A training job began to announce what it will ask, or came back."
    DEMAND_LAPSED = (
        "DemandLapsed",
        "A training job did not renew its demand in time: it died, or reaches no API server. It counts no more.",
    )
    DEMAND_ENDED = "DemandEnded", "A training job said that it has ended, or took its demand away."
    DEMAND_IGNORED = "DemandIgnored", "A Lease, or a file, makes no sense as a demand; the message says which and why."
    NO_SUCH_POOL = (
        "NoSuchPool",
        "On a demand's Lease, not on a pool: it is for a pool that does not exist in its namespace.",
    )
    APPLY_FAILED = "ApplyFailed", "The API server refused an object of the pool, in its words."
    FAILED_CREATE = "FailedCreate", "Kubernetes could not make the pods, in its words."


NOTHING_WANTED: Final = frozenset({ConditionReason.AT_ZERO, ConditionReason.SUSPENDED, ConditionReason.ASLEEP})
"""Reasons of Serving=False under which the pool is Ready: that nobody is served is what was asked for."""

NEVER_STARTS: Final = (
    ConditionReason.FUNCTION_NOT_FOUND,
    ConditionReason.FUNCTION_NOT_LOADABLE,
    ConditionReason.SANDBOX_UNAVAILABLE,
    ConditionReason.NO_ACCELERATOR,
    ConditionReason.NUMBERS_VARY,
)
"""Reasons of Progressing=False of a revision that no other attempt at a worker would make start."""

DOWNLOAD_REASONS: Final = frozenset(
    {
        ConditionReason.MODEL_NOT_FOUND,
        ConditionReason.MODEL_UNAUTHORIZED,
        ConditionReason.MODEL_CHANGED,
        ConditionReason.SOURCE_UNREACHABLE,
        ConditionReason.DOWNLOAD_THROTTLED,
        ConditionReason.DOWNLOAD_STALLED,
        ConditionReason.CHECKSUM_MISMATCH,
        ConditionReason.CACHE_CHANGED,
        ConditionReason.DISK_FULL,
        ConditionReason.CACHE_UNUSABLE,
        ConditionReason.DOWNLOADER_MISSING,
    }
)
"""What a download says of itself."""
