"""The CRD on a real API server: it refuses what `load_manifest` refuses, in the same words, with the same defaults."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.command_lines import manifests

from cluster.control_plane import ControlPlane
from cluster.processes import ClusterError
from rewardpool_api import ManifestError, dump_manifest, load_manifest, names
from rewardpool_api.inference import inferred
from rewardpool_api.pool import RewardPool
from rewardpool_api.rules import ApiModel, Rule
from rewardpool_api.worker import WorkerSpec

pytestmark = pytest.mark.real

NAMESPACE = "api"
MISSING = object()


@pytest.fixture(scope="module", autouse=True)
def _namespace(control_plane: ControlPlane) -> Iterator[None]:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    yield
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def a_manifest(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A good manifest with some fields, by dotted path, set or (MISSING) left out."""
    manifest: dict[str, Any] = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "pool", "namespace": NAMESPACE},
        "spec": {"model": {"source": "hf://org/model"}},
    }
    for path, value in (changes or {}).items():
        *parents, field = path.split(".")
        place = manifest
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is MISSING:
            del place[field]
        else:
            place[field] = value
    return manifest


QUEUE = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 8}}


def scaled(**autoscaling: Any) -> dict[str, Any]:
    """A pool of at most two replicas."""
    return {"spec.autoscaling": {"maxReplicas": 2, **autoscaling}}


CLASSIFIER = {"type": "Classifier", "weights": [0.5, -1]}
STEPS = {"type": "TokenLevel", "stepToken": "<s>", "aggregate": "min"}

TOKEN = {"secretKeyRef": {"name": "hub", "key": "token"}}

SAFE = {"name": "safe", "source": "file:///adapters/safe"}

