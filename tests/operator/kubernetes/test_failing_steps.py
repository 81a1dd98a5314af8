"""Passes of which one step fails: the others are made, the routers keep their lists, and the status says what fails.

The API server is a fake that keeps objects and refuses, or hangs at, what the test says.
"""

from types import ModuleType
from typing import Any

import pytest
from support.pool_surroundings import URL, Surroundings

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.resources import Resource
from rewardpool_operator.kubernetes import pool_reconciler, steps
from rewardpool_operator.kubernetes.polls import reading

REFUSALS = (403, 404, 409, 429, 500)


@pytest.fixture
async def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """The pool serves, and what fails is tried again at once."""
    around = Surroundings(monkeypatch)
    await around.bring_up()
    monkeypatch.setattr(steps, "SHORTEST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(pool_reconciler, "BUSY_SECONDS", 0.02)
    monkeypatch.setattr(reading, "PATIENCE_SECONDS", 0.02)
    return around


def degraded(around: Surroundings) -> tuple[str, str]:
    condition = around.condition("Degraded")
    return condition["status"], condition["reason"]


def secrets_of(around: Surroundings) -> dict[str, Any]:
    return {name: item["data"] for (kind, name), item in around.kube.objects.items() if kind == resources.SECRETS}


async def looks(around: Surroundings, count: int = 4) -> list[str]:
    return [write for _ in range(count) for write in await around.reconcile()]


def suspect_secrets(around: Surroundings) -> None:
    """Somebody deletes the reference to it, as the garbage collector does for a deleted Secret."""
    service = around.kube.objects[resources.SERVICES, names.router_name("rm")]
    owners = [owner for owner in service["metadata"]["ownerReferences"] if owner["kind"] != "Secret"]
    metadata = {**service["metadata"], "ownerReferences": owners}
    around.store.put(resources.SERVICES, around.kube.keep(resources.SERVICES, {**service, "metadata": metadata}))


@pytest.mark.parametrize("status", REFUSALS)
async def test_a_pool_whose_secrets_are_refused_keeps_its_routers_lists_and_its_keys(
    around: Surroundings, status: int
) -> None:
    before = secrets_of(around)
    around.kube.refused[resources.SECRETS] = status
    suspect_secrets(around)
    await around.reconcile()
    around.listed.clear()
    writes = await looks(around)
    assert around.listed == [URL]
    assert "apply Secret" not in writes
    assert secrets_of(around) == before
    assert degraded(around) == ("True", "SecretsUnreadable")
    assert "since 20" in around.condition("Degraded")["message"]
    assert "not today" in around.condition("Degraded")["message"]
    assert around.condition("Serving")["status"] == "True"
    around.kube.refused.clear()
    await looks(around)
    assert degraded(around) == ("False", "AsExpected")
    assert around.reconciler.failing == ()


async def test_secrets_that_are_slow_to_be_read_hold_up_no_router(around: Surroundings) -> None:
    around.kube.hung.add(resources.SECRETS)
    suspect_secrets(around)
    around.listed.clear()
    await around.reconcile()
    assert around.listed == [URL]
    around.reconciler.close()


async def test_a_spec_is_rolled_out_while_secrets_are_refused(around: Surroundings) -> None:
    around.kube.refused[resources.SECRETS] = 403
    suspect_secrets(around)
    around.declare(replicas=3)
    await looks(around)
    (deployment,) = (item for (_, name), item in around.kube.objects.items() if name.startswith("rm-worker-"))
    assert deployment["spec"]["replicas"] == 3


async def test_one_refusal_alone_is_no_news(around: Surroundings) -> None:
    around.kube.refused[resources.SECRETS] = 429
    suspect_secrets(around)
    await around.reconcile()
    around.kube.refused.clear()
    await looks(around)
    assert degraded(around) == ("False", "AsExpected")
    assert around.condition("Degraded")["lastTransitionTime"]


async def test_an_operator_that_starts_while_secrets_are_refused_says_that_it_has_no_keys_and_makes_none(
    around: Surroundings,
) -> None:
    before = secrets_of(around)
    around.kube.refused[resources.SECRETS] = 403
    around.reconciler = around.a_reconciler()
    writes = await looks(around)
    assert set(writes) <= {"apply RewardPool", "create Event"}
    assert secrets_of(around) == before
    assert degraded(around) == ("True", "SecretsUnreadable")
    for kind in ("Ready", "Serving"):
        condition = around.condition(kind)
        assert (condition["status"], condition["reason"]) == ("Unknown", "SecretsUnreadable")
        assert "not today" in condition["message"]
    around.kube.refused.clear()
    await looks(around, 6)
    assert around.condition("Ready")["reason"] == "Serving"
    assert degraded(around) == ("False", "AsExpected")


async def test_an_operator_that_starts_and_can_read_the_routers_key_alone_keeps_their_lists(
    around: Surroundings,
) -> None:
    before = secrets_of(around)
    around.kube.refused["rm-key"] = 403
    around.reconciler = around.a_reconciler()
    around.listed.clear()
    writes = await looks(around)
    assert around.listed == [URL]
    assert set(writes) <= {"apply RewardPool", "create Event"}
    assert secrets_of(around) == before
    assert degraded(around) == ("True", "SecretsUnreadable")
    assert around.condition("Serving")["status"] == "True"


@pytest.mark.parametrize(
    "resource", [resources.DEPLOYMENTS, resources.CONFIG_MAPS, resources.SERVICES, resources.POOLS]
)
async def test_an_api_server_that_is_slow_to_take_a_write_holds_up_no_router(
    around: Surroundings, resource: Resource
) -> None:
    around.kube.hung.add(resource)
    around.declare(engine={"args": ["--seed=1"]}, router={"requestTimeoutSeconds": 7})
    emptied = iter([True])

    def lose_the_list() -> None:
        if next(emptied, False):
            around.listed.clear()

    around.kube.meanwhile = lose_the_list
    await around.until(lambda: around.listed == [URL] and next(emptied, None) is None)


@pytest.mark.parametrize("status", REFUSALS)
async def test_an_object_that_is_refused_keeps_no_other_step_from_being_made(around: Surroundings, status: int) -> None:
    around.kube.refused[resources.DEPLOYMENTS] = status
    around.declare(replicas=3)
    around.listed.clear()
    await looks(around)
    assert around.listed == [URL]
    assert degraded(around) == ("True", "ApplyFailed")
    assert around.pool["status"]["scaling"]["desired"] == 3


async def test_of_an_api_server_that_was_away_nothing_is_said_once_it_is_back(around: Surroundings) -> None:
    around.kube.away = True
    await looks(around)
    assert [failing.reason for failing in around.reconciler.failing] == ["ApiServerUnreachable"]
    around.kube.away = False
    writes = await looks(around)
    assert degraded(around) == ("False", "AsExpected")
    assert writes == []
    assert around.reconciler.failing == ()


async def test_a_status_that_cannot_be_written_is_told_elsewhere(around: Surroundings) -> None:
    around.kube.refused[resources.POOLS] = 403
    around.declare(replicas=3)
    await looks(around)
    (failing,) = around.reconciler.failing
    assert (failing.step, failing.reason) == (steps.ReconcileStep.STATUS, "StatusNotWritten")
    assert "not today" in failing.message
    around.kube.refused.clear()
    await looks(around)
    assert around.reconciler.failing == ()
    assert around.pool["status"]["scaling"]["desired"] == 3


@pytest.mark.parametrize(
    ("module", "broken_part"),
    [(pool_reconciler, "decide"), (pool_reconciler, "left_running")],
    ids=["decide", "rendered"],
)
async def test_a_decision_that_fails_keeps_the_routers_lists_and_is_told(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, module: ModuleType, broken_part: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("words of somebody's pod")

    with monkeypatch.context() as patch:
        patch.setattr(module, broken_part, broken)
        around.declare(replicas=5)
        around.listed.clear()
        await looks(around)
    assert around.listed == [URL]
    assert degraded(around) == ("True", "ReconcileFailed")
    assert "ZeroDivisionError" in around.condition("Degraded")["message"]
    assert "words of somebody" not in str(around.pool["status"])
    assert around.condition("Progressing")["reason"] == "ReconcileFailed"
    assert around.pool["status"]["observedGeneration"] == 1
    await around.reconcile()
    assert degraded(around) == ("False", "AsExpected"), "the first decision that succeeds says no more of the last one"
    await looks(around)
    assert degraded(around) == ("False", "AsExpected")
    assert around.pool["status"]["observedGeneration"] == 2


INVALID: tuple[tuple[dict[str, Any], str], ...] = (
    ({"replicas": "many"}, "spec.replicas"),
    ({"replicas": -1}, "spec.replicas"),
    ({"engine": {"name": "pytorch"}}, "spec.engine.name"),
    ({"model": {"source": "a model"}}, "spec.model.source"),
    ({"model": 7}, "spec.model"),
    ({"router": {"replicas": 99}}, "spec.router.replicas"),
    ({"autoscaling": {"maxReplicas": 0}}, "spec.autoscaling"),
    ({"engine": {"tensorParallelSize": 4}}, "spec.engine.tensorParallelSize"),
)


@pytest.mark.parametrize(("spec", "field"), INVALID)
@pytest.mark.parametrize("restarted", [False, True])
async def test_an_invalid_stored_pool_keeps_its_routers_lists_and_its_size_and_names_the_field(
    around: Surroundings, spec: dict[str, Any], field: str, restarted: bool
) -> None:
    owned = {place: item for place, item in around.kube.objects.items() if place[0] != resources.POOLS}
    around.declare(**spec)
    around.reconciler = around.a_reconciler() if restarted else around.reconciler
    around.listed.clear()
    await looks(around, 6)
    assert around.listed == [URL]
    assert {place: item for place, item in around.kube.objects.items() if place[0] != resources.POOLS} == owned
    assert degraded(around) == ("True", "InvalidObject")
    assert field in around.condition("Degraded")["message"]
    assert around.condition("Serving")["status"] == "True"
    assert around.pool["status"]["observedGeneration"] == 1
    assert around.reconciler.failing == ()


async def test_a_status_that_is_not_understood_is_written_anew(around: Surroundings) -> None:
    found = around.kube.objects[resources.POOLS, "rm"]
    conditions = [{**found["status"]["conditions"][0], "status": "Perhaps"}, *found["status"]["conditions"][1:]]
    odd = {**found, "status": {**found["status"], "conditions": conditions, "draining": 7}}
    around.store.put(resources.POOLS, around.kube.keep(resources.POOLS, odd))
    await looks(around)
    assert {condition["status"] for condition in around.pool["status"]["conditions"]} <= {"True", "False"}
    assert degraded(around) == ("False", "AsExpected")


@pytest.mark.parametrize("name", ["\n\n", " ", "..", "no-such-secret"])
async def test_a_pool_whose_tls_secret_cannot_exist_says_so(around: Surroundings, name: str) -> None:
    around.declare(router={"tls": {"secretName": name}})
    await looks(around)
    assert degraded(around) == ("True", "TlsUnusable" if name == "no-such-secret" else "InvalidObject")
    assert "spec.router.tls.secretName" in around.condition("Degraded")["message"]


@pytest.mark.parametrize("status", REFUSALS)
async def test_a_pool_whose_tls_secret_is_refused_from_the_start_says_so(around: Surroundings, status: int) -> None:
    around.kube.refused["rm-tls"] = status
    around.declare(router={"tls": {"secretName": "rm-tls"}})
    around.listed.clear()
    await looks(around)
    assert around.listed == [URL]
    assert degraded(around)[0] == "True"
    assert "not today" in around.condition("Degraded")["message"]
