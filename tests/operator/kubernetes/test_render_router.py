"""What router pods are, by behaviour: one fact per test."""

from typing import Any

import pytest
from support.kube_builders import a_pod, a_pool

from rewardpool_api import names
from rewardpool_api.pool import RouterFlavor
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.tls import Tls
from rewardpool_operator.kubernetes.desired import rendered
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_operator.routers.programs import PROGRAMS

KEYS = Keys(pool="pool-key", in_force="pool-key", admin="admin-key")
TLS = {"tls": {"secretName": "rm-tls"}}


def deployment(*, certificate: str | None = None, **router: Any) -> dict[str, Any]:
    return render.router_deployment(a_pool(router=router), fingerprint="keys", image="own:1", certificate=certificate)


def spec(**router: Any) -> dict[str, Any]:
    found: dict[str, Any] = deployment(**router)["spec"]["template"]["spec"]
    return found


def container(**router: Any) -> dict[str, Any]:
    (found,) = spec(**router)["containers"]
    return found


def test_a_router_is_ready_only_with_the_operators_consent() -> None:
    assert spec()["readinessGates"] == [{"conditionType": names.CONDITION_HOLDS_WORKERS}]


def test_a_new_router_is_there_before_an_old_one_goes() -> None:
    assert deployment()["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_routers_are_spread_over_nodes_where_there_are_several() -> None:
    (spread,) = spec()["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert (
        spread["labelSelector"]["matchLabels"].items() <= deployment()["spec"]["template"]["metadata"]["labels"].items()
    )


def test_memory_is_bounded_and_the_bound_can_be_moved() -> None:
    assert container()["resources"]["limits"]["memory"] == "4Gi"
    wider = {"spec": {"containers": [{"name": "router", "resources": {"limits": {"memory": "8Gi"}}}]}}
    found = container(podTemplate=wider)
    assert found["resources"]["limits"]["memory"] == "8Gi"
    (bound,) = (each for each in found["env"] if each["name"] == names.ENV_MEMORY_BYTES)
    assert bound["valueFrom"] == {"resourceFieldRef": {"resource": "limits.memory"}}


def test_a_router_has_requests_and_limits_of_cpu_and_memory() -> None:
    resources = container()["resources"]
    assert {kind: set(amounts) for kind, amounts in resources.items()} == {
        "requests": {"cpu", "memory"},
        "limits": {"cpu", "memory"},
    }


@pytest.mark.parametrize("flavor", ["sglang-router", "smg"])
def test_a_pod_says_which_program_it_runs(flavor: RouterFlavor) -> None:
    annotations = deployment(flavor=flavor)["spec"]["template"]["metadata"]["annotations"]
    pod = a_pod(component="router")
    pod["metadata"]["annotations"] = annotations
    assert pods.router_flavor(pod) == flavor
    assert {"name": names.ENV_ROUTER_PACKAGE, "value": PROGRAMS[flavor].package} in container(flavor=flavor)["env"]


def test_a_certificate_makes_https_of_service_url_and_probes() -> None:
    assert render.pool_url(a_pool(router=TLS)) == "https://rm-router.rl.svc:8080"
    probes = [container(**TLS)[probe]["httpGet"]["scheme"] for probe in ("readinessProbe", "livenessProbe")]
    assert probes == ["HTTPS", "HTTPS"]
    assert "--tls-cert-path" in container(**TLS)["command"]
    assert "scheme" not in container()["readinessProbe"]["httpGet"]


def test_a_router_gets_certificate_and_key_and_nothing_else_of_the_secret() -> None:
    (volume,) = (volume for volume in spec(**TLS)["volumes"] if volume["name"] == "tls")
    assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key"]


def test_another_certificate_is_another_pod() -> None:
    first, second = (deployment(certificate=certificate, **TLS) for certificate in ("one", "two"))
    assert first["spec"]["template"] != second["spec"]["template"]


def test_a_pod_is_called_by_the_scheme_that_it_serves() -> None:
    pod = a_pod(component="router")
    pod["metadata"]["annotations"] = {names.ANNOTATION_TLS: "hash"}
    assert pods.address(pod, "router", "http") == "https://10.0.0.7:8080"
    assert pods.address(pod, "router", "metrics") == "http://10.0.0.7:9090"


def test_routers_are_left_as_they_are_while_the_certificate_cannot_be_used() -> None:
    everything = rendered(a_pool(router=TLS), KEYS, image="own:1", tls=Tls(problem="it is missing")).shared
    assert "Deployment" not in [manifest["kind"] for manifest in everything]