VIOLATIONS: dict[str, dict[str, Any]] = {
    "bad source": {"spec.model.source": "ftp://somewhere/model"},
    "source that leaves its folder": {"spec.model.source": "file:///models/../etc"},
    "queue depth without its settings": scaled(policy={"type": "QueueDepth"}),
    "drain time without its settings": scaled(policy={"type": "DrainTime"}),
    "demand without its settings": scaled(policy={"type": "Demand"}),
    "settings of another policy": scaled(policy={**QUEUE, "demand": {}}),
    "no policy at all": scaled(),
    "a policy beside policies": scaled(policy=QUEUE, policies=[QUEUE]),
    "a policy twice": scaled(policies=[QUEUE, QUEUE]),
    "a size from outside beside a policy": scaled(policies=[QUEUE, {"type": "External"}]),
    "a step of no size": scaled(policy=QUEUE, scaleUp={"step": {"periodSeconds": 5}}),
    "more at least than at most": scaled(minReplicas=3, policy=QUEUE),
    "more at least than the budget has": scaled(minReplicas=2, policy=QUEUE, budget={"name": "gpus", "maxReplicas": 1}),
    "parked replicas with GPUs": scaled(policy=QUEUE, parked=1),
    "more parked than there may be": {**scaled(policy=QUEUE, parked=3), "spec.worker.gpus": 0},
    "parked replicas in a budget": {
        **scaled(policy=QUEUE, parked=1, budget={"name": "gpus", "maxReplicas": 4}),
        "spec.worker.gpus": 0,
    },
    "replicas beside an autoscaler": {"spec.replicas": 2, **scaled(policy=QUEUE)},
    "function on an engine for models": {
        "spec.model": {"source": "python://rewards:score", "type": "Function"},
        "spec.engine.name": "vllm",
    },
    "source of a model for a function": {"spec.model.type": "Function"},
    "source of a function for a judge": {"spec.model": {"source": "python://rewards:score", "type": "Generative"}},
    "function on an engine for models, for want of a type": {
        "spec.model.source": "python://rewards:score",
        "spec.engine.name": "vllm",
    },
    "a function's server for a model": {"spec.engine.name": "python"},
    "more shards than the one GPU that nobody wrote": {"spec.engine.tensorParallelSize": 2},
    "a head of a function that says no more than its source": {
        "spec.model": {"source": "python://rewards:score", "head": CLASSIFIER}
    },
    "a function that sleeps and says no more than its source": {
        "spec.model.source": "python://rewards:score",
        "spec.engine.sleep": {"enabled": True},
    },
    "credentials for no bucket": {"spec.model.credentialsSecretRef": {"name": "s3"}},
    "comparing what a judge writes": {
        "spec.model.type": "Generative",
        "spec.rollout.parity": {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.1},
    },
    "more shards than GPUs": {"spec.worker.gpus": 2, "spec.engine.tensorParallelSize": 4},
    "too long a name": {"metadata.name": "n" * 41},
    "a name that begins with a digit": {"metadata.name": "70b-judge"},
    "a name with a dot": {"metadata.name": "rm.v2"},
    "a key among the arguments": {"spec.engine.args": ["--dtype", "--api-key=everybody-reads-this"]},
    "the name that the server serves": {"spec.engine.args": ["--served-model-name", "my-rm"]},
    "the name with underscores": {"spec.engine.args": ["--served_model_name=my-rm"]},
    "the beginning of the name": {"spec.engine.args": ["--served=my-rm"]},
    "a hub folder that is relative": {"spec.engine.env": [{"name": "HF_HOME", "value": "hf"}]},
    "a variable with a key": {"spec.engine.env": [{"name": "VLLM_API_KEY", "value": "everybody-reads-this"}]},
    "namespaces that nothing would restrict": {"spec.network": {"policy": "Disabled", "namespaces": ["train"]}},
    "a function that sleeps": {
        "spec.model": {"source": "python://rewards:score", "type": "Function"},
        "spec.engine": {"name": "python", "sleep": {"enabled": True}},
    },
    "a model split by transformers": {"spec.engine": {"name": "transformers", "tensorParallelSize": 2}},
    "a judge on transformers": {"spec.model.type": "Generative", "spec.engine.name": "transformers"},
    "most likely tokens of a judge": {"spec.model.type": "Generative", "spec.model.topK": 8},
    "a function with a checkpoint's code": {
        "spec.model": {"source": "python://rewards:score", "type": "Function", "trustRemoteCode": True},
        "spec.engine.name": "python",
    },
    "batch invariance without a GPU": {"spec.engine.deterministic": True, "spec.worker.gpus": 0},
    "batch invariance of a function": {
        "spec.model": {"source": "python://rewards:score", "type": "Function"},
        "spec.engine": {"deterministic": True},
    },
    "sleep without a GPU": {"spec.engine.sleep": {"enabled": True}, "spec.worker.gpus": 0},
    "sleep that an autoscaler does not know of": {"spec.engine.sleep": {"enabled": True}, **scaled(policy=QUEUE)},
    "servers that do not know of sleep": {
        "spec.engine.sleep": {"enabled": True},
        "spec.engine.args": ["--api-server-count=2"],
    },
    "a head of a judge": {"spec.model.type": "Generative", "spec.model.head": CLASSIFIER},
    "a head of a function": {
        "spec.model": {"source": "python://rewards:score", "type": "Function", "head": CLASSIFIER},
        "spec.engine.name": "python",
    },
    "a classifier without weights": {"spec.model.head": {"type": "Classifier"}},
    "weights of no classifier": {"spec.model.head": {"type": "LMHead", "token": "!", "weights": [1.0]}},
    "a label without a weight": {"spec.model.head": {**CLASSIFIER, "labels": ["helpful"]}},
    "labels of no classifier": {"spec.model.head": {"type": "LMHead", "token": "!", "labels": ["helpful"]}},
    "a language model's head without a token": {"spec.model.head": {"type": "LMHead"}},
    "a yes without a no": {"spec.model.head": {"type": "LMHead", "yesToken": "yes"}},
    "a no without a yes": {"spec.model.head": {"type": "LMHead", "token": "!", "noToken": "no"}},
    "a yes of each step without a no": {"spec.model.head": {**STEPS, "yesToken": "+"}},
    "a yes that is no of each step": {"spec.model.head": {**STEPS, "yesToken": "+", "noToken": "+"}},
    "yes and no of a classifier": {"spec.model.head": {**CLASSIFIER, "yesToken": "+", "noToken": "-"}},
    "yes and no without steps": {
        "spec.model.head": {"type": "TokenLevel", "aggregate": "last", "yesToken": "+", "noToken": "-"}
    },
    "yes and no of each step on sglang": {
        "spec.model.head": {**STEPS, "yesToken": "+", "noToken": "-"},
        "spec.engine.name": "sglang",
    },
    "a token beside yes and no": {"spec.model.head": {"type": "LMHead", "token": "!", "yesToken": "a", "noToken": "b"}},
    "yes that is no": {"spec.model.head": {"type": "LMHead", "yesToken": "yes", "noToken": "yes"}},
    "a token of a classifier": {"spec.model.head": {**CLASSIFIER, "token": "!"}},
    "steps that nothing aggregates": {"spec.model.head": {"type": "TokenLevel", "stepToken": "<s>"}},
    "an aggregate of no steps": {"spec.model.head": {**CLASSIFIER, "aggregate": "min"}},
    "a step of a classifier": {"spec.model.head": {**CLASSIFIER, "stepToken": "<s>"}},
    "an aggregate without steps": {"spec.model.head": {"type": "TokenLevel", "aggregate": "mean"}},
    "steps on sglang": {"spec.model.head": STEPS, "spec.engine.name": "sglang"},
    "a head beside a checkpoint's own code": {"spec.model.head": CLASSIFIER, "spec.engine.name": "transformers"},
    "a sandbox of a model": {"spec.sandbox": {"cpuSeconds": 5}},
    "a limit of calls among the arguments": {
        "spec.model.source": "python://rewards:score",
        "spec.engine.args": ["--cpu-seconds", "5"],
    },
    "calls that do not fit the container": {
        "spec.model.source": "python://rewards:score",
        "spec.sandbox": {"concurrency": 4, "memory": "3Gi"},
        "spec.worker.resources": {"limits": {"memory": "10Gi"}},
    },
    "a teacher with larger steps": {
        "spec.model.type": "Teacher",
        "spec.engine.args": ["--max_num_batched_tokens=4096"],
    },
    "a teacher without SGLang's pieces": {
        "spec.model.type": "Teacher",
        "spec.engine.name": "sglang",
        "spec.engine.env": [{"name": "SGLANG_ENABLE_LOGPROB_CHUNK", "value": "0"}],
    },
    "a gateway of a reward model": {"spec.gateway": {}},
    "a gateway behind a certificate": {
        "spec.model.type": "Teacher",
        "spec.gateway": {},
        "spec.router.tls": {"secretName": "certificate"},
    },
    "the pool's key for a certificate": {"spec.router.tls": {"secretName": "pool-key"}},
    "two adapters of one name": {"spec.model.adapters": [SAFE, {**SAFE, "source": "file:///other"}]},
    "an adapter with the pool's own name": {"spec.model.adapters": [{**SAFE, "name": "pool"}]},
    "an adapter on S3": {"spec.model.adapters": [{**SAFE, "source": "s3://bucket/safe"}]},
    "an adapter without its commit": {"spec.model.adapters": [{**SAFE, "source": "hf://org/safe"}]},
    "adapters of a judge": {"spec.model.type": "Generative", "spec.model.adapters": [SAFE]},
    "a GPU that is counted twice": {"spec.worker.resources": {"limits": {"nvidia.com/gpu": 1}}},
    "a label of RewardPool's own": {"spec.worker.labels": {"rewardpool.dev/pool": "other"}},
    "an annotation of RewardPool's own": {"spec.worker.annotations": {"rewardpool.dev/spec": "{}"}},
    "two variables of one name": {"spec.engine.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
    "a variable with two values": {"spec.engine.env": [{"name": "A", "value": "1", "valueFrom": TOKEN}]},
    "a variable from two places": {
        "spec.engine.env": [{"name": "A", "valueFrom": {**TOKEN, "fieldRef": {"fieldPath": "metadata.name"}}}]
    },
    "a path to Python modules that nobody knows": {"spec.engine.env": [{"name": "PYTHONPATH", "valueFrom": TOKEN}]},
    "adapters on transformers": {"spec.engine.name": "transformers", "spec.model.adapters": [SAFE]},
}
"""Every rule of the models is broken by one of these."""

MISTAKES: dict[str, dict[str, Any]] = {
    "unknown field": {"spec.replcias": 2},
    "unknown field further down": {"spec.engine.gpu": 1},
    "text for a number": {"spec.replicas": "2"},
    "fraction for a number": {"spec.replicas": 1.5},
    "number for a text": {"spec.model.source": 3},
    "text for a truth value": {"spec.suspend": "yes"},
    "one for a list": {"spec.engine.args": "--flag"},
    "a variable that no shell has": {"spec.engine.env": [{"name": "A=B", "value": "1"}]},
    "text for a part": {"spec.engine": "vllm"},
    "not in the enumeration": {"spec.engine.name": "tgi"},
    "a router that we do not know": {"spec.router.flavor": "nginx"},
    "a certificate without a Secret": {"spec.router.tls": {}},
    "no name of a namespace": {"spec.network": {"namespaces": ["Training Jobs"]}},
    "below its bound": {"spec.replicas": -1},
    "above its bound": {"spec.router.replicas": 17},
    "a Secret that cannot be": {"spec.router.tls": {"secretName": "\n\n"}},
    "a claim that cannot be": {"spec.model.cache": {"claimName": " "}},
    "a ConfigMap that cannot be": {
        "spec.rollout.parity": {"goldenSetRef": {"name": "a..b"}, "maxAbsDiff": 0.1},
    },
    "an entry that cannot be": {"spec.model.tokenSecretRef": {"name": "hf", "key": "the token"}},
    "empty text": {"spec.engine.image": ""},
    "text too long": {"spec.engine.image": "i" * 254},
    "list too long": {"spec.engine.args": ["-v"] * 65},
    "a weight that is no number": {"spec.model.head": {"type": "Classifier", "weights": ["1"]}},
    "a head that we do not know": {"spec.model.head": {"type": "Regression"}},
    "an aggregate that we do not know": {"spec.model.head": {**STEPS, "aggregate": "max"}},
    "a token that YAML reads as a truth value": {
        "spec.model.head": {"type": "LMHead", "yesToken": "a", "noToken": False}
    },
    "too many adapters": {"spec.model.adapters": [{**SAFE, "name": f"a{n}"} for n in range(17)]},
    "an adapter of a branch": {
        "spec.model.adapters": [{"name": "safe", "source": "hf://org/safe", "revision": "main"}]
    },
    "an adapter with a name that nothing may serve": {"spec.model.adapters": [{**SAFE, "name": "Not/Safe"}]},
    "required field left out": {"spec.model.source": MISSING},
    "required part left out": {"spec.model": MISSING},
}


def told_by_kubectl(plane: ControlPlane, manifest: dict[str, Any]) -> str:
    """What `kubectl apply` says when the API server refuses."""
    with pytest.raises(ClusterError) as refused:
        plane.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(manifest))
    return str(refused.value)


