"""The chart's admission policy on a real API server: what a pool may not ask for is refused with its field."""

import copy
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from support.admitted import not_on_the_lists, pods_of
from support.drawing import hostile
from support.dry_run import DryRun
from support.pod_templates import Schemas, pools
from support.tried import TRIED

from cluster.control_plane import ControlPlane
from cluster.kubectl import wait_for_crd
from cluster.processes import ClusterError
from rewardpool_api.crd import crd_yaml

from .conftest import HelmError, Objects, Render

pytestmark = pytest.mark.real

POLICY: dict[str, Any] = {
    "enabled": True,
    "namespaceSelector": {"matchLabels": {"rewards": "restricted"}},
    "modelSources": ["hf://Skywork/", "python://rewards:"],
    "imageRegistries": ["registry.example/rl/", "mirror.example/"],
    "maxReplicas": 8,
    "maxGpusPerReplica": 2,
    "requiredLabels": ["team", "example.com/cost-centre"],
    "secrets": ["hub"],
    "cacheClaims": ["models"],
    "annotations": ["example.com/note"],
    "resources": ["cpu", "memory", "ephemeral-storage", "rdma/hca"],
}
LABELS = {"team": "rl", "example.com/cost-centre": "7"}
EFFECT_SECONDS = 60.0
"""By then an API server acts by a new policy; here after about a second."""

AT_A_TIME = 4
"""Drawn pools that the API server judges at a time."""

OUR_IMAGE = "registry.example/rl/vllm:1"
OTHER_IMAGE = "registry.example.evil/rl/vllm:1"


def a_pool(spec: dict[str, Any] | None = None, *, name: str = "pool", namespace: str = "restricted") -> dict[str, Any]:
    """A pool that the policy lets through; `spec` is laid over its spec, field by field."""
    spec = {"model": {"source": "hf://Skywork/model"}, **(spec or {})}
    metadata = {"name": name, "namespace": namespace, "labels": LABELS}
    return {"apiVersion": "rewardpool.dev/v1alpha1", "kind": "RewardPool", "metadata": metadata, "spec": spec}


def template(part: str, **pod: Any) -> dict[str, Any]:
    """A spec whose `podTemplate` of worker, router or gateway has these fields of a pod."""
    of_gateway = {"model": {"source": "hf://Skywork/model", "type": "Teacher"}} if part == "gateway" else {}
    return {**of_gateway, part: {"podTemplate": {"spec": pod}}}


def container(part: str, **fields: Any) -> dict[str, Any]:
    return template(part, containers=[{"name": part, **fields}])


def said(plane: ControlPlane, manifest: dict[str, Any]) -> str:
    """What the API server says of a new pool; nothing is stored."""
    return DryRun(plane).refusal(manifest) or "created"


def policy_objects(objects: Objects) -> Objects:
    return [item for item in objects if item["kind"].startswith("ValidatingAdmissionPolicy")]


def apply_policy(plane: ControlPlane, objects: Objects) -> None:
    for item in policy_objects(objects):
        plane.kubectl("apply", "--validate=strict", "-f", "-", input=json.dumps(item))


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + EFFECT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} not within {EFFECT_SECONDS:.0f} s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def guarded(plane: ControlPlane, render: Render) -> ControlPlane:
    """A cluster with a pool that is older than the policy, and the policy."""
    plane.kubectl("apply", "--server-side", "-f", "-", input=crd_yaml())
    wait_for_crd(plane.kubectl, "rewardpools.rewardpool.dev")
    for name, labels in (("restricted", {"rewards": "restricted"}), ("free", {}), ("warned", {"rewards": "warned"})):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        plane.kubectl("create", "-f", "-", input=json.dumps(namespace))
    older = a_pool({"model": {"source": "hf://other/model"}}, name="older")
    plane.kubectl("create", "-f", "-", input=json.dumps(older))
    apply_policy(plane, render(admissionPolicy=POLICY))
    wait_for(lambda: "denied request" in said(plane, a_pool({"replicas": 9})), "the policy counts")
    return plane


