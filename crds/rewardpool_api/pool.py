"""The RewardPool object: which reward model, on which engine, how many, and how it scales.

Read it from the bottom up: `RewardPool` has a `RewardPoolSpec` (what the user wants) and a `RewardPoolStatus` (what is).
The docstrings below are the field descriptions of the CRD and of the documentation.
"""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from rewardpool_api import names
from rewardpool_api.autoscaling import AutoscalingSpec
from rewardpool_api.engines import TEACHER_STEP_TOKENS, EngineName, engines_where
from rewardpool_api.environment import EnvVar
from rewardpool_api.inference import INFERRED, with_inferred
from rewardpool_api.model import ModelSpec
from rewardpool_api.pod_template import GatewayTemplate, RouterTemplate
from rewardpool_api.quantities import EntryName, ObjectName, ShortText
from rewardpool_api.rules import ApiModel, Rule
from rewardpool_api.sandbox import SandboxSpec, mib
from rewardpool_api.source import FUNCTION_SCHEME, is_function
from rewardpool_api.status import RewardPoolStatus
from rewardpool_api.teacher_wire import VOCABULARY_DIGEST
from rewardpool_api.worker import WorkerSpec

RouterFlavor = Literal["sglang-router", "smg"]
NamespaceName = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
_WITHOUT_SLEEP_OR_SPLIT = engines_where(lambda can: not (can.sleeps and can.splits))
_GENERATING, _NOT_GENERATING = engines_where(lambda can: can.generates), engines_where(lambda can: not can.generates)
_WITHOUT_HEADS = engines_where(lambda can: can.heads == "none")
_WITH_STEPS, _WITHOUT_STEPS = (
    engines_where(lambda can: can.heads == "steps"),
    engines_where(lambda can: can.heads == "last token"),
)
_WITH_ADAPTERS, _WITHOUT_ADAPTERS = engines_where(lambda can: can.adapters), engines_where(lambda can: not can.adapters)
_INVARIANT_ON_CPU = engines_where(lambda can: can.invariant_on_cpu)
_INVARIANT_ON_GPU = engines_where(lambda can: not can.invariant_on_cpu)
_IS_FUNCTION = f"self.model.source.startsWith('{FUNCTION_SCHEME}')"
_GPUS = f"(has(self.worker.gpus) ? self.worker.gpus : ({_IS_FUNCTION} ? 0 : 1))"
"""In CEL, what `rewardpool_api.inference` infers in Python."""
# Engines also take underscores for hyphens, and SGLang takes the beginning of a flag for the flag. The expressions are
# RE2 as well as Python's, and short: an API server refuses a schema whose rules could cost too much.
_KEY_ARGUMENT = "^--(api?([-_](k[^=]*)?)?|admin[^=]*)(=|$)"
_SANDBOX_ARGUMENT = "^--(concurrency|cpu-seconds|idle-seconds|memory-mib|calls-per-process|network|on-missing)(=|$)"
_OWN_ARGUMENT = "^--(model([-_]p[^=]*)?|serve[^=]*|function|host?|port?|uds|runner|is[-_]e[^=]*|middleware|config?|ssl[-_][^=]*)(=|$)"
_STEP_ARGUMENT = "^--(max[-_]num[-_]b[^=]*|kv[-_]cache[-_]mem[^=]*|enable-dp-a[^=]*)(=|$)"
_STEP_VARIABLES = ("SGLANG_ENABLE_LOGPROB_CHUNK", "SGLANG_LOGPROB_CHUNK_SIZE")
"""By which a teacher's step would take more memory than is left for it, or as much as is not known."""


class SleepSpec(ApiModel):
    """Colocation with the trainer on the same GPUs."""

    enabled: bool = False
    """Start the engine so that it sleeps, its weights kept in the machine's memory, whenever no trainer holds the pool awake. For one machine and GPU engines only."""
    max_abs_diff: Annotated[float, Field(ge=0)] = 0.01
    """Largest difference between the score of a probe before the engine first slept and after each wake, in units of the raw score (of a judge or teacher: of a log-probability). An engine beyond it lost its weights: it answers nothing and is started again."""