def told_by_us(manifest: dict[str, Any]) -> list[str]:
    with pytest.raises(ManifestError) as refused:
        load_manifest(yaml.safe_dump(manifest))
    return refused.value.problems


@pytest.mark.parametrize("changes", [*VIOLATIONS.values(), *MISTAKES.values()], ids=[*VIOLATIONS, *MISTAKES])
def test_kubectl_and_rewardpool_refuse_in_the_same_words(control_plane: ControlPlane, changes: dict[str, Any]) -> None:
    manifest = a_manifest(changes)
    (problem,) = told_by_us(manifest)
    # One machine adds an example, where the API server's own words have no room for one.
    assert problem.split(": such as")[0] in told_by_kubectl(control_plane, manifest)


@pytest.mark.parametrize(
    "model", [{"source": "python://rewards:score"}, {"source": "hf://org/judge", "type": "Generative"}]
)
def test_four_lines_of_spec_are_a_pool(control_plane: ControlPlane, model: dict[str, str]) -> None:
    manifest = yaml.safe_dump(a_manifest({"spec.model": model}))
    control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=manifest)


def rules_of(model: type[ApiModel]) -> list[Rule]:
    """The rules of a model and of every model in its fields."""
    parts = [field.annotation for field in model.model_fields.values()]
    inner = [part for found in parts for part in (found, *getattr(found, "__args__", ())) if isinstance(part, type)]
    return [*model.rules, *(rule for part in inner if issubclass(part, ApiModel) for rule in rules_of(part))]


