"""What the chart renders."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import permissions
from typer.core import TyperGroup
from typer.main import get_command

from rewardpool_api import names
from rewardpool_api.crd import crd_yaml
from rewardpool_api.demand import lease_name
from rewardpool_cli.commands.operator import app as operator_commands
from rewardpool_kube.configuration import SERVICE_ACCOUNT
from rewardpool_operator.front import ALIVE
from rewardpool_operator.kubernetes.settings.namespace_budgets import NamespaceBudgets
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity
from rewardpool_operator.kubernetes.settings.pool_defaults import PoolDefaults
from rewardpool_operator.kubernetes.workload.containers import PORT_HTTP, PORT_METRICS
from rewardpool_worker.engine_side.middleware.routes import OPEN_PATHS

from .conftest import CHART, KUBERNETES, NAMESPACE, Helm, HelmError, Objects, Render


def one(objects: Objects, kind: str, name: str = "rewardpool") -> dict[str, Any]:
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def pod_of(objects: Objects) -> dict[str, Any]:
    pod: dict[str, Any] = one(objects, "Deployment")["spec"]["template"]["spec"]
    return pod


def container_of(objects: Objects, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {container["name"]: container for container in pod_of(objects)["containers"]}[name]
    return found


def operator_container(objects: Objects) -> dict[str, Any]:
    return container_of(objects, "operator")


def front_container(objects: Objects) -> dict[str, Any]:
    return container_of(objects, "front")


def test_helm_finds_nothing_to_complain_about(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_the_charts_copy_of_the_crd_is_fresh() -> None:
    assert (CHART / "files" / "rewardpool.dev_rewardpools.yaml").read_text() == crd_yaml()


def test_the_rendered_crd_is_the_generated_one_and_survives_an_uninstall(render: Render) -> None:
    rendered = one(render(), "CustomResourceDefinition", f"{names.PLURAL}.{names.GROUP}")
    assert rendered["spec"] == yaml.safe_load(crd_yaml())["spec"]
    assert rendered["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_misspelt_value_is_refused_by_name(render: Render) -> None:
    with pytest.raises(HelmError, match=r"at '/image': additional properties 'tga' not allowed"):
        render(image={"tga": "1"})


@pytest.fixture
def umbrella(helm: Helm, tmp_path: Path) -> Callable[..., str]:
    """The objects of a chart that has this one as a dependency with a condition and tags."""
    folder = tmp_path / "platform"
    shutil.copytree(CHART, folder / "charts" / "rewardpool")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    needed = {"name": "rewardpool", "version": version, "condition": "rewardpool.enabled", "tags": ["rewards"]}
    chart = {"apiVersion": "v2", "name": "platform", "version": "0.1.0", "dependencies": [needed]}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))

    def rendered(**values: Any) -> str:
        (folder / "values.yaml").write_text(yaml.safe_dump(values))
        return helm("template", "x", str(folder), f"--kube-version={KUBERNETES}")

    return rendered


@pytest.mark.parametrize("switch", [{"enabled": True}, {}, {"enabled": True, "tags": {"rewards": True}}])
def test_a_chart_that_has_this_one_as_a_part_can_switch_it_on(
    umbrella: Callable[..., str], switch: dict[str, Any]
) -> None:
    rendered = umbrella(**{"global": {"region": "eu-1"}, "rewardpool": {**switch, "image": {"repository": "hub/rp"}}})
    assert "image: hub/rp:" in rendered.replace('"', "")


def test_a_chart_that_has_this_one_as_a_part_can_switch_it_off(umbrella: Callable[..., str]) -> None:
    assert "hub/rp" not in umbrella(rewardpool={"enabled": False, "image": {"repository": "hub/rp"}})


@pytest.mark.parametrize("repository", ["hub/rp:2", "hub:5000/rp:2", "rp@sha256:" + "a" * 64])
def test_a_repository_with_a_tag_or_digest_is_refused_by_name(render: Render, repository: str) -> None:
    with pytest.raises(HelmError, match=f"image.repository is {repository}, which has a tag or digest"):
        render(image={"repository": repository})


@pytest.mark.parametrize(
    ("image", "rendered"),
    [
        ({"repository": "hub:5000/rp"}, "hub:5000/rp:0.2.0"),
        ({"repository": "hub/rp"}, "hub/rp:0.2.0"),
        ({"repository": "hub/rp", "tag": "2"}, "hub/rp:2"),
        ({"repository": "hub/rp", "tag": "2", "digest": "sha256:" + "a" * 64}, "hub/rp@sha256:" + "a" * 64),
    ],
)
def test_a_digest_beats_the_tag_and_the_tag_beats_the_version(
    render: Render, image: dict[str, str], rendered: str
) -> None:
    assert operator_container(render(image=image))["image"] == rendered


@pytest.mark.parametrize("image", [{}, {"repository": ""}, {"tag": "2"}])
def test_a_chart_without_an_image_is_refused_with_what_to_do(render: Render, image: dict[str, str]) -> None:
    with pytest.raises(HelmError, match=r"image.repository is not set: build the image .* --set image.repository="):
        render(image=image)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"nameOverride": "rewards"}, "rewardpool-rewards"),
        ({"nameOverride": "pool"}, "rewardpool"),
        ({"fullnameOverride": "rp"}, "rp"),
        ({"fullnameOverride": "rp", "nameOverride": "rewards"}, "rp"),
    ],
)
def test_overrides_name_the_operators_objects(render: Render, values: dict[str, str], name: str) -> None:
    objects = render(**values)
    deployment = one(objects, "Deployment", name)
    assert one(objects, "ServiceAccount", name)
    label = values.get("nameOverride", "rewardpool-operator")
    assert deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] == label
    environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert f"app.kubernetes.io/name={label}," in next(
        item["value"] for item in environment if item["name"] == names.ENV_OPERATOR_SELECTOR
    )


def test_extra_arguments_come_last_and_are_the_operators(render: Render) -> None:
    objects = render(extraArgs=["--verbose"], watch={"namespaces": ["a"]})
    assert operator_container(objects)["args"][-2:] == ["--namespace=a", "--verbose"]


def test_extra_volumes_come_beside_the_charts_own(render: Render) -> None:
    volume, mount = {"name": "ca", "configMap": {"name": "ca"}}, {"name": "ca", "mountPath": "/etc/ca"}
    objects = render(extraVolumes=[volume], extraVolumeMounts=[mount])
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert [item["name"] for item in pod["volumes"]] == ["tmp", "socket", "credentials", "ca"]
    assert [item["name"] for item in operator_container(objects)["volumeMounts"]] == [
        "tmp",
        "credentials",
        "socket",
        "ca",
    ]
    assert [item["name"] for item in front_container(objects)["volumeMounts"]] == ["socket"]


def test_security_contexts_are_changed_field_by_field(render: Render) -> None:
    contexts = {"podSecurityContext": {"seccompProfile": None, "fsGroup": 5}, "securityContext": {"privileged": False}}
    objects = render(**contexts)
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert pod == {"fsGroup": 5, "runAsNonRoot": True}
    container = operator_container(objects)["securityContext"]
    assert container["readOnlyRootFilesystem"]
    assert container["privileged"] is False


@pytest.mark.parametrize("name", ["operator", "front"])
def test_a_container_names_no_user_or_group_and_has_requests_and_limits(render: Render, name: str) -> None:
    objects = render()
    container = container_of(objects, name)
    named = pod_of(objects)["securityContext"].keys() | container["securityContext"].keys()
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & named
    assert {kind: set(container["resources"][kind]) for kind in ("requests", "limits")} == {
        "requests": {"cpu", "memory"},
        "limits": {"cpu", "memory"},
    }


@pytest.mark.parametrize("page", [False, True])
def test_the_operator_alone_has_the_token_and_listens_at_no_port(render: Render, page: bool) -> None:
    objects = render(page={"enabled": page})
    pod, operator, front = pod_of(objects), operator_container(objects), front_container(objects)
    assert pod["automountServiceAccountToken"] is False
    with_token = {volume["name"] for volume in pod["volumes"] if "serviceAccountToken" in json.dumps(volume)}
    mounts = {mount["name"]: mount["mountPath"] for mount in operator["volumeMounts"]}
    assert {mounts[name] for name in with_token} == {str(SERVICE_ACCOUNT)}
    assert not with_token & {mount["name"] for mount in front["volumeMounts"]}
    assert not [argument for argument in operator["args"] if "port" in argument]
    assert "ports" not in operator
    assert "env" not in front


def test_the_front_can_write_nowhere_whatever_the_operator_may(render: Render) -> None:
    wide = {"runAsUser": 7, "privileged": True, "readOnlyRootFilesystem": False, "capabilities": {"add": ["NET_RAW"]}}
    front = front_container(render(page={"enabled": True}, securityContext=wide))
    assert front["securityContext"] == {
        "runAsUser": 7,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["readOnly"] for mount in front["volumeMounts"]] == [True, True]


def test_each_container_has_probes_of_its_own(render: Render) -> None:
    objects = render()
    operator, front = operator_container(objects), front_container(objects)
    (socket,) = [one.partition("=")[2] for one in operator["args"] if one.startswith("--probe-socket=")]
    tmp = next(mount["mountPath"] for mount in operator["volumeMounts"] if mount["name"] == "tmp")
    for probe in ("livenessProbe", "startupProbe", "readinessProbe"):
        assert operator[probe]["exec"]["command"] == ["python", "-m", "rewardpool_operator.healthy", socket]
        assert front[probe]["httpGet"] == {"path": ALIVE, "port": "health"}
    assert Path(socket).parent == Path(tmp)


def test_the_front_asks_at_the_operators_socket(render: Render) -> None:
    objects = render()
    operator, front = operator_container(objects)["args"], front_container(objects)["args"]
    (socket,) = [one.partition("=")[2] for one in operator if one.startswith("--front-socket=")]
    assert f"--socket={socket}" in front
    mounts = {
        mount["mountPath"]
        for container in (operator_container(objects), front_container(objects))
        for mount in container["volumeMounts"]
        if mount["name"] == "socket"
    }
    assert mounts == {str(Path(socket).parent)}


@pytest.mark.parametrize(
    "values", [{"page": {"enabled": True}, "watch": {"namespaces": ["a"]}, "log": {"verbose": True}}, {}]
)
def test_the_program_takes_the_arguments_that_the_chart_gives_it(render: Render, values: dict[str, Any]) -> None:
    for container in pod_of(render(**values))["containers"]:
        group, command, *arguments = container["args"]
        program = get_command(operator_commands)
        assert group == "operator"
        assert isinstance(program, TyperGroup)
        program.commands[command].make_context(command, arguments)


def test_kubectl_means_the_operator_of_the_two(render: Render) -> None:
    annotations = one(render(podAnnotations={"a": "b"}), "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"a": "b", "kubectl.kubernetes.io/default-container": "operator"}


def test_every_value_is_described_in_the_schema() -> None:
    def without(schema: Any, path: str) -> Iterator[str]:
        if isinstance(schema, list):
            for one in schema:
                yield from without(one, path)
        elif isinstance(schema, dict):
            for name, value in schema.get("properties", {}).items():
                if not value.get("description"):
                    yield f"{path}.{name}"
            for name, value in schema.items():
                yield from without(value, f"{path}.{name}")

    assert list(without(json.loads((CHART / "values.schema.json").read_text()), "")) == []


EVERYTHING = {
    "metrics": {
        key: {"enabled": True} for key in ("serviceMonitor", "podMonitor", "workerPodMonitor", "alerts", "dashboards")
    },
    "networkPolicy": {"enabled": True},
    "page": {"enabled": True, "namespaces": ["ingress"]},
    "watch": {"namespaces": ["a"]},
}


def test_common_labels_are_on_every_object_and_in_no_selector(render: Render) -> None:
    objects = render(commonLabels={"team": "rl"}, **EVERYTHING)
    assert {item["metadata"]["labels"].get("team") for item in objects} == {"rl"}
    spec = one(objects, "Deployment")["spec"]
    assert spec["template"]["metadata"]["labels"]["team"] == "rl"
    assert "team" not in spec["selector"]["matchLabels"]


def test_a_monitors_own_labels_win_over_the_common_ones(render: Render) -> None:
    metrics = {"serviceMonitor": {"enabled": True, "labels": {"release": "b"}}}
    objects = render(commonLabels={"release": "a"}, metrics=metrics, podLabels={"release": "c"})
    assert one(objects, "ServiceMonitor")["metadata"]["labels"]["release"] == "b"
    assert one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]["release"] == "c"


def test_common_labels_may_not_be_the_charts_own(render: Render) -> None:
    with pytest.raises(HelmError, match=r"invalid propertyName 'app\.kubernetes\.io/name'"):
        render(commonLabels={"app.kubernetes.io/name": "x"})


def test_only_one_release_of_a_cluster_brings_the_users_roles(render: Render) -> None:
    objects = render(rbac={"userRoles": False}, crds={"install": False}, watch={"namespaces": ["a"]})
    of_the_cluster = {item["kind"] for item in objects if "namespace" not in item["metadata"]}
    assert of_the_cluster == set()


def test_by_default_one_cluster_role_covers_all_namespaces(render: Render) -> None:
    objects = render()
    binding = one(objects, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == one(objects, "ClusterRole")["metadata"]["name"]
    assert not any("--namespace" in argument for argument in operator_container(objects)["args"])


def test_named_namespaces_get_a_role_each_and_nothing_is_granted_beyond_them(render: Render) -> None:
    objects = render(watch={"namespaces": ["a", "b"]})
    roles = [item for item in objects if item["kind"] == "Role"]
    assert sorted(role["metadata"]["namespace"] for role in roles) == ["a", "b", NAMESPACE]
    assert not [item for item in objects if item["kind"] == "ClusterRoleBinding"]
    assert operator_container(objects)["args"][-2:] == ["--namespace=a", "--namespace=b"]


def granted(rules: Iterable[Mapping[str, list[str]]]) -> set[tuple[str, str, str]]:
    return {triple for rule in rules for triple in product(rule["apiGroups"], rule["resources"], rule["verbs"])}


def test_the_operators_role_is_what_its_code_uses(render: Render) -> None:
    assert granted(one(render(), "ClusterRole")["rules"]) == granted(permissions.RULES)


def test_with_agent_sandbox_the_operator_may_make_claims_and_is_told_so(render: Render) -> None:
    objects = render(agentSandbox={"enabled": True})
    rights = granted(permissions.RULES) | granted(permissions.SANDBOX_RULES)
    assert granted(one(objects, "ClusterRole")["rules"]) == rights
    assert {"name": names.ENV_AGENT_SANDBOX, "value": "true"} in operator_container(objects)["env"]
    assert names.ENV_AGENT_SANDBOX not in {item["name"] for item in operator_container(render())["env"]}


TRAINERS = {"namespace": "rl", "pools": ["a", "b"], "serviceAccounts": [{"namespace": "rl", "name": "trainer"}]}


@pytest.mark.parametrize(
    ("jobs", "leases"),
    [
        ({}, [None]),
        (
            {"jobs": ["x", "y"]},
            [[lease_name(pool, job) for pool in ("a", "b") for job in ("x", "y")]],
        ),
        ({"jobs": []}, []),
    ],
)
def test_a_trainer_may_write_the_leases_of_its_jobs_where_these_are_named(
    render: Render, jobs: dict[str, list[str]], leases: list[list[str] | None]
) -> None:
    (role,) = [
        item
        for item in render(trainers=[{**TRAINERS, **jobs}])
        if item["metadata"].get("namespace") == "rl" and item["kind"] == "Role"
    ]
    rules = [rule for rule in role["rules"] if rule["resources"] == ["leases"]]
    assert [rule.get("resourceNames") for rule in rules] == leases
    assert all(rule["verbs"] == ["create", "patch"] for rule in rules)


def test_no_role_has_a_wildcard(render: Render) -> None:
    objects = render()
    rules = [rule for item in objects if item["kind"].endswith("Role") for rule in item["rules"]]
    assert rules
    assert not [rule for rule in rules if "*" in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]]


def test_the_crd_goes_with_the_release_only_where_that_is_asked_for(render: Render) -> None:
    crd = one(render(crds={"keep": False}), "CustomResourceDefinition", f"{names.PLURAL}.{names.GROUP}")
    assert "annotations" not in crd["metadata"]
    assert not [item for item in render(crds={"install": False}) if item["kind"] == "CustomResourceDefinition"]


def test_two_operators_share_a_lease_that_their_role_names(render: Render) -> None:
    objects = render()
    deployment, role = one(objects, "Deployment"), one(objects, "Role", "rewardpool-lease")
    assert deployment["spec"]["replicas"] == 2
    assert f"--lease={NAMESPACE}/rewardpool" in operator_container(objects)["args"]
    assert role["metadata"]["namespace"] == NAMESPACE
    assert granted(role["rules"]) == granted(permissions.LEASE_RULES)
    assert role["rules"][1]["resourceNames"] == ["rewardpool"]


def test_the_operator_knows_what_network_policies_have_to_let_through(render: Render) -> None:
    objects = render(metrics={"namespaces": ["monitoring"]})
    environment = {item["name"]: item.get("value") for item in operator_container(objects)["env"]}
    environment[names.ENV_POD_NAMESPACE] = NAMESPACE
    identity = OperatorIdentity.from_environment(environment)
    assert identity is not None
    assert identity.labels.items() <= one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert identity.monitoring == ("monitoring",)


POOL_DEFAULTS: dict[str, Any] = {
    "imageRegistry": "registry.example/mirror",
    "imagePullSecrets": [{"name": "mirror"}],
    "worker": {
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "scoring",
        "resources": {"requests": {"cpu": 4, "memory": "32Gi"}},
    },
    "router": {"replicas": 2, "resources": {"limits": {"memory": "2Gi"}}},
    "gateway": {"nodeSelector": {"edge": "yes"}},
}


def test_pool_defaults_reach_the_operator_as_they_are_written(render: Render) -> None:
    environment = {
        item["name"]: item.get("value") for item in operator_container(render(poolDefaults=POOL_DEFAULTS))["env"]
    }
    assert PoolDefaults.from_environment(environment) == PoolDefaults.model_validate(POOL_DEFAULTS)


def test_without_pool_defaults_the_operator_is_told_nothing_of_them(render: Render) -> None:
    assert names.ENV_POOL_DEFAULTS not in {item["name"] for item in operator_container(render())["env"]}


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        ({"router": {"replicas": 17}}, "/poolDefaults/router/replicas"),
        ({"worker": {"replicas": 2}}, "additional properties 'replicas' not allowed"),
        ({"workers": {}}, "additional properties 'workers' not allowed"),
        ({"worker": {"affinity": {}}}, "additional properties 'affinity' not allowed"),
        ({"worker": {"tolerations": [{"operator": "Exist"}]}}, "/poolDefaults/worker/tolerations/0/operator"),
    ],
)
def test_a_misspelt_pool_default_is_refused_by_its_path(render: Render, defaults: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmError, match=said):
        render(poolDefaults=defaults)


BUDGETS: list[dict[str, Any]] = [{"name": "gpus", "maxReplicas": 16, "namespaces": {"team-a": 0, "team-b": 10}}]


def test_budgets_reach_the_operator_as_they_are_written(render: Render) -> None:
    environment = {item["name"]: item.get("value") for item in operator_container(render(budgets=BUDGETS))["env"]}
    assert NamespaceBudgets.from_environment(environment).name_for("team-b") == "gpus"
    assert names.ENV_BUDGETS not in {item["name"] for item in operator_container(render())["env"]}


def test_budgets_beside_watched_namespaces_are_refused(render: Render) -> None:
    with pytest.raises(HelmError, match=r"leave watch\.namespaces empty"):
        render(budgets=BUDGETS, watch={"namespaces": ["team-a"]})


def test_a_drain_leaves_one_operator(render: Render) -> None:
    assert one(render(), "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert not [item for item in render(replicas=1) if item["kind"] == "PodDisruptionBudget"]


def test_monitors_find_the_ports_that_are_there(render: Render) -> None:
    objects = render(metrics={"serviceMonitor": {"enabled": True}})
    (service_monitor,) = [item for item in objects if item["kind"] == "ServiceMonitor"]
    service = one(objects, "Service", "rewardpool-metrics")
    assert service_monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service_monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert {port["name"] for port in front_container(objects)["ports"]} == {"health", "metrics"}


POD_MONITORS = [
    ("podMonitor", names.COMPONENT_ROUTER, PORT_METRICS),
    ("workerPodMonitor", names.COMPONENT_WORKER, PORT_HTTP),
]


@pytest.mark.parametrize(("value", "component", "port"), POD_MONITORS)
def test_a_pod_monitor_selects_what_pools_run_and_needs_no_key(
    render: Render, value: str, component: str, port: str
) -> None:
    (monitor,) = [item for item in render(metrics={value: {"enabled": True}}) if item["kind"] == "PodMonitor"]
    assert monitor["metadata"]["name"] == f"rewardpool-{component}s"
    assert monitor["spec"]["selector"]["matchLabels"] == {names.LABEL_COMPONENT: component}
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint.keys() == {"port", "interval"}
    assert endpoint["port"] == port
    assert "/metrics" in OPEN_PATHS


@pytest.mark.parametrize("value", ["podMonitor", "workerPodMonitor"])
def test_pod_monitors_look_no_further_than_the_operator(render: Render, value: str) -> None:
    objects = render(metrics={value: {"enabled": True}}, watch={"namespaces": ["a"]})
    (monitor,) = [item for item in objects if item["kind"] == "PodMonitor"]
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["a"]}


def test_no_monitor_is_made_unless_it_is_asked_for(render: Render) -> None:
    assert not [item for item in render() if item["kind"] in ("ServiceMonitor", "PodMonitor", "PrometheusRule")]


def test_without_metrics_nothing_serves_them(render: Render) -> None:
    objects = render(metrics={"enabled": False})
    assert not [item for item in objects if item["kind"] == "Service"]
    assert not [argument for argument in front_container(objects)["args"] if "metrics" in argument]


def test_the_page_is_served_only_where_that_is_asked_for(render: Render) -> None:
    objects = render()
    assert "page" not in {port["name"] for port in front_container(objects)["ports"]}
    for container in (operator_container(objects), front_container(objects)):
        assert not [argument for argument in container["args"] if "page" in argument]
    assert not [item for item in objects if item["metadata"]["name"].endswith("-page")]


def test_the_page_has_a_port_a_service_and_no_right(render: Render) -> None:
    objects = render(page={"enabled": True}, watch={"namespaces": ["a"]})
    assert "--page-port=8083" in front_container(objects)["args"]
    assert {"name": "page", "containerPort": 8083} in front_container(objects)["ports"]
    service = one(objects, "Service", "rewardpool-page")["spec"]
    assert (service["ports"][0]["targetPort"], service["sessionAffinity"]) == ("page", "ClientIP")
    without = render(watch={"namespaces": ["a"]})
    assert [item for item in objects if "Role" in item["kind"]] == [item for item in without if "Role" in item["kind"]]


@pytest.mark.parametrize("namespaces", [[], ["ingress"]])
def test_with_network_policies_the_page_is_reached_from_the_named_namespaces_alone(
    render: Render, namespaces: list[str]
) -> None:
    objects = render(page={"enabled": True, "namespaces": namespaces}, networkPolicy={"enabled": True})
    rules = one(objects, "NetworkPolicy")["spec"]["ingress"]
    found = [rule for rule in rules if rule["ports"][0]["port"] == "page"]
    reached = [peer["namespaceSelector"]["matchLabels"] for rule in found for peer in rule["from"]]
    assert reached == [{"kubernetes.io/metadata.name": namespace} for namespace in namespaces]


def test_extra_objects_may_use_the_releases_values(render: Render) -> None:
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-notes"}}
    assert one(render(extraObjects=[extra]), "ConfigMap", "rewardpool-notes")


def test_nothing_secret_is_rendered(render: Render) -> None:
    objects = render()
    assert not [item for item in objects if item["kind"] == "Secret"]
    words = " ".join([*operator_container(objects)["command"], *operator_container(objects)["args"]]).lower()
    assert not [word for word in ("key", "token", "password", "secret") if word in words]