class EngineSpec(ApiModel):
    """Which server runs the model, and how."""

    name: Annotated[EngineName, INFERRED] = "vllm"
    """`vllm`, `sglang`, `transformers` for a reward model that only its own code can score, or `python` for a Function model. Default: python for a `python://` source, vllm for any other."""
    image: ShortText | None = None
    """Container image. Default: the engine's stock image; it needs no code of RewardPool."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Number format of the weights. Raw scores differ between formats; see the documentation on parity."""
    deterministic: bool = False
    """Make a sample's numbers independent of the other samples in its batch: vLLM by VLLM_BATCH_INVARIANT, SGLang by --enable-deterministic-inference, both on GPUs only, transformers by one sample at a time. Reduces throughput."""
    max_model_len: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Maximum length of a sample in tokens. Default: the model's own limit."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of GPUs of one node across which the engine splits one replica's weights."""
    args: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=64)] = []
    """Further command-line arguments for the engine, after RewardPool's own."""
    env: Annotated[
        list[EnvVar],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []
    """Environment variables of the engine and of the model's download, as in a Pod. Variables that RewardPool sets take precedence."""
    sleep: SleepSpec = SleepSpec()
    """Lets the engine sleep while a trainer uses the same GPUs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.env) || self.env.all(one, self.env.exists_one(other, other.name == one.name))",
            message="spec.engine.env[].name must not be that of another variable",
            holds=lambda engine: len({variable.name for variable in engine.env}) == len(engine.env),
        ),
        Rule(
            cel=f"!has(self.args) || !self.args.exists(arg, arg.matches('{_KEY_ARGUMENT}'))",
            message="spec.engine.args must not have --api-key, which everybody could read: workers take the key of spec.router.auth",
            holds=lambda engine: not any(re.match(_KEY_ARGUMENT, arg) for arg in engine.args),
        ),
        Rule(
            cel=f"!has(self.args) || !self.args.exists(arg, arg.matches('{_OWN_ARGUMENT}'))",
            message="spec.engine.args must not have --model, --model-path, --served-model-name, --function, --served-name, --host, --port, --uds, --runner, --is-embedding, --middleware, --ssl-keyfile or --config, which are RewardPool's own: the model is spec.model, and workers are reached at an address and by a name that RewardPool chooses",
            holds=lambda engine: not any(re.match(_OWN_ARGUMENT, arg) for arg in engine.args),
        ),
        Rule(
            cel=f"!has(self.args) || !self.args.exists(arg, arg.matches('{_SANDBOX_ARGUMENT}'))",
            message="spec.engine.args must not have --concurrency, --cpu-seconds, --idle-seconds, --memory-mib, --calls-per-process, --network or --on-missing: set concurrency, cpuSeconds, idleSeconds, memory, callsPerProcess, network or onMissing of spec.sandbox",
            holds=lambda engine: not any(re.match(_SANDBOX_ARGUMENT, arg) for arg in engine.args),
        ),
        Rule(
            cel=f"!has(self.name) || !(self.name in {[*_WITHOUT_SLEEP_OR_SPLIT]}) || ((!has(self.sleep) || !self.sleep.enabled) && (!has(self.tensorParallelSize) || self.tensorParallelSize == 1))",
            message=f"spec.engine.sleep.enabled must be false and spec.engine.tensorParallelSize 1 when spec.engine.name is {' or '.join(_WITHOUT_SLEEP_OR_SPLIT)}: its server neither sleeps nor splits a model",
            holds=lambda engine: (
                engine.name not in _WITHOUT_SLEEP_OR_SPLIT
                or not (engine.sleep.enabled or engine.tensor_parallel_size > 1)
            ),
        ),
        Rule(
            cel="!has(self.sleep) || !self.sleep.enabled || !has(self.args) || "
            "!self.args.exists(arg, arg.matches('^--(api-server-count|data-parallel-size)(=|$)'))",
            message="spec.engine.args must not have --api-server-count or --data-parallel-size when spec.engine.sleep.enabled: several servers of one engine would not know that it sleeps; raise spec.replicas",
            holds=lambda engine: (
                not engine.sleep.enabled
                or not any(re.match(r"--(api-server-count|data-parallel-size)(=|$)", arg) for arg in engine.args)
            ),
        ),
    )

    @property
    def variables(self) -> dict[str, str]:
        """The variables whose value is written down, by name; those of a `valueFrom` are the pod's to find."""
        return {variable.name: variable.value or "" for variable in self.env if variable.value_from is None}


class RouterAuth(ApiModel):
    """Who may score."""

    mode: Literal["Generated", "Disabled"] = "Generated"
    """Generated: a key is created and stored in the Secret `NAME-key`, or in a file of mode 0600 on one machine. Disabled: anyone who can reach the router may score."""

    @property
    def uses_key(self) -> bool:
        """True if scoring takes a key."""
        return self.mode == "Generated"


class RouterTls(ApiModel):
    """A certificate for the routers."""

    secret_name: ObjectName
    """Secret of the pool's namespace, of type kubernetes.io/tls: `tls.crt`, `tls.key`, and `ca.crt` for a CA that trainers do not know. The certificate must be for `NAME-router.NAMESPACE.svc`."""


class RouterSpec(ApiModel):
    """The router in front of the workers."""

    flavor: RouterFlavor = "sglang-router"
    """Router program: `sglang-router` 0.3, or its successor `smg` 1.13. RewardPool's own image has both."""
    replicas: Annotated[int, Field(ge=1, le=16)] | None = None
    """Number of router replicas in front of the workers. Default: that of the chart's poolDefaults, else 1. One machine always runs one."""
    image: ShortText | None = None
    """Container image that has the router's program. Default: RewardPool's own image."""
    request_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """Timeout of one scoring request at a worker; set it above the slowest real one."""
    pod_template: RouterTemplate = {}
    """Merged over the rendered pod template of the routers; containers merge by name (`router`)."""
    auth: RouterAuth = RouterAuth()
    """Whether scoring needs a key."""
    tls: RouterTls | None = None
    """Serve HTTPS instead of HTTP, with this certificate. In a cluster only."""


class GatewaySpec(ApiModel):
    """The gateway in front of a teacher's routers, for trainers that ask a URL in words of their own."""

    replicas: Annotated[int, Field(ge=1, le=16)] = 1
    """Number of gateway replicas. One machine always runs one."""
    request_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] = names.GATEWAY_TIMEOUT_SECONDS
    """Longest one sequence may take, with retries and the wait for a worker, before its request fails; shorter than the trainer's own limit."""
    vocabulary: Annotated[str, Field(pattern=VOCABULARY_DIGEST)] | None = None
    """Digest of the student's vocabulary (docs/teachers.md). The pool is not Ready while its model has another one, and no answer of such a model is passed on. Default: trainers' URLs name no vocabulary, so none is compared."""
    pod_template: GatewayTemplate = {}
    """Merged over the rendered pod template of the gateways; containers merge by name (`gateway`)."""