def test_every_rule_is_broken_above() -> None:
    told = [problem for changes in VIOLATIONS.values() for problem in told_by_us(a_manifest(changes))]
    assert {rule.message for rule in rules_of(RewardPool)} == set(told)


def test_defaults_are_those_of_the_models(control_plane: ControlPlane) -> None:
    changes = {"spec.autoscaling": {"maxReplicas": 2, "policy": QUEUE}}
    text = yaml.safe_dump(a_manifest(changes))
    answer = control_plane.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", input=text)
    ours = dump_manifest(load_manifest(text))["spec"]
    for part, field in inferred(ours["model"]["source"]):
        del ours[part][field]
    assert json.loads(answer)["spec"] == ours


def test_every_manifest_of_the_examples_and_of_the_catalogue_is_taken(control_plane: ControlPlane) -> None:
    given = manifests()
    for namespace in {pool["metadata"].get("namespace", "default") for pool in given} - {"default", NAMESPACE}:
        control_plane.kubectl("create", "namespace", namespace)
    taken = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump_all(given))
    assert len(taken.splitlines()) == len(given) > 30


def test_resources_labels_and_annotations_are_taken_as_in_a_pod(control_plane: ControlPlane) -> None:
    resources = {"requests": {"cpu": 4, "memory": "32Gi"}, "limits": {"memory": "48Gi"}}
    labels = {"kueue.x-k8s.io/queue-name": "rewards"}
    worker = {"resources": resources, "labels": labels, "annotations": {"example.com/cost-centre": "a b"}}
    text = yaml.safe_dump(a_manifest({"spec.worker": worker}))
    load_manifest(text)
    control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=text)


