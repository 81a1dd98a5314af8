"""What a pool owns, by behaviour: one fact about the rendered objects per test."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from support.env_vars import env_vars
from support.kube_builders import FUNCTION, a_pool

from rewardpool_api import RewardPool, names
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.credentials.keys import KEY_COPY, Keys
from rewardpool_operator.kubernetes.desired import rendered
from rewardpool_operator.kubernetes.manifests.diff import short_hash
from rewardpool_operator.kubernetes.render.download import HUB_DIR
from rewardpool_operator.kubernetes.render.worker import CLAIM_DIR, spec_parts
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity

KEYS = Keys(pool="pool-key", in_force="pool-key", admin="admin-key")
IMAGE = "own:1"


def template(**spec: Any) -> dict[str, Any]:
    return render.worker_template(a_pool(**spec), image=IMAGE)


def worker(**spec: Any) -> dict[str, Any]:
    (container,) = template(**spec)["spec"]["containers"]
    return container


def router(pool: RewardPool) -> dict[str, Any]:
    deployment = render.router_deployment(pool, fingerprint=KEYS.fingerprint, image=IMAGE)
    return deployment["spec"]["template"]


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


def all_manifests(pool: RewardPool) -> list[dict[str, Any]]:
    everything = rendered(pool, KEYS, image=IMAGE)
    return [*everything.shared, render.worker_deployment(pool, everything.revision, replicas=2)]


def test_every_object_goes_with_the_pool() -> None:
    owners = [manifest["metadata"]["ownerReferences"] for manifest in all_manifests(a_pool())]
    assert len(owners) == 8
    assert all(owner["uid"] == "pool-uid" and owner["controller"] for (owner,) in owners)


def test_every_object_is_found_by_the_pools_label() -> None:
    assert {item["metadata"]["labels"][names.LABEL_POOL] for item in all_manifests(a_pool())} == {"rm"}


def test_the_same_pool_has_the_same_revision() -> None:
    assert short_hash(template()) == short_hash(template())


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"args": ["--enforce-eager"]}},
        {"engine": {"image": "other"}},
        {"worker": {"gpus": 2}},
        {"worker": {"podTemplate": {"spec": {"nodeSelector": {"gpu": "h100"}}}}},
        {"router": {"auth": {"mode": "Disabled"}}},
    ],
)
def test_what_changes_the_pod_is_another_revision(change: dict[str, Any]) -> None:
    assert short_hash(template(**change)) != short_hash(template())


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 5},
        {"suspend": True},
        {"rollout": {"strategy": "Replace"}},
        {"router": {"replicas": 3, "requestTimeoutSeconds": 7}},
    ],
)
def test_what_does_not_change_the_pod_is_the_same_revision(change: dict[str, Any]) -> None:
    assert short_hash(template(**change)) == short_hash(template())


def test_another_time_of_restart_is_another_revision_with_the_same_spec() -> None:
    pool = a_pool()
    metadata = pool.metadata.model_copy(update={"annotations": {names.ANNOTATION_RESTARTED_AT: "now"}})
    restarted = render.worker_template(pool.model_copy(update={"metadata": metadata}), image=IMAGE)
    assert restarted["metadata"]["annotations"] == {names.ANNOTATION_RESTARTED_AT: "now"}
    assert restarted["spec"] == template()["spec"]


def test_an_upgraded_operator_rolls_no_workers_on_stock_images() -> None:
    upgraded = render.worker_template(a_pool(), image="own:2")
    assert short_hash(upgraded) == short_hash(template())


def test_a_workers_deployment_says_what_of_the_spec_it_was_rendered_from() -> None:
    pool = a_pool(engine={"dtype": "float32"}, replicas=3)
    deployment = render.worker_deployment(pool, render.worker_revision(pool, image="own"), replicas=3)
    parts = json.loads(deployment["metadata"]["annotations"][names.ANNOTATION_SPEC])
    assert parts == {"model": {"source": "hf://org/model"}, "engine": {"dtype": "float32"}}
    assert "annotations" not in deployment["spec"]["template"]["metadata"]


def labelled(pool: RewardPool) -> dict[str, dict[str, str]]:
    """The recommended labels of all that is rendered: of every object, and of the pods that Deployments make."""
    identity = OperatorIdentity(namespace="system")
    everything = rendered(pool, KEYS, image=IMAGE, identity=identity)
    manifests = [*everything.shared, render.worker_deployment(pool, everything.revision, replicas=2)]
    found = {f"{item['kind']} {item['metadata']['name']}": item["metadata"] for item in manifests}
    deployments = [item for item in manifests if item["kind"] == "Deployment"]
    found |= {f"Pod of {item['metadata']['name']}": item["spec"]["template"]["metadata"] for item in deployments}
    prefix = "app.kubernetes.io/"
    return {
        name: {label.removeprefix(prefix): value for label, value in item["labels"].items() if label.startswith(prefix)}
        for name, item in found.items()
    }


def test_every_object_and_every_pod_has_the_recommended_labels() -> None:
    revision = render.worker_revision(a_pool(), image=IMAGE).name
    components = {
        "Secret rm-key": "pool",
        "Secret rm-router-admin": "pool",
        "ConfigMap rm-pins": "pool",
        "Service rm-router": "router",
        "Deployment rm-router": "router",
        "Pod of rm-router": "router",
        f"Deployment rm-worker-{revision}": "worker",
        f"Pod of rm-worker-{revision}": "worker",
        "PodDisruptionBudget rm-router": "router",
        "PodDisruptionBudget rm-worker": "worker",
        "NetworkPolicy rm-router": "router",
        "NetworkPolicy rm-worker": "worker",
    }
    of_all = {"name": "rewardpool", "instance": "rm", "part-of": "rewardpool", "managed-by": names.FIELD_MANAGER}
    labels = {name: of_all | {"component": component} for name, component in components.items()}
    # Nothing but a revision has a version: an operator's would write every object anew at its upgrade.
    labels[f"Deployment rm-worker-{revision}"]["version"] = revision
    assert labelled(a_pool()) == labels


def test_no_selector_has_a_recommended_label() -> None:
    specs = [manifest.get("spec", {}) for manifest in all_manifests(a_pool())]
    assert "app.kubernetes.io" not in json.dumps([spec.get("selector") for spec in specs])


def test_a_users_labels_are_beside_the_recommended_ones() -> None:
    labels = template(worker={"labels": {"kueue.x-k8s.io/queue-name": "rl"}})["metadata"]["labels"]
    assert (labels["kueue.x-k8s.io/queue-name"], labels["app.kubernetes.io/instance"]) == ("rl", "rm")


def test_a_container_has_the_resources_of_the_spec_beside_its_gpus() -> None:
    resources = {"requests": {"cpu": 4}, "limits": {"memory": "48Gi"}}
    found = worker(worker={"gpus": 2, "resources": resources})["resources"]
    assert found == {"requests": {"cpu": "4"}, "limits": {"memory": "48Gi", "nvidia.com/gpu": "2"}}


def test_labels_and_annotations_are_on_pods_and_on_the_deployment_and_in_no_selector() -> None:
    pool = a_pool(worker={"labels": {"queue": "rewards"}, "annotations": {"cost": "rl"}})
    deployment = render.worker_deployment(pool, render.worker_revision(pool, image=IMAGE), replicas=1)
    for metadata in (deployment["metadata"], deployment["spec"]["template"]["metadata"]):
        assert (metadata["labels"]["queue"], metadata["annotations"]["cost"]) == ("rewards", "rl")
    assert "queue" not in deployment["spec"]["selector"]["matchLabels"]


def test_another_label_is_another_revision_since_queues_read_it_when_a_pod_is_made() -> None:
    one, two = (template(worker={"labels": {"queue": name}}) for name in ("one", "two"))
    assert short_hash(one) != short_hash(two)


def test_a_variable_may_come_from_a_secret_a_config_map_or_the_pod() -> None:
    variables = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    assert worker(engine={"env": variables})["env"][:3] == variables


def test_variables_keep_their_order_since_one_may_name_another_further_up() -> None:
    variables = env_vars({"Z": "1", "A": "$(Z)"})
    assert worker(engine={"env": variables})["env"][:2] == variables


def test_a_variable_of_rewardpools_own_wins_over_a_secret() -> None:
    wait = "SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS"
    mine = {"name": wait, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    container = worker(engine={"name": "sglang", "env": [mine]})
    assert env(container)[wait] == "0"
    assert len({variable["name"] for variable in container["env"]}) == len(container["env"])


def test_another_secret_behind_a_variable_is_another_revision() -> None:
    def revision(secret: str) -> str:
        reference = {"secretKeyRef": {"name": secret, "key": "k"}}
        return short_hash(template(engine={"env": [{"name": "A", "valueFrom": reference}]}))

    assert revision("one") != revision("two")


def test_a_rollback_brings_a_functions_gpu_back_and_writes_nothing_that_its_source_says() -> None:
    def parts(**spec: Any) -> Any:
        pool = a_pool(**{"model": {"source": "python://rewards:score"}, **spec})
        return json.loads(spec_parts(pool))

    assert parts() == {"model": {"source": "python://rewards:score"}} == parts(**FUNCTION)
    assert parts(worker={"gpus": 1})["worker"] == {"gpus": 1}


def test_other_keys_are_other_router_pods() -> None:
    other = render.router_deployment(a_pool(), fingerprint=Keys(pool="x", admin="y").fingerprint, image=IMAGE)
    assert other["spec"]["template"] != router(a_pool())


def test_no_key_is_in_a_pod_or_a_log() -> None:
    pods = [item for item in all_manifests(a_pool()) if item["kind"] == "Deployment"]
    assert "pool-key" not in json.dumps(pods).replace("rm-key", "")
    assert "admin-key" not in json.dumps([item["spec"]["template"]["metadata"] for item in pods])
    assert "key" not in repr(KEYS)


def test_the_key_is_a_file_in_both_kinds_of_pod() -> None:
    for container in (worker(), router(a_pool())["spec"]["containers"][0]):
        assert mounts(container)[names.KEY_DIR] == "key"
        assert env(container)[names.ENV_KEY_FILE] == "/etc/rewardpool/key/key"


def test_a_rotations_other_keys_reach_workers_and_routers_as_files() -> None:
    (volume,) = (item for item in template()["spec"]["volumes"] if item["name"] == "key")
    assert "items" not in volume["secret"]


def test_the_keys_of_a_rotation_are_entries_beside_the_key() -> None:
    keys = replace(KEYS, next="n", previous="p", previous_admin="a", handled="2")
    key, admin = render.secrets(a_pool(), keys)
    assert set(key["data"]) == set(names.KEY_NAMES)
    assert base64.b64decode(admin["data"][names.PREVIOUS_KEY]) == b"a"
    assert admin["metadata"]["annotations"][names.ANNOTATION_ROTATE_KEY] == "2"


def test_workers_never_see_the_admin_key() -> None:
    assert names.ADMIN_KEY_DIR not in mounts(worker())
    assert names.admin_secret("rm") not in json.dumps(template())


def test_without_auth_there_is_no_key() -> None:
    pool = a_pool(router={"auth": {"mode": "Disabled"}})
    assert [item["metadata"]["name"] for item in render.secrets(pool, KEYS)] == ["rm-router-admin"]
    assert names.ENV_KEY_FILE not in env(worker(router={"auth": {"mode": "Disabled"}}))


def test_the_admin_secret_keeps_a_copy_of_the_pools_key() -> None:
    (admin,) = (item for item in render.secrets(a_pool(), KEYS) if item["metadata"]["name"] == "rm-router-admin")
    assert base64.b64decode(admin["data"][KEY_COPY]) == b"pool-key"


@pytest.mark.parametrize("spec", [{}, FUNCTION], ids=["engine", "function"])
def test_pods_hold_no_kubernetes_credential_and_gain_no_privilege(spec: dict[str, Any]) -> None:
    for pod in (template(**spec)["spec"], router(a_pool(**spec))["spec"]):
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        wanted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert wanted.items() <= container["securityContext"].items()


def test_routers_write_no_file() -> None:
    (container,) = router(a_pool())["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_own_images_do_not_run_as_root_and_stock_ones_may() -> None:
    assert template(**FUNCTION)["spec"]["securityContext"]["runAsNonRoot"]
    assert "runAsNonRoot" not in template()["spec"]["securityContext"]


def test_gpus_are_asked_for_by_their_resource_name() -> None:
    limits = worker(worker={"gpus": 2, "gpuResource": "nvidia.com/mig-3g.40gb"})["resources"]["limits"]
    assert limits == {"nvidia.com/mig-3g.40gb": "2"}
    assert "resources" not in worker(worker={"gpus": 0})


def test_a_start_may_take_as_long_as_the_rollout_allows() -> None:
    probe = worker(rollout={"progressDeadlineSeconds": 601})["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 601
    assert probe["httpGet"]["path"] == names.READY_PATH


@pytest.mark.parametrize(("gpus", "seconds"), [(0, 900), (1, 900), (8, 3000)])
def test_by_default_a_start_may_take_longer_the_more_gpus_have_to_be_filled(gpus: int, seconds: int) -> None:
    probe = worker(worker={"gpus": gpus})["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == seconds


def test_the_kubelet_waits_longer_than_the_engine_drains() -> None:
    pod = template(worker={"drainSeconds": 90})["spec"]
    (container,) = pod["containers"]
    command = container["command"]
    drain = int(command[command.index("--shutdown-timeout") + 1])
    assert pod["terminationGracePeriodSeconds"] > drain + container["lifecycle"]["preStop"]["sleep"]["seconds"]


def test_routers_change_without_a_gap() -> None:
    deployment = render.router_deployment(a_pool(), fingerprint="f", image=IMAGE)
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_service_leads_to_the_routers() -> None:
    service = render.router_service(a_pool())
    assert service["spec"]["selector"].items() <= router(a_pool())["metadata"]["labels"].items()
    assert render.pool_url(a_pool()) == f"http://{service['metadata']['name']}.rl.svc:{names.ROUTER_PORT}"


@pytest.mark.parametrize(
    ("source", "volume", "path"),
    [
        ("hf://org/model", {"emptyDir": {}}, HUB_DIR),
        ("file:///models/rm", {"hostPath": {"path": "/models/rm", "type": "Directory"}}, "/models/rm"),
        (
            "pvc://models/rm",
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            CLAIM_DIR,
        ),
    ],
)
def test_a_models_files_are_mounted_where_the_engine_looks(source: str, volume: dict[str, Any], path: str) -> None:
    pod = template(model={"source": source})["spec"]
    name = mounts(pod["containers"][0])[path]
    assert {**volume, "name": name} in pod["volumes"]


def test_the_users_own_hub_folder_wins() -> None:
    container = worker(engine={"env": env_vars({"HF_HOME": "/mine"})})
    assert [entry["value"] for entry in container["env"] if entry["name"] == "HF_HOME"] == ["/mine"]


def test_a_pod_template_changes_our_container_by_its_name() -> None:
    override = {"name": "worker", "resources": {"limits": {"memory": "8Gi"}}, "env": [{"name": "A", "value": "b"}]}
    container = worker(worker={"gpus": 1, "podTemplate": {"spec": {"containers": [override]}}})
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": "8Gi"}
    assert env(container)["A"] == "b"
    assert names.ENV_SERVED_NAME in env(container)


def test_labels_that_find_our_pods_cannot_be_overridden() -> None:
    pool = a_pool(
        worker={"podTemplate": {"metadata": {"labels": {names.LABEL_POOL: "x"}}}},
        router={"podTemplate": {"metadata": {"labels": {names.LABEL_POOL: "x"}}}},
    )
    deployments = [item for item in all_manifests(pool) if item["kind"] == "Deployment"]
    for deployment in deployments:
        wanted = deployment["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers", "python"])
def test_where_pods_have_ipv6_addresses_all_programs_listen_on_them(engine: str) -> None:
    source = "python://rewards:score" if engine == "python" else "hf://org/model"
    model = {"source": source, "type": "Function" if engine == "python" else "Discriminative"}
    identity = OperatorIdentity(namespace="system", ipv6=True)
    made = rendered(a_pool(model=model, engine={"name": engine}), KEYS, image=IMAGE, identity=identity)
    (routers,) = (one for one in made.shared if one["kind"] == "Deployment")
    for template in (made.revision.template, routers["spec"]["template"]):
        pod = json.dumps(template["spec"])
        assert "0.0.0.0" not in pod
        for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
            argv = [*container.get("command", ()), *container.get("args", ())]
            assert argv[argv.index("--host") + 1].strip("[]") == "::"