class NetworkSpec(ApiModel):
    """Who may connect to the pool's pods, where the cluster's network plugin enforces policies."""

    policy: Literal["Generated", "OpenRouters", "Disabled"] = "Generated"
    """Generated: NetworkPolicies by which workers take connections from the pool's routers and the operator alone, and routers and gateway from the pool's own namespace, the operator's and `namespaces`. OpenRouters: the same for workers, while routers and gateway accept every connection, so that only the key protects them. Disabled: RewardPool creates no NetworkPolicies."""
    namespaces: Annotated[list[NamespaceName], Field(max_length=64)] = []
    """Namespaces whose pods may score, beside the pool's own and the operator's."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.policy == 'Generated' || !has(self.namespaces) || size(self.namespaces) == 0",
            message="spec.network.namespaces must be empty unless spec.network.policy is Generated: nothing would restrict them",
            holds=lambda network: network.policy == "Generated" or not network.namespaces,
        ),
    )


class GoldenSetRef(ApiModel):
    """A ConfigMap of the pool's namespace with texts to score."""

    name: ObjectName
    """Name of a ConfigMap in the pool's namespace that holds the golden set."""
    key: EntryName = "golden.jsonl"
    """Entry of the ConfigMap: one JSON object per line, `{"text": "...", "score": 0.42}`, at most 256; `score` is optional. For a Function the text is the sample's JSON."""