def test_a_manifest_that_was_applied_shows_no_difference(control_plane: ControlPlane) -> None:
    env = [{"name": "B", "value": "1"}, {"name": "A", "valueFrom": TOKEN}]
    worker = {"resources": {"requests": {"cpu": 4}}, "labels": {"team": "rl"}}
    text = yaml.safe_dump(a_manifest({"metadata.name": "same", "spec.engine.env": env, "spec.worker": worker}))
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=text)
    assert control_plane.kubectl("diff", "--server-side", "-f", "-", input=text) == ""


def test_the_longest_good_manifest_is_taken(control_plane: ControlPlane) -> None:
    changes = {"metadata.name": "n" * 40, "spec.worker.podTemplate": {"spec": {"nodeSelector": {"gpu": "h100"}}}}
    control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(a_manifest(changes)))


@pytest.mark.parametrize("part", ["worker", "router", "gateway"])
def test_a_pod_template_is_stored_with_all_that_it_says(control_plane: ControlPlane, part: str) -> None:
    template = {"spec": {"containers": [{"name": part, "anything": [1, {"b": True}]}]}}
    changes = {"metadata.name": "template", "spec.model.type": "Teacher", f"spec.{part}.podTemplate": template}
    asked = ("apply", "--dry-run=server", "--output=json", "-f", "-")
    stored = json.loads(control_plane.kubectl(*asked, input=yaml.safe_dump(a_manifest(changes))))
    assert stored["spec"][part]["podTemplate"] == template


