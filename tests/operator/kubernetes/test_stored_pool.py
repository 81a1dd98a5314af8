"""What is made of a stored pool that is not valid: enough to keep its routers, with the fields that are wrong named."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_operator.kubernetes.stored_pool import StoredPool

SPEC: dict[str, Any] = {
    "model": {"source": "hf://org/model"},
    "engine": {"name": "vllm", "args": ["--seed=1"], "sleep": {"enabled": False}},
    "worker": {"gpus": 1, "drainSeconds": 60, "podTemplate": {"spec": {}}},
    "router": {"replicas": 2, "auth": {"mode": "Disabled"}, "tls": {"secretName": "rm-tls"}},
    "network": {"policy": "Generated", "namespaces": ["rl"]},
    "autoscaling": {
        "maxReplicas": 4,
        "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}},
    },
    "rollout": {"parity": {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.1}},
}
ODD = st.sampled_from([None, 7, -1, "x" * 5000, "\n", [], [None], {}, {"a": 1}, True, 1e308])


def an_object(spec: Any, *, name: str = "rm") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "rl", "generation": 2}, "spec": spec, "status": {"replicas": 3}}


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for name, child in children for deeper in paths(child, (*path, name)))]


def test_a_valid_pool_has_no_problem() -> None:
    stored = StoredPool.parse(an_object(SPEC))
    assert stored.problems == ()
    assert stored.pool.spec.router.replicas == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"router": {**SPEC["router"], "replicas": 99}}, "spec.router.replicas"),
        ({"engine": {"name": "pytorch"}}, "spec.engine.name"),
        ({"worker": {"gpus": 1}, "engine": {"tensorParallelSize": 8}}, "spec.engine.tensorParallelSize"),
        (
            {"worker": {"podTemplate": {"spec": {"containers": [{"name": "worker", "args": ["--port=1"]}]}}}},
            "spec.worker.podTemplate.spec.containers[0].args",
        ),
    ],
)
def test_the_problem_names_the_field_and_the_rest_of_the_spec_is_known(changes: dict[str, Any], field: str) -> None:
    stored = StoredPool.parse(an_object({**SPEC, **changes}))
    (problem,) = stored.problems
    assert field in problem
    assert stored.pool.spec.router.auth.mode == "Disabled"
    assert stored.pool.status.replicas == 3


def test_a_name_that_a_stricter_schema_refuses_is_kept() -> None:
    stored = StoredPool.parse(an_object(SPEC, name="70b_judge"))
    assert stored.pool.metadata.name == "70b_judge"
    assert "metadata.name" in stored.problems[0]


@given(st.sampled_from(paths(SPEC)), ODD)
def test_whatever_is_stored_as_a_spec_is_parsed(path: tuple[Any, ...], odd: Any) -> None:
    found = an_object(deepcopy(SPEC))
    place: Any = found
    for part in ("spec", *path)[:-1]:
        place = place[part]
    place[("spec", *path)[-1]] = odd
    before = deepcopy(found)
    stored = StoredPool.parse(found)
    assert (stored.pool.metadata.name, stored.pool.metadata.generation) == ("rm", 2)
    assert stored.pool.status.replicas == 3
    assert found == before
