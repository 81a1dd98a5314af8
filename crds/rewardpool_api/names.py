"""Every name that two rooms must agree on: API group, labels, annotations, ports, files and environment variables."""

from typing import Final, Literal

GROUP: Final = "rewardpool.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "RewardPool"
PLURAL: Final = "rewardpools"
SINGULAR: Final = "rewardpool"

FIELD_MANAGER: Final = "rewardpool-operator"
"""The one field manager of every server-side apply of the operator."""
TRAINER_FIELD_MANAGER: Final = "rewardpool-trainer"
"""The one by which training jobs apply the Leases of their demands."""

POOL_NAME_PATTERN: Final = "^[a-z]([a-z0-9-]*[a-z0-9])?$"
"""What a pool may be called: the start of a Service's name, which RFC 1035 bounds more than RFC 1123 other objects'."""
MAX_POOL_NAME: Final = 40
"""Characters a pool's name may have, so that `NAME-worker-REVISION-…` stays a legal pod name and label value."""

# Labels and annotations of owned objects.
LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_COMPONENT: Final = f"{GROUP}/component"
LABEL_REVISION: Final = f"{GROUP}/revision"
COMPONENT_WORKER: Final = "worker"
COMPONENT_ROUTER: Final = "router"
COMPONENT_GATEWAY: Final = "gateway"
COMPONENT_POOL: Final = "pool"
"""Component of the objects that belong to the pool as a whole, such as its keys."""
COMPONENT_FILES: Final = "files"
"""Component of the ConfigMaps of mounted files, which belong to no pool: all pools of a namespace mount them."""

COMPONENT_DEMAND: Final = "demand"
"""Component of the Leases by which training jobs tell what they are going to ask."""
ANNOTATION_DEMAND: Final = f"{GROUP}/demand"
"""On such a Lease: the JSON of `rewardpool_api.demand.Demand`."""

ANNOTATION_DRAINING_SINCE: Final = f"{GROUP}/draining-since"
"""RFC 3339 time at which a worker was told to leave. Its presence is the draining state: it outlives the operator."""

ANNOTATION_KEYS: Final = f"{GROUP}/keys"
"""On a router or gateway pod: hash of the keys that it reads once, so that other keys are other pods."""
ANNOTATION_FLAVOR: Final = f"{GROUP}/flavor"
"""On a router pod: which program it runs, so that one is spoken to rightly while its successor starts."""
ANNOTATION_TLS: Final = f"{GROUP}/tls"
"""On a router pod: hash of the certificate that it serves; absent where it serves HTTP."""
ANNOTATION_ROUTER_TEMPLATE: Final = f"{GROUP}/router-template"
"""On a router pod: hash of the template that it was made from, so that the end of a rollout can be seen in the pods."""
ANNOTATION_CAUSE: Final = f"{GROUP}/cause"
"""On the routers' Deployment: hash of what of the pool's own its template was rendered from. While that is the same,
another template is an upgraded operator's doing."""
CONDITION_HOLDS_WORKERS: Final = f"{GROUP}/holds-workers"
"""Condition of a router pod, set once by the operator, and a gate of its readiness: its list was right once."""

ANNOTATION_SPEC: Final = f"{GROUP}/spec"
"""Canonical JSON of the spec's parts that a revision was rendered from, on its Deployment: what a rollback needs."""
ANNOTATION_TEMPLATE: Final = f"{GROUP}/template"
"""JSON of a revision's pod template as it was rendered, on its Deployment: what undoes an edit by hand when today's
operator would render another one."""
ANNOTATION_GOLDEN_SCORES: Final = f"{GROUP}/golden-scores"
"""A revision's scores of the golden set, on its Deployment: `{"set": hash, "scores": [...]}`."""

ANNOTATION_RESTARTED_AT: Final = f"{GROUP}/restarted-at"
"""On a pool, and from there on its worker pods' template: another value is another revision. By custom a time."""

ANNOTATION_FOLDERS: Final = f"{GROUP}/folders"
"""On a pool of one machine: JSON of its manifest's folder, and of further ones that its function is looked up in."""
ANNOTATION_CODE: Final = f"{GROUP}/code"
"""On a pool of one machine: digest of its function's code; another one is another revision."""

ANNOTATION_RUNTIME: Final = f"{GROUP}/runtime"
"""On a worker pod's template: spec.sandbox.runtime. Its Deployment makes no pods; SandboxClaims that it owns do."""

REVISION_PARTS: Final = ("model", "engine", "worker", "sandbox")
"""The parts of a spec that a revision is made of."""

ANNOTATION_ROTATE_KEY: Final = f"{GROUP}/rotate-key"
"""On a pool: every new value asks for new keys once. On its admin Secret: the last value that was obeyed."""