def test_a_pool_is_listed_scaled_and_described(control_plane: ControlPlane) -> None:
    kubectl = ("--namespace", NAMESPACE)
    control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump(a_manifest({"spec.replicas": 1})))
    status = {
        "ready": "1/2",
        "readyReplicas": 1,
        "replicas": 1,
        "selector": "a=b",
        "url": "http://there:8080",
        "routerReplicas": 6,
    }
    status |= {"load": {"inFlight": 7, "waiting": 3}, "scaling": {"desired": 2, "reason": "r"}}
    status |= {"conditions": [a_condition("Ready", reason="Surging")]}
    say(control_plane, "pool", status)

    header, row = control_plane.kubectl(*kubectl, "get", "rp", "pool").splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "AGE"]
    assert row.split()[:3] == ["pool", "1/2", "Surging"]
    assert "rewardpool.rewardpool.dev/pool" in control_plane.kubectl(*kubectl, "get", "all", "--output=name")
    wide = control_plane.kubectl(*kubectl, "get", "rp", "pool", "--output=wide").splitlines()[1].split()
    assert {"7", "3", "6", "hf://org/model", "http://there:8080"} <= set(wide)

    control_plane.kubectl(*kubectl, "scale", "rewardpool", "pool", "--replicas=2")
    path = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}/pool/scale"
    scale = json.loads(control_plane.kubectl("get", "--raw", path))
    assert (scale["spec"]["replicas"], scale["status"]) == (2, {"replicas": 1, "selector": "a=b"})


def a_condition(
    kind: str, *, reason: str = "Ok", message: str = "", time: str = "2026-01-01T00:00:00Z"
) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time}


def say(control_plane: ControlPlane, pool: str, status: dict[str, Any], *options: str) -> None:
    """Apply the status of a pool."""
    manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": pool}, "status": status}
    apply = ("--namespace", NAMESPACE, "apply", "--server-side", "--subresource=status", *options, "--filename=-")
    control_plane.kubectl(*apply, input=yaml.safe_dump(manifest))


def a_made_pool(control_plane: ControlPlane, name: str) -> str:
    control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump(a_manifest({"metadata.name": name})))
    return name


def test_a_pool_that_no_operator_has_seen_says_so(control_plane: ControlPlane) -> None:
    pool = a_made_pool(control_plane, "unseen")
    observed = "jsonpath={.status.observedGeneration}"
    assert control_plane.kubectl("--namespace", NAMESPACE, "get", "rp", pool, "--output", observed) == "-1"


def test_another_controller_adds_a_condition_of_its_own_and_both_stay(control_plane: ControlPlane) -> None:
    pool = a_made_pool(control_plane, "shared")
    say(control_plane, pool, {"conditions": [a_condition("Ready")]}, "--field-manager=ours")
    say(control_plane, pool, {"conditions": [a_condition("example.com/Audited")]}, "--field-manager=theirs")
    say(control_plane, pool, {"conditions": [a_condition("Ready")]}, "--field-manager=ours")
    types = "jsonpath={.status.conditions[*].type}"
    assert control_plane.kubectl("--namespace", NAMESPACE, "get", "rp", pool, "--output", types).split() == [
        "Ready",
        "example.com/Audited",
    ]


def test_a_condition_may_be_as_long_as_everywhere_in_kubernetes(control_plane: ControlPlane) -> None:
    say(control_plane, a_made_pool(control_plane, "long"), {"conditions": [a_condition("Ready", message="m" * 32_768)]})


def test_a_time_that_is_none_is_refused(control_plane: ControlPlane) -> None:
    pool = a_made_pool(control_plane, "late")
    with pytest.raises(ClusterError, match=r"lastTransitionTime.*date-time"):
        say(control_plane, pool, {"conditions": [a_condition("Ready", time="yesterday")]})


def test_explain_tells_what_a_field_means(control_plane: ControlPlane) -> None:
    explained = control_plane.kubectl("explain", "rewardpool.spec.worker.drainSeconds")
    assert WorkerSpec.model_fields["drain_seconds"].description in " ".join(explained.split())