class ParitySpec(ApiModel):
    """A check of a new revision's scores before it takes traffic."""

    golden_set_ref: GoldenSetRef
    """The texts, with expected scores or without; those without are compared with the scores of the stable revision."""
    max_abs_diff: Annotated[float, Field(ge=0)]
    """Largest difference that is accepted, in units of the raw score. Other number formats, engines or kernels differ by some; see the documentation on parity."""


_NEEDED = "self.sandbox.concurrency * quantity(self.sandbox.memory).asInteger()"
_LIMIT = "quantity(string(self.worker.resources.limits['memory'])).asInteger()"
"""In CEL, what `_calls_fit` compares."""


def _calls_fit(spec: "RewardPoolSpec") -> bool:
    """True if the calls that run at once fit the container's memory, or one of the three numbers is not set."""
    limit, sandbox = spec.worker.resources.limits.get("memory"), spec.sandbox
    if limit is None or sandbox is None or sandbox.memory_mib is None or sandbox.concurrency is None:
        return True
    return sandbox.concurrency * sandbox.memory_mib <= mib(limit)


class RolloutSpec(ApiModel):
    """Strategy by which a changed pod template reaches the replicas."""

    strategy: Literal["Auto", "Surge", "Replace"] = "Auto"
    """Surge: new replicas start before old ones leave. Replace: an old one leaves first, for clusters without a spare GPU. Auto: Surge until a new replica cannot be scheduled, then Replace."""
    progress_deadline_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    """Seconds without a serving replica, not counting downloads of the model, after which a new revision has failed and the stable revision is restored. Also the time limit of a replica's start. Default: 900, and 300 more for every GPU of a replica beyond the first."""
    paused: bool = False
    """Keep and scale the stable revision, and hold back a newer one until this is false."""
    parity: ParitySpec | None = None
    """Compare the scores of a golden set before a new revision takes traffic. On Kubernetes; one machine has no ConfigMaps and warns."""