# Ports inside pods. Processes on one machine take free ports instead.
WORKER_PORT: Final = 8000
ROUTER_PORT: Final = 8080
ROUTER_METRICS_PORT: Final = 9090
GATEWAY_PORT: Final = 5000
GATEWAY_TIMEOUT_SECONDS: Final = 100
"""For one sample of a gateway's, shorter than the 120 s after which slime gives up a request (OpenRLHF: 180 s)."""
GATEWAY_GRACE_SECONDS: Final = 10
"""Beyond that, for the requests in flight when a gateway ends."""

# Files and environment variables a worker or a router is started with.
FILES_DIR: Final = "/etc/rewardpool/files"
"""Where the ConfigMap with the score middleware, or with the router launcher, is mounted."""
PINS_DIR: Final = "/etc/rewardpool/pins"
"""Where the ConfigMap with the pins is mounted for a download."""
KEY_DIR: Final = "/etc/rewardpool/key"
ADMIN_KEY_DIR: Final = "/etc/rewardpool/admin"
GATEWAY_KEY_DIR: Final = "/etc/rewardpool/gateway"
SECRET_KEY: Final = "key"  # noqa: S105 - the name of a Secret's entry, not a secret
"""Entry of every key Secret, and file name inside KEY_DIR, ADMIN_KEY_DIR and GATEWAY_KEY_DIR."""
NEXT_KEY: Final = "next-key"
"""Entry beside SECRET_KEY while a rotation is prepared: workers take it already, routers not yet."""
PREVIOUS_KEY: Final = "previous-key"
"""Entry beside SECRET_KEY while routers change to the key: some of them still take this one instead."""
KEY_NAMES: Final = (SECRET_KEY, NEXT_KEY, PREVIOUS_KEY)
"""Every entry, and file, that may hold a valid key of the data plane; what trainers present first comes first."""
ENV_KEY_FILE: Final = "REWARDPOOL_KEY_FILE"
ENV_ADMIN_KEY_FILE: Final = "REWARDPOOL_ADMIN_KEY_FILE"
TLS_DIR: Final = "/etc/rewardpool/tls"
"""Where a router's certificate and its key are mounted."""
TLS_CERTIFICATE: Final = "tls.crt"
TLS_KEY: Final = "tls.key"
TLS_CA: Final = "ca.crt"
"""Entries of a Secret of type kubernetes.io/tls; the last is optional."""
ENV_ROUTER_PACKAGE: Final = "REWARDPOOL_ROUTER_PACKAGE"
"""Tells the router launcher which program to start."""
ENV_MEMORY_BYTES: Final = "REWARDPOOL_MEMORY_BYTES"
"""Tells the router launcher the container's limit of memory, which bounds the connections that it takes."""
ENV_MODEL_TYPE: Final = "REWARDPOOL_MODEL_TYPE"
ENV_SERVED_NAME: Final = "REWARDPOOL_SERVED_NAME"
ENV_ENGINE: Final = "REWARDPOOL_ENGINE"
"""Tells the score middleware whose answers it reads."""
ENV_MODEL_PATH: Final = "REWARDPOOL_MODEL_PATH"
"""Tells the score middleware where the checkpoint is, as the engine takes it: a folder, or a hub's repository."""
ENV_HEAD: Final = "REWARDPOOL_HEAD"
"""Tells the worker where the score is: `spec.model.head` as JSON; absent without one."""
ENV_TOP_K: Final = "REWARDPOOL_TOP_K"
"""Tells a teacher's worker how many most likely tokens it gives for a position, at most: `spec.model.topK`."""
ENV_STEP_TOKENS: Final = "REWARDPOOL_STEP_TOKENS"
"""Tells the launcher of a teacher on GPUs for how many tokens memory has to be left; absent for other workers."""
ENV_ADAPTERS: Final = "REWARDPOOL_ADAPTERS"
"""Tells the worker its LoRA adapters: a JSON list of `{"name", "path", "revision"}`; absent without any."""
ENV_MAX_BODY_BYTES: Final = "REWARDPOOL_MAX_BODY_BYTES"
ENV_DTYPE: Final = "REWARDPOOL_DTYPE"
"""Tells the score middleware `spec.engine.dtype`, by which the worker's own numbers may differ."""
ENV_CERTIFICATE_SECONDS: Final = "REWARDPOOL_CERTIFICATE_SECONDS"

# What the operator's own pod gets to know of its place.
ENV_POD_NAMESPACE: Final = "POD_NAMESPACE"
ENV_OPERATOR_SELECTOR: Final = "REWARDPOOL_OPERATOR_SELECTOR"
"""`LABEL=VALUE,…` of the operator's pods, for network policies that let them through."""
ENV_MONITORING_NAMESPACES: Final = "REWARDPOOL_MONITORING_NAMESPACES"
"""`NAMESPACE,…` whose pods may read metrics of workers and routers."""
ENV_POOL_DEFAULTS: Final = "REWARDPOOL_POOL_DEFAULTS"
"""What the pods of all pools have unless the pool says otherwise, as JSON."""
ENV_BUDGETS: Final = "REWARDPOOL_BUDGETS"
"""Budgets over namespaces, as JSON."""
ENV_AGENT_SANDBOX: Final = "REWARDPOOL_AGENT_SANDBOX"
"""`true` where the operator may watch and make SandboxClaims."""

