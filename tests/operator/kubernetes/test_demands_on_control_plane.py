"""Training jobs that announce, die, end and talk nonsense, and the operator that listens.

Real API server with controllers, real routers and function workers; the node and the training job are stand-ins. The
job has the rights of a trainer of the Helm chart, and no other.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from support.operator_cluster import NAMESPACE, PATHS, Cluster

from rewardpool_api import names
from rewardpool_api.demand import Demand, lease_manifest, lease_name

pytestmark = pytest.mark.real

POOL = "expected"
LEASE_SECONDS = 6
RENEWAL_SECONDS = 0.5
"""Much less, for all takes its time on a machine that does other work."""
TRAINER = f"system:serviceaccount:{NAMESPACE}:trainer"
SCALING = {
    "minReplicas": 0,
    "maxReplicas": 2,
    "cooldownSeconds": 3,
    "policy": {"type": "Demand", "demand": {"drainSeconds": 5, "learn": False}},
    "serviceRate": {"initialPerReplica": 10},
    "scaleDown": {"stabilizationWindowSeconds": 1},
}


@pytest.fixture(scope="module", autouse=True)
def pool(cluster: Cluster) -> None:
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "patch"]}
    metadata = {"name": "trainer", "namespace": NAMESPACE}
    rbac = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    subject = {"kind": "ServiceAccount", **metadata}
    reference = {"apiGroup": rbac, "kind": "Role", "name": "trainer"}
    binding = {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
    del binding["rules"]
    cluster.kubectl("apply", "-f", "-", data=yaml.safe_dump_all([role, binding]))
    cluster.apply(POOL, autoscaling=SCALING)
    cluster.eventually(lambda: is_at_zero(cluster), seconds=60, what="the pool is at zero, and ready to be asked")


def is_at_zero(cluster: Cluster) -> bool:
    status = cluster.status(POOL)
    return status.get("replicas") == 0 and cluster.condition(POOL, "RouterReady").get("status") == "True"


def announce(
    cluster: Cluster,
    job: str,
    *,
    pool: str = POOL,
    renewal: int = 0,
    text: str = "",
    name: str | None = None,
    **demand: Any,
) -> None:
    """One word of a job whose clock is decades behind; `text` instead of a demand that makes sense.

    Every renewal differs in its time, or it would be none. `name` is the Lease's, where it is not the job's own.
    """
    said = Demand.model_validate({"job": job, "phase": "Rollout", **demand})
    now = f"2001-01-01T00:00:00.{renewal:06}Z"
    lease = lease_manifest(said, pool=pool, namespace=NAMESPACE, pool_uid=None, seconds=LEASE_SECONDS, now=now)
    if text:
        lease["metadata"]["annotations"][names.ANNOTATION_DEMAND] = text
    lease["metadata"]["name"] = name or lease["metadata"]["name"]
    path = f"{PATHS['lease'].format(NAMESPACE)}/{lease['metadata']['name']}"
    cluster.plane.apply(path, lease, user=TRAINER, field_manager="job")


@contextmanager
def stand_in_job(cluster: Cluster, job: str, **demand: Any) -> Iterator[Callable[[], int]]:
    """Announces again and again, and dies at the end without a word; gives the number of its renewals."""
    dead, renewals = threading.Event(), 0

    def keep_announcing() -> None:
        nonlocal renewals
        while not dead.is_set():
            renewals += 1
            announce(cluster, job, renewal=renewals, **demand)
            dead.wait(RENEWAL_SECONDS)

    thread = threading.Thread(target=keep_announcing)
    thread.start()
    try:
        yield lambda: renewals
    finally:
        dead.set()
        thread.join()


def demand(cluster: Cluster, job: str) -> dict[str, Any]:
    return next((item for item in cluster.status(POOL).get("demands", []) if item["job"] == job), {})


def events(cluster: Cluster, about: str, reason: str) -> list[dict[str, Any]]:
    found = json.loads(cluster.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
    return [event for event in found if (event["regarding"]["name"], event["reason"]) == (about, reason)]


def test_a_job_that_renews_its_demand_has_a_warm_pool_and_one_that_dies_lets_it_go(cluster: Cluster) -> None:
    # Due at each renewal: a burst that stayed ahead would be let go by a pool whose start takes less than that.
    with stand_in_job(cluster, "grpo", phase="Update", samples=100, startsInSeconds=0) as renewals:
        cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=60, what="the pool is warm")
        enough = renewals() + 2 * LEASE_SECONDS / RENEWAL_SECONDS
        cluster.eventually(lambda: renewals() >= enough, seconds=60, what="it was renewed for longer than it lasts")
        assert demand(cluster, "grpo")["state"] == "Live"
        assert (demand(cluster, "grpo")["samples"], demand(cluster, "grpo")["replicas"]) == (100, 2)
    cluster.eventually(lambda: demand(cluster, "grpo")["state"] == "Lapsed", seconds=20, what="the demand lapses")
    cluster.eventually(lambda: is_at_zero(cluster), seconds=30, what="the pool is at zero again")
    assert [len(events(cluster, POOL, reason)) for reason in ("DemandBegan", "DemandLapsed", "DemandEnded")] == [
        1,
        1,
        0,
    ]


def test_a_job_that_says_it_ended_is_told_and_its_lease_is_removed(cluster: Cluster) -> None:
    announce(cluster, "short", renewal=1)
    cluster.eventually(lambda: demand(cluster, "short").get("state") == "Live", seconds=10, what="it is heard")
    announce(cluster, "short", renewal=2, phase="Ended")
    name = lease_name(POOL, "short")
    cluster.eventually(lambda: cluster.get("lease", name) is None, seconds=10, what="its Lease is removed")
    assert len(events(cluster, POOL, "DemandEnded")) == 1


def test_nonsense_is_told_once_on_the_pool_and_has_no_other_effect(cluster: Cluster) -> None:
    name = lease_name(POOL, "odd")
    for renewal in range(3):
        announce(cluster, "odd", renewal=renewal, text='{"job": "odd", "phase": "Rollout", "startsInSeconds": NaN}')
        cluster.eventually(lambda: demand(cluster, name).get("state") == "Ignored", seconds=10, what="it is ignored")
    (event,) = events(cluster, POOL, "DemandIgnored")
    assert event["type"] == "Warning"
    assert event["note"].startswith(f"{name} is no demand: startsInSeconds: ")
    assert is_at_zero(cluster)


@pytest.mark.parametrize("name", [lease_name("other", "grpo"), f"demand-{POOL}-grpo"], ids=["another's", "hyphen"])
def test_a_lease_that_is_not_called_by_pool_and_job_scales_nothing(cluster: Cluster, name: str) -> None:
    """A trainer may write the Leases of its own pool and job, and can give them labels and words of any other."""
    announce(cluster, "grpo", name=name, samples=1000)
    cluster.eventually(lambda: demand(cluster, name).get("state") == "Ignored", seconds=10, what="it is ignored")
    assert (demand(cluster, name)["replicas"], cluster.status(POOL)["scaling"]["desired"]) == (0, 0)
    assert is_at_zero(cluster)


def test_a_demand_for_a_pool_that_does_not_exist_is_told_on_its_lease(cluster: Cluster) -> None:
    name = lease_name("nobody", "grpo")
    announce(cluster, "grpo", pool="nobody")
    cluster.eventually(lambda: events(cluster, name, "NoSuchPool"), seconds=30, what="the Lease has an event")
    (event,) = events(cluster, name, "NoSuchPool")
    assert event["regarding"]["kind"] == "Lease"
    assert f"no RewardPool {NAMESPACE}/nobody" in event["note"]


def test_an_operator_that_cannot_hear_the_job_does_not_take_it_for_dead(cluster: Cluster) -> None:
    with stand_in_job(cluster, "steady") as renewals:
        cluster.eventually(lambda: demand(cluster, "steady").get("state") == "Live", seconds=10, what="it is heard")
        cluster.cable.cut()
        try:
            enough = renewals() + 2 * LEASE_SECONDS / RENEWAL_SECONDS
            cluster.eventually(lambda: renewals() >= enough, seconds=60, what="the operator is cut off for long")
        finally:
            cluster.cable.repair()
        announce(cluster, "newcomer")
        cluster.eventually(lambda: demand(cluster, "newcomer"), seconds=30, what="the operator hears again")
        assert demand(cluster, "steady")["state"] == "Live"
        # The newcomer, which is announced once, may lapse meanwhile on a slow machine.
        assert not [event for event in events(cluster, POOL, "DemandLapsed") if "job steady" in event["note"]]


def begun(cluster: Cluster, job: str) -> list[dict[str, Any]]:
    """The events that tell of its beginning."""
    return [event for event in events(cluster, POOL, "DemandBegan") if f"job {job}" in event["note"]]


def test_the_next_operator_tells_nothing_again(cluster: Cluster) -> None:
    with stand_in_job(cluster, "long"):
        cluster.eventually(lambda: demand(cluster, "long").get("state") == "Live", seconds=10, what="it is heard")
        cluster.eventually(lambda: begun(cluster, "long"), seconds=10, what="an event says so")
        began = len(events(cluster, POOL, "DemandBegan"))
        cluster.stop_operator()
        cluster.start_operator()
        announce(cluster, "another")
        cluster.eventually(lambda: demand(cluster, "another"), seconds=30, what="the new operator hears")
        cluster.eventually(lambda: begun(cluster, "another"), seconds=10, what="an event says so")
        assert demand(cluster, "long")["state"] == "Live"
        assert len(events(cluster, POOL, "DemandBegan")) == began + 1


def test_the_gpu_seconds_of_a_pool_are_those_of_the_job_whose_samples_it_scores(cluster: Cluster) -> None:
    pool = "costly"
    cluster.apply(pool, replicas=1, worker={"gpus": 1, "drainSeconds": 1})
    cluster.eventually(lambda: cluster.is_ready(pool, replicas=1), seconds=60, what="the pool is ready")

    def cost() -> dict[str, Any]:
        jobs = (cluster.status(pool).get("costs") or {}).get("jobs", [])
        return next((job for job in jobs if job["job"] == "payer"), {})

    announce(cluster, "payer", pool=pool, scored=30)
    cluster.eventually(lambda: cost().get("gpuSeconds"), seconds=60, what="GPU-seconds are attributed to it")
    assert cost()["samples"] == 30
    found = [item for item in cluster.samples() if item.labels.get("pool") == pool]
    by_job = sum(item.value for item in found if item.name == "rewardpool_job_gpu_seconds_total")
    [whole] = [item.value for item in found if item.name == "rewardpool_pool_gpu_seconds_total"]
    assert by_job == pytest.approx(whole, rel=0.01)