class RewardPoolSpec(ApiModel):
    """The desired pool: its model, its size, and how it changes. Written by users alone."""

    model: ModelSpec
    """Reward model that the pool serves, and how it scores."""
    engine: EngineSpec = EngineSpec()
    """Server that runs the model in each replica, and its settings."""
    worker: WorkerSpec = WorkerSpec()
    """GPUs, resources, labels and annotations of each replica's pod."""
    sandbox: SandboxSpec | None = None
    """Limits and isolation of a function's calls, and what a replica does if its machine cannot enforce them. Without it, each replica enforces what its machine supports, and the condition Sandboxed says what is missing."""
    router: RouterSpec = RouterSpec()
    """Router that spreads requests over the replicas."""
    gateway: GatewaySpec | None = None
    """Run a gateway beside the routers of a pool of type Teacher; `{}` takes the defaults. status.gateway has its URL and where its key is. If the field is removed, the gateway stops; its Service and Secret stay until the pool is deleted."""
    network: NetworkSpec = NetworkSpec()
    """Which pods may connect to the pool's pods."""
    replicas: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Number of replicas, for a pool without autoscaling or with policy External. Default 1."""
    autoscaling: AutoscalingSpec | None = None
    """Bounds and policies by which the pool scales itself. Without it the pool keeps spec.replicas."""
    rollout: RolloutSpec = RolloutSpec()
    """How a changed spec reaches the running replicas."""
    suspend: bool = False
    """Scale the pool to zero replicas and keep it there. The router and its URL stay."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.replicas) || !has(self.autoscaling) || (has(self.autoscaling.policy) && self.autoscaling.policy.type == 'External')",
            message="spec.replicas must not be set beside spec.autoscaling unless spec.autoscaling.policy.type is External",
            holds=lambda spec: spec.replicas is None or spec.autoscaling is None or spec.autoscaling.is_external,
        ),
        Rule(
            cel=f"!has(self.engine.name) || (self.engine.name == 'python') == {_IS_FUNCTION}",
            message="spec.engine.name must be python when spec.model.source is python://MODULE:FUNCTION, and only then: leave spec.engine.name out",
            holds=lambda spec: (spec.engine.name == "python") == is_function(spec.model.source),
        ),
        Rule(
            cel=f"!has(self.engine.name) || !(self.engine.name in {[*_NOT_GENERATING]}) || !has(self.model.type) || self.model.type == 'Discriminative'",
            message=f"spec.model.type must be Discriminative when spec.engine.name is {' or '.join(_NOT_GENERATING)}: judges that write, and teachers, are for {' and '.join(_GENERATING)}",
            holds=lambda spec: spec.engine.name not in _NOT_GENERATING or spec.model.type == "Discriminative",
        ),
        Rule(
            cel=f"{_GPUS} == 0 || self.engine.tensorParallelSize <= {_GPUS}",
            message="spec.engine.tensorParallelSize must not be greater than spec.worker.gpus",
            holds=lambda spec: spec.worker.gpus == 0 or spec.engine.tensor_parallel_size <= spec.worker.gpus,
        ),
        Rule(
            cel=f"!has(self.sandbox) || {_IS_FUNCTION}",
            message="spec.sandbox must not be set unless spec.model.source is python://MODULE:FUNCTION: other engines run no code of a user's in processes of their own",
            holds=lambda spec: spec.sandbox is None or is_function(spec.model.source),
        ),
        Rule(
            cel="!has(self.sandbox) || !has(self.sandbox.memory) || !has(self.sandbox.concurrency) || !has(self.worker.resources.limits) || !('memory' in self.worker.resources.limits) || "
            f"{_NEEDED} <= {_LIMIT}",
            message="spec.sandbox.concurrency times spec.sandbox.memory must not be more than spec.worker.resources.limits.memory: a call that is within its limit would end the whole container",
            holds=_calls_fit,
        ),
        Rule(
            cel=f"!has(self.engine.deterministic) || !self.engine.deterministic || !{_IS_FUNCTION}",
            message="spec.engine.deterministic must be false when spec.engine.name is python: what a function returns is its own affair",
            holds=lambda spec: not spec.engine.deterministic or spec.engine.name != "python",
        ),
        Rule(
            cel=f"!has(self.engine.deterministic) || !self.engine.deterministic || {_IS_FUNCTION} || (has(self.engine.name) && self.engine.name in {[*_INVARIANT_ON_CPU]}) || {_GPUS} > 0",
            message=f"spec.engine.deterministic must be false when spec.worker.gpus is 0, unless spec.engine.name is {' or '.join(_INVARIANT_ON_CPU)}: {' and '.join(_INVARIANT_ON_GPU)} have no batch invariance on a CPU; `rewardpool verify --determinism` shows whether the numbers there need it",
            holds=lambda spec: (
                not spec.engine.deterministic
                or spec.engine.name in (*_INVARIANT_ON_CPU, "python")
                or spec.worker.gpus > 0
            ),
        ),
        Rule(
            cel=f"!self.engine.sleep.enabled || !{_IS_FUNCTION}",
            message="spec.engine.sleep.enabled must be false when spec.engine.name is python: a function has no weights on a GPU",
            holds=lambda spec: not spec.engine.sleep.enabled or spec.engine.name != "python",
        ),
        Rule(
            cel=f"!self.engine.sleep.enabled || {_GPUS} > 0",
            message="spec.worker.gpus must be at least 1 when spec.engine.sleep.enabled: engines sleep on GPUs only",
            holds=lambda spec: not spec.engine.sleep.enabled or spec.worker.gpus > 0,
        ),
        Rule(
            cel="!self.engine.sleep.enabled || !has(self.autoscaling)",
            message="spec.autoscaling must not be set when spec.engine.sleep.enabled: the pool has the trainer's own GPUs, and their number is fixed; set spec.replicas",
            holds=lambda spec: not spec.engine.sleep.enabled or spec.autoscaling is None,
        ),
        Rule(
            cel=f"!has(self.autoscaling) || self.autoscaling.parked == 0 || {_GPUS} == 0",
            message="spec.autoscaling.parked must not be set when spec.worker.gpus is at least 1: a parked replica would hold its GPUs; raise spec.autoscaling.minReplicas to keep some warm",
            holds=lambda spec: spec.autoscaling is None or not spec.autoscaling.parked or spec.worker.gpus == 0,
        ),
        Rule(
            cel="!has(self.model.type) || !(self.model.type in ['Generative', 'Teacher']) || !has(self.rollout.parity)",
            message="spec.rollout.parity must not be set when spec.model.type is Generative or Teacher: those give texts no score to compare",
            holds=lambda spec: spec.model.type not in ("Generative", "Teacher") or spec.rollout.parity is None,
        ),
        Rule(
            cel=f"!has(self.model.type) || self.model.type != 'Teacher' || !has(self.engine.args) || !self.engine.args.exists(arg, arg.matches('{_STEP_ARGUMENT}'))",
            message=f"spec.engine.args must not have --max-num-batched-tokens, --kv-cache-memory-bytes or --enable-dp-attention when spec.model.type is Teacher: memory is left for log-probabilities of {TEACHER_STEP_TOKENS} tokens at once, and numbers depend on it; set --gpu-memory-utilization or --mem-fraction-static",
            holds=lambda spec: (
                spec.model.type != "Teacher" or not any(re.match(_STEP_ARGUMENT, arg) for arg in spec.engine.args)
            ),
        ),
        Rule(
            cel=f"!has(self.model.type) || self.model.type != 'Teacher' || !has(self.engine.env) || !self.engine.env.exists(one, one.name in {[*_STEP_VARIABLES]})",
            message=f"spec.engine.env must not have {' or '.join(_STEP_VARIABLES)} when spec.model.type is Teacher: memory is left for log-probabilities of {TEACHER_STEP_TOKENS} tokens at once",
            holds=lambda spec: (
                spec.model.type != "Teacher" or not any(one.name in _STEP_VARIABLES for one in spec.engine.env)
            ),
        ),
        Rule(
            cel="!has(self.gateway) || (has(self.model.type) && self.model.type == 'Teacher')",
            message="spec.gateway must not be set unless spec.model.type is Teacher: for other pools run `rewardpool gateway`, which takes the tokenizers that they need",
            holds=lambda spec: spec.gateway is None or spec.model.type == "Teacher",
        ),
        Rule(
            cel="!has(self.gateway) || !has(self.router) || !has(self.router.tls)",
            message="spec.router.tls must not be set beside spec.gateway, which has no HTTPS: leave one of them out",
            holds=lambda spec: spec.gateway is None or spec.router.tls is None,
        ),
        Rule(
            cel=f"!has(self.model.head) || !has(self.model.head.stepToken) || !has(self.engine.name) || !(self.engine.name in {[*_WITHOUT_STEPS]})",
            message=f"spec.model.head.stepToken must not be set when spec.engine.name is {' or '.join(_WITHOUT_STEPS)}, which has the value of the last token alone: steps are for {' and '.join(_WITH_STEPS)}",
            holds=lambda spec: (
                spec.model.head is None or spec.model.head.step_token is None or spec.engine.name not in _WITHOUT_STEPS
            ),
        ),
        Rule(
            cel=f"!has(self.model.head) || !has(self.engine.name) || !(self.engine.name in {[*_WITHOUT_HEADS]})",
            message=f"spec.model.head must not be set when spec.engine.name is {' or '.join(_WITHOUT_HEADS)}: the checkpoint's one label or its own code gives the score",
            holds=lambda spec: spec.model.head is None or spec.engine.name not in _WITHOUT_HEADS,
        ),
        Rule(
            cel=f"!has(self.model.adapters) || size(self.model.adapters) == 0 || ((!has(self.engine.name) || self.engine.name in {[*_WITH_ADAPTERS]}) && !self.engine.sleep.enabled)",
            message=f"spec.model.adapters must not be set unless spec.engine.name is {' or '.join(_WITH_ADAPTERS)} and spec.engine.sleep.enabled false: {' and '.join(_WITHOUT_ADAPTERS)} would score without them, and a wake would be proved for the base alone",
            holds=lambda spec: (
                not spec.model.adapters or (spec.engine.name in _WITH_ADAPTERS and not spec.engine.sleep.enabled)
            ),
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _infer(cls, spec: Any) -> Any:
        return with_inferred(spec)

    @property
    def start_seconds(self) -> int:
        """Limit on a replica's time from having its model's files to its first score.

        A GPU more stands for up to 140 GB more to read; 300 s for that is a disk of 0.5 GB/s.
        """
        given = self.rollout.progress_deadline_seconds
        return given if given is not None else 900 + 300 * max(0, self.worker.gpus - 1)


class ObjectMeta(ApiModel):
    """The part of Kubernetes' object metadata that RewardPool reads; the rest is accepted and left alone."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
    namespace: NamespaceName = "default"
    uid: str | None = None
    generation: int = 1
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[dict[str, Any]] = []
    managed_fields: list[dict[str, Any]] = []
    generate_name: str | None = None
    self_link: str | None = None


class RewardPool(ApiModel):
    """A fleet of reward-model servers behind one router."""

    api_version: Literal["rewardpool.dev/v1alpha1"] = "rewardpool.dev/v1alpha1"
    kind: Literal["RewardPool"] = "RewardPool"
    metadata: ObjectMeta
    spec: RewardPoolSpec
    status: RewardPoolStatus = RewardPoolStatus()

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.metadata.name.matches('{names.POOL_NAME_PATTERN}')",
            message="metadata.name must have only lower-case letters, digits and '-', begin with a letter and not end with '-': the pool's Service is named after it",
            holds=lambda pool: re.fullmatch(names.POOL_NAME_PATTERN, pool.metadata.name) is not None,
        ),
        Rule(
            cel=f"size(self.metadata.name) <= {names.MAX_POOL_NAME}",
            message=f"metadata.name must have at most {names.MAX_POOL_NAME} characters",
            holds=lambda pool: len(pool.metadata.name) <= names.MAX_POOL_NAME,
        ),
        Rule(
            cel="!has(self.spec.router) || !has(self.spec.router.tls) || "
            "!(self.spec.router.tls.secretName in [self.metadata.name + '-key', self.metadata.name + '-router-admin'])",
            message="spec.router.tls.secretName must not be a Secret with the pool's keys: name one of type kubernetes.io/tls",
            holds=lambda pool: (
                pool.spec.router.tls is None
                or pool.spec.router.tls.secret_name
                not in (names.key_secret(pool.metadata.name), names.admin_secret(pool.metadata.name))
            ),
        ),
        Rule(
            cel="!has(self.spec.model.adapters) || !self.spec.model.adapters.exists(adapter, adapter.name == self.metadata.name)",
            message="spec.model.adapters[].name must not be the pool's own name, which is the base's: give the adapter another",
            holds=lambda pool: pool.metadata.name not in (adapter.name for adapter in pool.spec.model.adapters),
        ),
    )

    @property
    def request_limits(self) -> dict[str, float]:
        """Seconds that one request may take, by the setting that decides it."""
        limits = {names.ROUTER_LIMIT: float(self.spec.router.request_timeout_seconds)}
        if is_function(self.spec.model.source):
            sandbox = self.spec.sandbox or SandboxSpec()
            limits[names.FUNCTION_LIMIT] = sandbox.cpu_seconds + sandbox.idle_seconds
        return limits

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The names of the model's adapters, sorted."""
        return tuple(sorted(adapter.name for adapter in self.spec.model.adapters))

    @property
    def key(self) -> str:
        """`namespace/name`, the pool's name in a trainer's config."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def served_name(self) -> str:
        """The `model` of a request: the pool's name, whatever the weights are called."""
        return self.metadata.name
