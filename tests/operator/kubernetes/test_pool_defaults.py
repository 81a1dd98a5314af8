"""Defaults of all pools: how they are read, and what they make of a pool's pods."""

import json
from typing import Any

import pytest
from support.decide_builders import a_pool

from rewardpool_api import names
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.settings.pool_defaults import PoolDefaults

DEFAULTS: dict[str, Any] = {
    "imageRegistry": "registry.example/mirror",
    "imagePullSecrets": [{"name": "mirror"}],
    "worker": {
        "nodeSelector": {"pool": "gpu", "zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "scoring",
        "resources": {"requests": {"cpu": 4, "memory": "32Gi"}, "limits": {"memory": "48Gi"}},
    },
    "router": {
        "nodeSelector": {"pool": "cpu"},
        "securityContext": {"runAsUser": 1000650000},
        "resources": {"requests": {"memory": "2Gi"}},
    },
}


def read(defaults: Any) -> PoolDefaults:
    return PoolDefaults.from_environment({names.ENV_POOL_DEFAULTS: json.dumps(defaults)})


def worker(**spec: Any) -> dict[str, Any]:
    template = render.worker_template(a_pool(**spec), image="own:1", defaults=read(DEFAULTS))
    return dict(template["spec"])


def router(**spec: Any) -> dict[str, Any]:
    deployment = render.router_deployment(a_pool(**spec), fingerprint="f", image="own:1", defaults=read(DEFAULTS))
    return dict(deployment["spec"]["template"]["spec"])


def test_every_worker_has_what_its_pool_does_not_say() -> None:
    pod = worker()
    assert pod["imagePullSecrets"] == [{"name": "mirror"}]
    assert pod["nodeSelector"] == {"pool": "gpu", "zone": "a"}
    assert pod["tolerations"] == DEFAULTS["worker"]["tolerations"]
    assert pod["priorityClassName"] == "scoring"
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "4", "memory": "32Gi"}
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "48Gi", "nvidia.com/gpu": "1"}


def test_routers_have_defaults_of_their_own_in_place_of_the_operators() -> None:
    pod = router()
    assert (pod["nodeSelector"], pod["imagePullSecrets"]) == ({"pool": "cpu"}, [{"name": "mirror"}])
    assert "priorityClassName" not in pod
    # No limit below the request: the operator's own of that resource is gone too.
    amounts = {"requests": {"cpu": "250m", "memory": "2Gi"}, "limits": {"cpu": "4"}}
    assert pod["containers"][0]["resources"] == amounts


def test_what_a_pool_says_wins_field_by_field() -> None:
    own = {
        "spec": {
            "nodeSelector": {"zone": "b", "pool": {"$patch": "delete"}},
            "priorityClassName": "low",
            "tolerations": [],
        }
    }
    pod = worker(worker={"podTemplate": own, "resources": {"requests": {"memory": "64Gi"}}})
    assert (pod["nodeSelector"], pod["priorityClassName"], pod["tolerations"]) == ({"zone": "b"}, "low", [])
    requests, limits = (pod["containers"][0]["resources"][kind] for kind in ("requests", "limits"))
    assert (requests, limits) == ({"cpu": "4", "memory": "64Gi"}, {"nvidia.com/gpu": "1"})


def test_a_router_keeps_what_its_pool_says() -> None:
    assert router(router={"podTemplate": {"spec": {"nodeSelector": {"pool": "x"}}}})["nodeSelector"] == {"pool": "x"}


def test_the_registry_is_that_of_stock_images_alone() -> None:
    stock = worker()["containers"][0]["image"]
    assert stock.startswith("registry.example/mirror/vllm/vllm-openai:")
    assert worker(engine={"image": "mine:1"})["containers"][0]["image"] == "mine:1"
    assert router()["containers"][0]["image"] == "own:1"


def test_the_downloads_image_comes_from_the_registry_as_the_engines() -> None:
    pod = worker(model={"source": "hf://org/model"})
    assert pod["initContainers"][0]["image"] == pod["containers"][0]["image"]


def test_a_download_may_take_what_its_worker_may_but_no_gpu() -> None:
    pod = worker(model={"source": "hf://org/model"})
    assert pod["initContainers"][0]["resources"] == {
        "requests": {"cpu": "4", "memory": "32Gi"},
        "limits": {"memory": "48Gi"},
    }


def test_pods_have_the_security_context_beside_the_operators_own() -> None:
    assert router()["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": 1000650000,
    }


def test_no_defaults_change_no_revision() -> None:
    plain = render.worker_revision(a_pool(), image="own:1")
    assert render.worker_revision(a_pool(), image="own:1", defaults=PoolDefaults.from_environment({})) == plain


def test_other_defaults_are_another_revision_of_the_same_spec() -> None:
    plain, other = (
        render.worker_revision(a_pool(), image="own:1", defaults=read(defaults)) for defaults in ({}, DEFAULTS)
    )
    assert plain.name != other.name
    assert plain.spec == other.spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ('{"workers": {}}', "workers: Extra inputs are not permitted"),
        ('{"worker": {"tolerations": [{"opeartor": "Exists"}]}}', "worker.tolerations.0.opeartor: Extra inputs"),
        ('{"router": {"nodeSelector": {"a": true}}}', "router.nodeSelector.a: Input should be a valid string"),
        ("[]", "valid dictionary"),
    ],
)
def test_a_mistake_is_told_with_its_path(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as told:
        PoolDefaults.from_environment({names.ENV_POOL_DEFAULTS: text})
    assert "poolDefaults" in str(told.value)


@pytest.mark.parametrize(
    ("own", "default", "replicas"),
    [({}, {}, 1), ({}, {"replicas": 2}, 2), ({"replicas": 1}, {"replicas": 2}, 1), ({"replicas": 3}, {}, 3)],
)
def test_a_pool_without_a_number_of_routers_has_the_default(
    own: dict[str, Any], default: dict[str, Any], replicas: int
) -> None:
    defaults = read({"router": default})
    made = render.router_deployment(a_pool(router=own), fingerprint="f", image="own:1", defaults=defaults)
    assert made["spec"]["replicas"] == replicas


def test_a_stored_number_of_one_router_and_a_default_are_no_change_of_the_pool() -> None:
    def cause(router: dict[str, Any], default: int = 1) -> Any:
        defaults = read({"router": {"replicas": default}})
        made = render.router_deployment(a_pool(router=router), fingerprint="f", image="own:1", defaults=defaults)
        return made["metadata"]["annotations"][names.ANNOTATION_CAUSE]

    assert cause({"replicas": 1}) == cause({}) == cause({}, default=2)
    assert cause({"replicas": 2}) != cause({})