DOWNLOAD_PATH: Final = "/rewardpool/download"
"""How far a worker's download is, served by its init container on the worker's port."""
PINS_FILE: Final = "pins.json"
"""Entry of a ConfigMap of its own: revision of workers -> commit of the model."""
ENV_REVISION: Final = "REWARDPOOL_REVISION"
"""Tells a worker which revision it is of: answers name it, and a download finds its pin by it."""
ENV_WORKER: Final = "REWARDPOOL_WORKER"
"""The name by which a worker's answers name it; without it that is the machine's, which is a pod's own."""
ROUTER_LIMIT: Final = "spec.router.requestTimeoutSeconds"
"""What decides how long a router waits for a worker's answer."""
SandboxNetwork = Literal["Pod", "None"]
OnMissing = Literal["Refuse", "Weaken"]
SandboxRuntime = Literal["AgentSandbox"]
"""All of spec.sandbox; here, since a function's worker starts in less time without pydantic."""
FUNCTION_LIMIT: Final = "spec.sandbox.cpuSeconds plus spec.sandbox.idleSeconds"
"""What decides how long a function's call may take at a worker."""
WORKERS_METRICS_PATH: Final = "/engine_metrics"
"""Of both routers: the metrics of all their workers, an error while one of these is silent."""
SERIES_REQUEST_SECONDS: Final = "rewardpool_request_seconds"
"""Of a worker: how long it has worked on a request, by the request's id in the label `request`."""
SERIES_PLACES: Final = "rewardpool_worker_places"
"""Of a worker: how many calls of the function it runs at once."""
READY_PATH: Final = "/rewardpool/ready"
"""Answers 200 only after a real score came back. Served by the middleware and by the function server."""
LOAD_PATH: Final = "/rewardpool/load"
"""Answers `{"in_flight": n}`, the requests that the worker itself is working on. Needs the key."""
SLEEP_PATH: Final = "/rewardpool/sleep"
WAKE_PATH: Final = "/rewardpool/wake"
"""POST puts the worker's engine to sleep, and wakes it. GET of the first tells which it is. Both need the key, and are
there where `spec.engine.sleep.enabled`."""
ENV_SLEEP_MAX_ABS_DIFF: Final = "REWARDPOOL_SLEEP_MAX_ABS_DIFF"
"""Tells the middleware that the engine sleeps, and how far a woken one's numbers may be from those before."""

# One machine.
ENV_STATE_DIR: Final = "REWARDPOOL_STATE_DIR"
ENV_SERVER_PYTHON: Final = "REWARDPOOL_SERVER_PYTHON"
"""The interpreter that has vLLM and sglang-router; by default the one that runs `rewardpool`."""
ENV_POOL: Final = "REWARDPOOL_POOL"
"""`namespace/name`. For a trainer: the pool to use. On a process of a local pool: the pool it belongs to."""
ENV_URL: Final = "REWARDPOOL_URL"
ENV_CA_FILE: Final = "REWARDPOOL_CA_FILE"
ENV_JOB: Final = "REWARDPOOL_JOB"
"""Name of a training job, by which it announces its demand."""
ENV_ANNOUNCE: Final = "REWARDPOOL_ANNOUNCE"
"""`false` keeps a training job from announcing its demand."""
STATE_FILE: Final = "pool.json"
KEY_FILE: Final = "key"


def key_secret(pool: str) -> str:
    """Name of the Secret with the key of the data plane, which trainers may read."""
    return f"{pool}-key"


def admin_secret(pool: str) -> str:
    """Name of the Secret with the key of the routers' worker list, which only operator and routers may read."""
    return f"{pool}-router-admin"


FILES_PREFIX: Final = "rewardpool-files-"


def files_config_map(content: str) -> str:
    """Name of the immutable ConfigMap with files mounted into stock images, by the hash of its content."""
    return f"{FILES_PREFIX}{content}"


def pins_config_map(pool: str) -> str:
    """Name of the ConfigMap with the commit that each revision serves."""
    return f"{pool}-pins"


def router_name(pool: str) -> str:
    """Name of the router Deployment and of the Service in front of it."""
    return f"{pool}-router"


def router_host(pool: str, namespace: str) -> str:
    """Host of the pool's URL in a cluster; a router's certificate is for this name."""
    return f"{router_name(pool)}.{namespace}.svc"


def gateway_name(pool: str) -> str:
    """Name of the gateway's Deployment and Service, and of the Secret with the key that its callers present."""
    return f"{pool}-gateway"


def gateway_url(pool: str, namespace: str) -> str:
    """URL of the gateway in a cluster."""
    return f"http://{gateway_name(pool)}.{namespace}.svc:{GATEWAY_PORT}"


def worker_name(pool: str, revision: str) -> str:
    """Name of the worker Deployment of one revision."""
    return f"{pool}-worker-{revision}"
