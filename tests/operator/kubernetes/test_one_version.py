"""A pool whose spec changes while a pass is under way comes to its last spec. The API server is a fake."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pool_surroundings import Surroundings

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_operator.kubernetes.credentials import secret_reader
from rewardpool_operator.kubernetes.queue.requeue import Pace

SPECS: tuple[dict[str, Any], ...] = (
    {"engine": {"args": ["--seed=1"]}},
    {"engine": {"args": ["--seed=2"]}},
    {"engine": {}},
    {"replicas": 2},
    {"replicas": 1},
    {"router": {"requestTimeoutSeconds": 7}},
    {"router": {}},
)
CHANGES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(SPECS)), min_size=1, max_size=6)
"""After how many steps of calls, and what is changed then."""


@pytest.fixture
def often_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are read in every pass."""
    monkeypatch.setattr(secret_reader, "PACE", Pace(0.0, 0.0, 1))


def rendered(around: Surroundings) -> tuple[Any, ...]:
    """What of the spec is found in the owned objects: the engine's arguments, replicas, the routers' time limit."""
    deployments = {name: item for (kind, name), item in around.kube.objects.items() if kind == resources.DEPLOYMENTS}
    worker = deployments[names.worker_name("rm", around.pool["status"]["currentRevision"])]
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    seeds = [word for word in container["command"] + container.get("args", []) if word.startswith("--seed")]
    router = str(deployments[names.router_name("rm")]["spec"]["template"]["spec"]["containers"][0])
    return seeds, around.pool["status"]["scaling"]["desired"], "'7'" in router


def declared(around: Surroundings) -> tuple[Any, ...]:
    """The same by the last spec."""
    spec = around.pool["spec"]
    timeout = spec.get("router", {}).get("requestTimeoutSeconds", 300)
    return spec.get("engine", {}).get("args", []), spec["replicas"], timeout == 7


@pytest.mark.usefixtures("often_read")
async def test_a_change_that_comes_while_secrets_are_read_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings(monkeypatch)
    await around.bring_up()
    around.declare(engine={"args": ["--seed=1"]})
    await around.reconcile()

    def change_back() -> None:
        around.kube.meanwhile = lambda: None
        around.declare(engine={})

    around.kube.meanwhile = change_back
    for _ in range(3):
        await around.reconcile()
    assert around.pool["status"]["observedGeneration"] == around.pool["metadata"]["generation"]
    assert rendered(around) == declared(around) == ([], 1, False)


@settings(max_examples=40)
@given(CHANGES)
async def test_whenever_a_spec_changes_the_pool_comes_to_its_last_one(
    changes: list[tuple[int, dict[str, Any]]],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(secret_reader, "PACE", Pace(0.0, 0.0, 1))
        around = Surroundings(monkeypatch)
        await around.bring_up()
        around.kube.meanwhile = _script(around, iter(sorted(changes, key=lambda change: change[0])))
        for _ in range(12):
            await around.reconcile()
    assert around.pool["status"]["observedGeneration"] == around.pool["metadata"]["generation"]
    assert rendered(around) == declared(around)


def _script(around: Surroundings, changes: Iterator[tuple[int, dict[str, Any]]]) -> Any:
    step, due = 0, next(changes, None)

    def meanwhile() -> None:
        nonlocal step, due
        step += 1
        while due is not None and due[0] <= step:
            spec, due = due[1], next(changes, None)
            around.declare(**spec)

    return meanwhile
