"""Pools that share a budget, on a real API server with its controllers: who gets the replicas, and never too many."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.operator_cluster import NAMESPACE, Cluster
from support.processes import RealProcess

from cluster import binaries
from rewardpool_api import names
from rewardpool_api.demand import Demand, lease_manifest
from rewardpool_api.times import rfc3339

pytestmark = pytest.mark.real

TOTAL = 4
SECONDS = 60.0
EVENTS = "{.type} {.object.metadata.name}\n"


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Cluster:
    """Two pools of equal rank: `first` has all of the budget, `second` wants three of its replicas."""
    apply(cluster, "first", replicas=TOTAL)
    cluster.eventually(lambda: cluster.is_ready("first", replicas=TOTAL), seconds=SECONDS, what="the first pool serves")
    apply(cluster, "second", replicas=3)
    return cluster


def apply(cluster: Cluster, pool: str, *, replicas: int, priority: int = 0, total: int = TOTAL) -> None:
    """A pool of the budget, whose size somebody else chooses."""
    budget = {"name": "gpus", "maxReplicas": total, "priority": priority}
    bounds = {"minReplicas": 0, "maxReplicas": 8, "policy": {"type": "External"}, "budget": budget}
    cluster.apply(pool, replicas=replicas, autoscaling=bounds)


def announce(cluster: Cluster, pool: str, *, stalled: bool) -> None:
    """A training job's word, which holds for longer than the tests take."""
    demand = Demand(job="grpo", phase="Rollout", stalled=stalled)
    uid = (cluster.get("rewardpool", pool) or {})["metadata"]["uid"]
    now = rfc3339(datetime.now(UTC))
    lease = lease_manifest(demand, pool=pool, namespace=NAMESPACE, pool_uid=uid, seconds=300, now=now)
    cluster.kubectl("apply", "--server-side", "-f", "-", data=json.dumps(lease))


def scaling(cluster: Cluster, pool: str) -> tuple[int, str | None]:
    """What is decided, and what limits it."""
    decided = cluster.status(pool).get("scaling", {})
    return decided.get("desired", -1), decided.get("limit")


@contextmanager
def never_more_than_the_budget(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Follow all workers meanwhile, those that end included; fails if there ever were more."""
    kubectl = binaries.ensure("kubectl")["kubectl"]
    selector = f"{names.LABEL_COMPONENT}={names.COMPONENT_WORKER}"
    which = ["--namespace", NAMESPACE, "get", "pods", "-l", selector]
    how = ["--watch", "--output-watch-events", "-o", f"jsonpath={EVENTS}"]
    log = folder / "pods.log"
    with RealProcess(
        [str(kubectl), f"--kubeconfig={cluster.plane.kubeconfig}", *which, *how], log=log, cwd=folder
    ) as watch:
        watch.until(lambda: log.read_text().count("ADDED") >= TOTAL, seconds=15, what="the watch tells of the pods")
        yield
    there: set[str] = set()
    most = 0
    for line in log.read_text().splitlines():
        kind, name = line.split()
        there = there - {name} if kind == "DELETED" else there | {name}
        most = max(most, len(there))
    assert most == TOTAL, log.read_text()


def test_equals_take_nothing_from_each_other(sharing: Cluster) -> None:
    sharing.eventually(lambda: scaling(sharing, "second") == (0, "Budget"), seconds=SECONDS, what="it is told to wait")
    assert "first has 4" in sharing.status("second")["scaling"]["reason"]
    assert scaling(sharing, "first") == (TOTAL, None)


def test_the_pool_for_which_a_trainer_waits_takes_from_the_other(sharing: Cluster, tmp_path: Path) -> None:
    with never_more_than_the_budget(sharing, tmp_path):
        announce(sharing, "second", stalled=True)
        sharing.eventually(
            lambda: sharing.is_ready("second", replicas=3) and sharing.is_ready("first", replicas=1),
            seconds=SECONDS,
            what="three replicas change hands",
        )
    assert scaling(sharing, "first") == (1, "Budget")
    last = sharing.status("first")["scaling"]["history"][-1]
    assert "second, for which a trainer waits, is to have 3" in last["reason"]


def test_nothing_goes_back_when_the_trainer_goes_on(sharing: Cluster) -> None:
    announce(sharing, "second", stalled=False)
    sharing.eventually(
        lambda: "second has 3" in sharing.status("first")["scaling"]["reason"], seconds=SECONDS, what="it is noticed"
    )
    assert scaling(sharing, "first") == (1, "Budget")
    assert scaling(sharing, "second") == (3, None)


def test_the_pool_of_higher_priority_takes_from_the_others(sharing: Cluster, tmp_path: Path) -> None:
    with never_more_than_the_budget(sharing, tmp_path):
        apply(sharing, "third", replicas=2, priority=10)
        sharing.eventually(
            lambda: sharing.is_ready("third", replicas=2), seconds=SECONDS, what="the third pool has its two replicas"
        )
    all_of_them = lambda: sum(scaling(sharing, pool)[0] for pool in ("first", "second", "third"))  # noqa: E731
    sharing.eventually(lambda: all_of_them() == TOTAL, seconds=SECONDS, what="the others have the rest")


def test_a_suspended_pool_leaves_its_replicas_to_the_others(sharing: Cluster) -> None:
    sharing.kubectl("patch", "rewardpool", "third", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    sharing.eventually(
        lambda: scaling(sharing, "first")[0] + scaling(sharing, "second")[0] == TOTAL,
        seconds=SECONDS,
        what="the two others have all of it",
    )


def test_pools_that_state_different_totals_are_warned(sharing: Cluster) -> None:
    apply(sharing, "second", replicas=3, total=6)
    sharing.eventually(
        lambda: sharing.condition("first", "ScalingActive").get("reason") == "BudgetDisagrees",
        seconds=SECONDS,
        what="the condition says so",
    )
    sharing.eventually(
        lambda: "BudgetDisagrees" in sharing.kubectl("get", "events", "--field-selector", "type=Warning"),
        seconds=SECONDS,
        what="an event says so",
    )