ALLOWED: dict[str, dict[str, Any]] = {
    "a pool of four lines": {},
    "a function": {"model": {"source": "python://rewards:score"}},
    "all that is allowed": {
        "replicas": 8,
        "model": {"source": "hf://Skywork/model", "tokenSecretRef": {"name": "hub"}, "cache": {"claimName": "models"}},
        "worker": {"gpus": 2, "resources": {"requests": {"cpu": 4, "rdma/hca": 1}}},
        "engine": {
            "image": OUR_IMAGE,
            "args": ["--max-num-seqs=8", "--max-model-len", "256", "--enforce-eager"],
            "env": [{"name": "OMP_NUM_THREADS", "value": "2"}],
        },
        "router": {"image": "mirror.example/router:1"},
    },
    "labels and annotations of the lists": {
        "worker": {
            "labels": {"kueue.x-k8s.io/queue-name": "rl"},
            "podTemplate": {"metadata": {"annotations": {"example.com/note": "any"}}},
        }
    },
    "a pod template of the lists": template(
        "worker",
        nodeSelector={"gpu": "h100"},
        tolerations=[{"operator": "Exists"}],
        containers=[{"name": "worker", "resources": {"requests": {"cpu": 1}, "limits": None}}],
        initContainers=[{"name": "download", "securityContext": {"runAsUser": 1000}}],
        volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        securityContext={"runAsNonRoot": True, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    ),
    "a pod template that takes rights away": container(
        "router", securityContext={"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}
    ),
    "a gateway's pod template of the lists": template(
        "gateway",
        nodeSelector={"cpu": "yes"},
        containers=[{"name": "gateway", "resources": {"limits": {"memory": "8Gi"}}}],
    ),
    "a pod template with nulls, which say nothing": template("router", containers=None, volumes=None),
    "containers with nulls": container("worker", securityContext=None, resources=None),
    "an empty pod template": {"worker": {"podTemplate": {"spec": None, "metadata": None}}},
    "from zero to the most": {"autoscaling": {"minReplicas": 0, "maxReplicas": 8, "policy": {"type": "External"}}},
}


@pytest.mark.parametrize("spec", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_is_allowed_is_let_through(guarded: ControlPlane, spec: dict[str, Any]) -> None:
    assert said(guarded, a_pool(spec)) == "created"


NOT_ON_THE_LIST: list[tuple[str, dict[str, Any]]] = [
    ("hostPath", template("worker", volumes=[{"name": "a", "hostPath": {"path": "/"}}])),
    ("csi", template("worker", volumes=[{"name": "a", "csi": {"driver": "d"}}])),
    ("nfs", template("router", volumes=[{"name": "a", "nfs": {"server": "s", "path": "/"}}])),
    ("hostNetwork", template("worker", hostNetwork=True)),
    ("hostPID", template("router", hostPID=True)),
    ("nodeName", template("router", nodeName="a")),
    ("hostNetwork", template("gateway", hostNetwork=True)),
    ("hostPath", template("gateway", volumes=[{"name": "a", "hostPath": {"path": "/"}}])),
    ("command", container("gateway", command=["sh"])),
    ("resources", template("worker", resources={"limits": {"nvidia.com/gpu": 8}})),
    ("resourceClaims", template("worker", resourceClaims=[{"name": "a", "resourceClaimName": "b"}])),
    ("serviceAccountName", template("worker", serviceAccountName="admin")),
    ("command", container("router", command=["sh"])),
    ("image", template("worker", initContainers=[{"name": "download", "image": OUR_IMAGE}])),
    ("env", container("worker", env=[{"name": "HF_ENDPOINT", "value": "http://evil"}])),
    ("ports", container("router", ports=[{"containerPort": 1, "hostPort": 80}])),
    ("lifecycle", container("worker", lifecycle={"preStop": {"exec": {"command": ["sh"]}}})),
    (r"\$patch", template("worker", volumes=[{"name": "a", "$patch": "delete"}])),
    ("status", {"worker": {"podTemplate": {"status": {}}}}),
    ("finalizers", {"router": {"podTemplate": {"metadata": {"finalizers": ["a/b"]}}}}),
    ("app", {"router": {"podTemplate": {"metadata": {"labels": {"app": "somebody-elses"}}}}}),
    ("app", {"worker": {"labels": {"app": "somebody-elses"}}}),
    ("cdi.k8s.io/gpu", {"worker": {"annotations": {"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}}}),
    ("nvidia.com/mig-1g.5gb", {"worker": {"resources": {"limits": {"nvidia.com/mig-1g.5gb": 8}}}}),
    ("HF_ENDPOINT", {"engine": {"env": [{"name": "HF_ENDPOINT", "value": "http://evil"}]}}),
    ("NVIDIA_VISIBLE_DEVICES", {"engine": {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}}),
    (
        "TZ",
        {"engine": {"env": [{"name": "TZ", "valueFrom": {"secretKeyRef": {"name": "others", "key": "token"}}}]}},
    ),
    ("--trust-remote-code", {"engine": {"args": ["--trust-remote-code"]}}),
    ("--trust_remote_code", {"engine": {"args": ["--enforce-eager", "--trust_remote_code=1"]}}),
    ("evil/model", {"engine": {"args": ["--enforce-eager", "evil/model"]}}),
    ("-m", {"engine": {"args": ["-m", "8"]}}),
]


@pytest.mark.parametrize(("name", "spec"), NOT_ON_THE_LIST, ids=[name for name, _ in NOT_ON_THE_LIST])
def test_what_no_list_has_is_refused_by_name(guarded: ControlPlane, name: str, spec: dict[str, Any]) -> None:
    assert re.search(rf"denied request: .* must have .*no others than .*; not so: {name}$", said(guarded, a_pool(spec)))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": {"source": "hf://SkyworkX/model"}}, "spec.model.source .* must begin with one of: hf://Skywork/"),
    (
        {
            "model": {
                "source": "hf://Skywork/model",
                "adapters": [{"name": "a", "source": "hf://other/lora", "revision": "a" * 40}],
            }
        },
        "not so: hf://other/lora",
    ),
    ({"model": {"source": "hf://Skywork/model", "trustRemoteCode": True}}, "spec.model.trustRemoteCode must not be"),
    (
        {"model": {"source": "hf://Skywork/model", "tokenSecretRef": {"name": "others"}}},
        "spec.model.tokenSecretRef.* must name no Secrets but those of admissionPolicy.secrets; not so: others",
    ),
    ({"router": {"tls": {"secretName": "others"}}}, "spec.router.tls must name no Secrets but .*; not so: others"),
    (
        {"model": {"source": "hf://Skywork/model", "cache": {"claimName": "mine"}}},
        "spec.model.cache.claimName must be one of admissionPolicy.cacheClaims.*; it is mine",
    ),
    ({"engine": {"image": OTHER_IMAGE}}, "spec.engine.image must begin with one of: registry.example/rl/"),
    ({"router": {"image": "router:1"}}, "spec.router.image must begin with one of"),
    (container("worker", image=OTHER_IMAGE), f"images in spec.worker.podTemplate .* not so: {OTHER_IMAGE}"),
    (
        template("worker", volumes=[{"name": "data", "image": {"reference": OTHER_IMAGE}}]),
        "images in spec.worker.podTemplate must begin",
    ),
    ({"replicas": 9}, "spec.replicas must not be greater than 8; it is 9"),
    (
        {"autoscaling": {"maxReplicas": 9, "policy": {"type": "External"}}},
        "spec.autoscaling.maxReplicas must not be greater than 8; it is 9",
    ),
    ({"worker": {"gpus": 3}}, "spec.worker.gpus must not be greater than 2"),
    ({"worker": {"gpuResource": "smarter-devices/fuse"}}, "gpuResource must be one of .*; it is smarter-devices/fuse"),
    (
        container("worker", resources={"limits": {"nvidia.com/gpu": 8}}),
        "resources of containers in spec.worker.podTemplate must be requests and limits of no others than cpu",
    ),
    (container("worker", resources={"claims": [{"name": "a"}]}), "resources of containers in spec.worker.podTemplate"),
    (container("worker", resources=["cpu"]), "resources of containers in spec.worker.podTemplate"),
    (template("worker", containers=[{"name": "mine"}]), "must have a name of RewardPool's own"),
    (container("gateway", image=OTHER_IMAGE), f"images in spec.gateway.podTemplate .* not so: {OTHER_IMAGE}"),
    (template("gateway", containers=[{"name": "worker"}]), "spec.gateway.podTemplate must have a name of RewardPool's"),
    (template("router", initContainers=[{}]), "must have a name of RewardPool's own"),
    (template("worker", containers={"$patch": "delete"}), "must be lists of maps"),
    (template("router", volumes=[None]), "must be lists of maps"),
    (template("worker", volumes=[{"name": {}}]), "volumes.* must have a name"),
    ({"worker": {"podTemplate": {"spec": ["hostPID"]}}}, "spec.worker.podTemplate.spec must be a map"),
    *(
        (container(part, securityContext=given), f"securityContext of containers in spec.{part}.podTemplate must have")
        for part, given in (
            ("worker", {"privileged": True}),
            ("worker", {"capabilities": {"add": ["SYS_ADMIN"]}}),
            ("worker", {"capabilities": {"$patch": "delete"}}),
            ("router", {"capabilities": {"drop": []}}),
            ("router", {"capabilities": None}),
            ("worker", {"procMount": "Unmasked"}),
            ("worker", {"runAsUser": 0}),
            ("router", "privileged"),
            ("gateway", {"privileged": True}),
        )
    ),
    *(
        (template(part, securityContext=given), f"spec.{part}.podTemplate.spec.securityContext must have no others")
        for part, given in (
            ("worker", {"windowsOptions": {"hostProcess": True}}),
            ("worker", {"seccompProfile": {"type": "Unconfined"}}),
            ("router", {"sysctls": [{"name": "a", "value": "1"}]}),
            ("router", {"$patch": "delete"}),
            ("gateway", {"sysctls": [{"name": "a", "value": "1"}]}),
        )
    ),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_is_not_allowed_is_refused_with_its_field(
    guarded: ControlPlane, spec: dict[str, Any], message: str
) -> None:
    assert re.search(f"denied request: .*{message}", said(guarded, a_pool(spec)))


def test_no_pod_that_is_drawn_is_admitted_with_what_the_lists_do_not_have(
    guarded: ControlPlane, render: Render
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "baseline", "rewards": "drawn"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "drawn", "labels": labels}}
    guarded.kubectl("create", "-f", "-", input=json.dumps(namespace))
    policy = {"enabled": True, "namespaceSelector": {"matchLabels": {"rewards": "drawn"}}}
    apply_policy(guarded, render(fullnameOverride="drawn", admissionPolicy=policy))
    asked = DryRun(guarded, at_a_time=AT_A_TIME)
    host = a_pool({"model": {"source": "file:///models/a"}}, namespace="drawn")
    wait_for(lambda: "must not be file://" in (asked.refusal(host) or ""), "the policy counts")
    published = guarded.read("/openapi/v3/api/v1")
    assert published is not None
    answers: list[Future[list[str] | None]] = []

    # The API server answers while the next ones are drawn.
    with ThreadPoolExecutor(AT_A_TIME) as asking:

        @hostile("pools with drawn pods", spec=pools(Schemas(published["components"]["schemas"])))
        def ask(spec: dict[str, Any]) -> None:
            answers.append(asking.submit(wrongly_admitted, asked, a_pool(spec, namespace="drawn")))

        ask()
    admitted = [wrong for answer in answers if (wrong := answer.result()) is not None]
    TRIED["of them admitted"] = len(admitted)
    assert admitted
    assert [wrong for wrong in admitted if wrong] == []


def wrongly_admitted(asked: DryRun, manifest: dict[str, Any]) -> list[str] | None:
    """What is wrong with a pool that is let through; None for one that is refused."""
    if asked.refusal(manifest) is not None:
        return None
    # Kubernetes' own judge, of the pods that the operator would have made.
    refusals = [asked.refusal(pod, "pods") or "" for pod in pods_of(manifest)]
    return [*not_on_the_lists(manifest["spec"]), *(said for said in refusals if "violates PodSecurity" in said)]


def test_a_path_of_the_node_is_refused_where_all_sources_are_allowed(guarded: ControlPlane, render: Render) -> None:
    policy = {"enabled": True, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "free"}}}
    try:
        apply_policy(guarded, render(fullnameOverride="plain", admissionPolicy=policy))
        manifest = a_pool({"model": {"source": "file:///models/a"}}, namespace="free")
        wait_for(lambda: "must not be file://" in said(guarded, manifest), "the policy counts")
        everything = {"replicas": 10_000, "worker": {"gpus": 64}, "engine": {"image": OTHER_IMAGE}}
        assert "created" in said(guarded, a_pool(everything, namespace="free"))
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            guarded.kubectl("delete", kind, "plain.rewardpool-system")


@pytest.mark.parametrize("label", POLICY["requiredLabels"])
def test_a_label_that_lacks_is_named(guarded: ControlPlane, label: str) -> None:
    manifest = copy.deepcopy(a_pool())
    del manifest["metadata"]["labels"][label]
    assert f"metadata.labels must have {label}" in said(guarded, manifest)


def test_a_pool_without_any_label_is_refused(guarded: ControlPlane) -> None:
    manifest = a_pool()
    del manifest["metadata"]["labels"]
    assert "metadata.labels must have team" in said(guarded, manifest)


def test_kubectl_scale_takes_a_pool_no_further_than_the_most(guarded: ControlPlane) -> None:
    guarded.kubectl("create", "-f", "-", input=json.dumps(a_pool({"replicas": 1}, name="scaled")))
    scale = ["scale", "rewardpool/scaled", "--namespace=restricted"]
    for replicas in (8, 0):
        guarded.kubectl(*scale, f"--replicas={replicas}")
    with pytest.raises(ClusterError, match=r"spec\.replicas must not be greater than 8; it is 9"):
        guarded.kubectl(*scale, "--replicas=9")


def test_a_pool_from_before_the_policy_can_be_annotated_and_deleted_but_not_changed(guarded: ControlPlane) -> None:
    older = ["rewardpool/older", "--namespace=restricted"]
    guarded.kubectl("annotate", *older, "note=kept")
    with pytest.raises(ClusterError, match=r"spec.model.source .* must begin with one of"):
        guarded.kubectl("patch", *older, "--type=merge", '--patch={"spec": {"replicas": 2}}')
    guarded.kubectl("delete", *older)


def test_other_namespaces_are_not_restricted(guarded: ControlPlane) -> None:
    assert "created" in said(guarded, a_pool({"replicas": 9}, namespace="free"))


def test_a_policy_that_warns_lets_through(guarded: ControlPlane, render: Render) -> None:
    selector = {"matchLabels": {"rewards": "warned"}}
    policy = {**POLICY, "actions": ["Warn", "Audit"], "namespaceSelector": selector}
    apply_policy(guarded, render(fullnameOverride="warns", admissionPolicy=policy))
    manifest = a_pool({"replicas": 9}, namespace="warned")
    command = ["create", "--dry-run=server", "--warnings-as-errors", "-f", "-"]

    def is_warned() -> bool:
        try:
            guarded.kubectl(*command, input=json.dumps(manifest))
        except ClusterError as error:
            return "must not be greater than 8" in str(error)
        return False

    wait_for(is_warned, "the warning")
    assert "created" in said(guarded, manifest)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"actions": ["Deny", "Warn"]}, "/admissionPolicy/actions"),
        ({"actions": []}, "/admissionPolicy/actions"),
        ({"imageRegistries": ["registry.example"]}, "/admissionPolicy/imageRegistries/0"),
        ({"modelSources": ["Skywork/"]}, "/admissionPolicy/modelSources/0"),
        ({"maxReplicas": "8"}, "/admissionPolicy/maxReplicas"),
        ({"maxGpus": 8}, "additional properties 'maxGpus' not allowed"),
    ],
)
def test_a_policy_that_cannot_count_is_refused_by_its_value(render: Render, policy: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmError, match=said):
        render(admissionPolicy={"enabled": True, **policy})


def test_without_being_asked_for_there_is_no_policy(render: Render) -> None:
    assert not policy_objects(render())


def test_a_release_with_namespaces_of_its_own_restricts_only_these(render: Render) -> None:
    objects = policy_objects(render(admissionPolicy=POLICY, watch={"namespaces": ["a", "b"]}))
    selector = objects[1]["spec"]["matchResources"]["namespaceSelector"]
    own = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert selector == {**POLICY["namespaceSelector"], "matchExpressions": [own]}
