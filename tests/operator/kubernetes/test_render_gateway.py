"""What gateway pods are, by behaviour: one fact per test."""

from typing import Any

import pytest
from support.kube_builders import a_pool

from rewardpool_api import names
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.desired import rendered
from rewardpool_operator.kubernetes.settings.pool_defaults import PoolDefaults

TEACHER = {"source": "hf://org/model", "type": "Teacher"}
KEYS = Keys(pool="pool-key", in_force="pool-key", admin="admin-key", gateway="gateway-key")


def deployment(
    *, key: str = "gateway-key", ipv6: bool = False, defaults: PoolDefaults | None = None, **spec: Any
) -> dict[str, Any]:
    pool = a_pool(**{"model": TEACHER, "gateway": {}, **spec})
    assert pool.spec.gateway is not None
    return render.gateway_deployment(
        pool, pool.spec.gateway, key=key, image="own:1", ipv6=ipv6, defaults=defaults or PoolDefaults()
    )


def pod(**options: Any) -> dict[str, Any]:
    found: dict[str, Any] = deployment(**options)["spec"]["template"]["spec"]
    return found


def container(**options: Any) -> dict[str, Any]:
    (found,) = pod(**options)["containers"]
    return found


def objects(**spec: Any) -> set[tuple[str, str]]:
    """Kinds and names of what is rendered beyond a pool without a gateway."""
    with_one, without = (rendered(a_pool(model=TEACHER, **one), KEYS, image="own:1") for one in ({**spec}, {}))
    kinds = [{(one["kind"], one["metadata"]["name"]) for one in each.shared} for each in (with_one, without)]
    return kinds[0] - kinds[1]


def test_a_gateway_is_a_deployment_behind_a_service() -> None:
    assert objects(gateway={}) == {(kind, "rm-gateway") for kind in ("Deployment", "Service", "PodDisruptionBudget")}


def test_a_gateway_has_no_credential_of_the_cluster_and_no_key_of_the_worker_lists() -> None:
    assert pod()["automountServiceAccountToken"] is False
    assert {volume["secret"]["secretName"] for volume in pod()["volumes"]} == {"rm-gateway", "rm-key"}


def test_no_key_is_in_a_command_line_or_variable() -> None:
    said = str([container()["command"], container()["env"], deployment()["metadata"]])
    assert "gateway-key" not in said.replace("rm-gateway-key", "")
    assert "pool-key" not in said


def test_a_pool_without_a_key_gives_its_gateway_none() -> None:
    spec = {"router": {"auth": {"mode": "Disabled"}}}
    assert [volume["secret"]["secretName"] for volume in pod(**spec)["volumes"]] == ["rm-gateway"]
    assert [one["name"] for one in container(**spec)["env"]] == ["REWARDPOOL_URL"]


def test_another_key_is_other_pods() -> None:
    annotations = [deployment(key=key)["spec"]["template"]["metadata"]["annotations"] for key in ("one", "two")]
    assert annotations[0] != annotations[1]


@pytest.mark.parametrize(("gateway", "timeout"), [({}, 100), ({"requestTimeoutSeconds": 600}, 600)])
def test_a_gateway_has_its_deadline_and_time_for_what_is_in_flight(gateway: dict[str, Any], timeout: int) -> None:
    found = container(gateway=gateway)
    assert found["command"][-2:] == ["--timeout", str(timeout)]
    seconds = found["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(gateway=gateway)["terminationGracePeriodSeconds"] > seconds + timeout + names.GATEWAY_GRACE_SECONDS


def test_a_gateway_has_the_vocabulary_of_its_callers() -> None:
    command = container(gateway={"vocabulary": "fedcba9876543210"})["command"]
    assert command[command.index("--vocabulary") + 1] == "fedcba9876543210"
    assert "--vocabulary" not in container()["command"]


def test_a_gateway_listens_on_ipv6_where_the_cluster_has_it() -> None:
    assert "0.0.0.0:5000" in container()["command"]
    assert "[::]:5000" in container(ipv6=True)["command"]


def test_a_gateway_goes_where_routers_go() -> None:
    defaults = PoolDefaults.model_validate(
        {"imagePullSecrets": [{"name": "mirror"}], "router": {"nodeSelector": {"cpu": "yes"}}}
    )
    assert pod(defaults=defaults)["nodeSelector"] == {"cpu": "yes"}
    assert pod(defaults=defaults)["imagePullSecrets"] == [{"name": "mirror"}]


def test_gateways_have_defaults_of_their_own_in_place_of_the_routers() -> None:
    own = {"nodeSelector": {"edge": "yes"}, "resources": {"requests": {"memory": "6Gi"}}}
    router = {"nodeSelector": {"cpu": "yes"}, "priorityClassName": "scoring", "resources": {"requests": {"cpu": 8}}}
    defaults = PoolDefaults.model_validate({"router": router, "gateway": own})
    assert (pod(defaults=defaults)["nodeSelector"], pod(defaults=defaults)["priorityClassName"]) == (
        {"edge": "yes"},
        "scoring",
    )
    # No limit below the request: the operator's own of that resource is gone too.
    amounts = {"requests": {"cpu": "100m", "memory": "6Gi"}, "limits": {"cpu": "4"}}
    assert container(defaults=defaults)["resources"] == amounts


def test_what_a_pool_says_of_its_gateways_pods_wins() -> None:
    defaults = PoolDefaults.model_validate({"gateway": {"nodeSelector": {"edge": "yes"}}})
    own = {"nodeSelector": {"edge": "no"}, "containers": [{"name": "gateway", "resources": {"limits": {"cpu": "8"}}}]}
    gateway = {"podTemplate": {"spec": own}}
    assert pod(gateway=gateway, defaults=defaults)["nodeSelector"] == {"edge": "no"}
    found = container(gateway=gateway)
    assert found["resources"]["limits"] == {"cpu": "8", "memory": "4Gi"}
    assert found["command"] == container()["command"]


def test_a_pod_template_takes_no_label_or_key_of_a_gateway_away() -> None:
    marks = {"labels": {names.LABEL_POOL: "x"}, "annotations": {names.ANNOTATION_KEYS: "x"}}
    (changed, plain) = (
        deployment(gateway=gateway)["spec"]["template"]["metadata"]
        for gateway in ({"podTemplate": {"metadata": marks}}, {})
    )
    assert changed == plain
