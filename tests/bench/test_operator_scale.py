"""`make bench-operator`: that it runs, and that its figures are what they are called."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import RawTestServer
from operator_scale.api import Followed
from operator_scale.audit import Audit, counted, policy
from operator_scale.phases import bare, is_complete, is_full
from operator_scale.stand_in_fleet import StandInFleet
from operator_scale.under_test import quantile, since

from cluster import binaries
from cluster.processes import ClusterError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.real
@pytest.mark.long
def test_a_small_run_ends_with_every_figure(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("needs Go, to build the API server and kwok: see e2e/cluster/binaries.py")
    binaries.ensure(*binaries.TESTS)  # `make binaries` has done it; what is built here is not in the run's time limit
    out = tmp_path / "operator.json"
    size = ["--pools=3", "--pods=2", "--idle-seconds=2", "--deadline-seconds=120", f"--out={out}"]
    path = os.pathsep.join(str(ROOT / folder) for folder in ("bench", "e2e", "tests"))

    done = subprocess.run(
        [sys.executable, "-m", "operator_scale", *size],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=400,
    )

    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert (result["pools"], result["pods"]) == (3, 9)
    assert result["api_writes"]["create deployments"] >= 6
    assert result["api_writes_idle_60s"] == 0
    figures = ("all_ready_seconds", "deployments_alone_seconds", "ratio", "reconcile_p99_ms", "rss_mb", "cpu_seconds")
    assert all(result[figure] > 0 for figure in (*figures, "api_writes_a_pool", "reconcile_own_p99_ms"))


def test_the_audit_log_has_a_line_for_each_write_of_the_one_user() -> None:
    rule, rest = policy("me")["rules"]

    assert (rule["users"], rule["level"], rest) == (["me"], "Metadata", {"level": "None"})
    assert "patch" in rule["verbs"]
    assert "list" not in rule["verbs"]


def test_writes_are_counted_by_verb_and_resource() -> None:
    status = {"verb": "patch", "objectRef": {"resource": "rewardpools", "subresource": "status"}}
    event = {"verb": "create", "objectRef": {"resource": "events"}}

    assert counted([status, event, status]) == Counter({"patch rewardpools/status": 2, "create events": 1})


def test_a_line_of_the_audit_log_is_counted_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    audit = Audit(tmp_path, user="me")
    log, line = tmp_path / "audit.jsonl", json.dumps({"verb": "create", "objectRef": {"resource": "events"}})

    log.write_text(f"{line}\n{line[:9]}")
    first = audit.writes()
    log.write_text(f"{line}\n{line}\n")

    assert (first.total(), audit.writes().total(), audit.writes().total()) == (1, 1, 0)


@pytest.mark.parametrize(
    ("share", "value"),
    [(0.5, 0.1), (0.75, 0.15), (1.0, 0.2)],
)
def test_a_quantile_is_read_from_the_buckets_as_prometheus_reads_it(share: float, value: float) -> None:
    assert quantile(share, {0.1: 50.0, 0.2: 100.0, inf: 100.0}) == pytest.approx(value)


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile(0.99, {0.1: 1.0, inf: 100.0}) == 0.1


def test_there_is_no_quantile_without_observations() -> None:
    assert quantile(0.99, {}) is None
    assert quantile(0.99, {0.1: 0.0, inf: 0.0}) is None


def test_a_reading_since_another_has_only_what_came_between() -> None:
    assert since({0.1: 5.0, inf: 9.0}, {0.1: 4.0, inf: 4.0}) == {0.1: 1.0, inf: 5.0}


def test_the_bare_client_makes_the_same_object_without_its_owner() -> None:
    metadata = {"name": "a-router", "uid": "u", "labels": {"a": "b"}, "ownerReferences": [{}], "namespace": "other"}
    live = {"metadata": metadata, "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 8080}]}, "status": {}}

    assert bare(live, "v1", "Service") == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a-router", "labels": {"a": "b"}},
        "spec": {"ports": [{"port": 8080}]},
    }


@pytest.mark.parametrize("missing", ["Serving", "WorkersReady", "RouterReady"])
def test_a_pool_is_complete_once_all_its_workers_are_in_its_router(missing: str) -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("Serving", "WorkersReady", "RouterReady")]
    pool: dict[str, Any] = {"status": {"conditions": conditions}}
    assert is_complete(pool)

    pool["status"]["conditions"] = [entry for entry in conditions if entry["type"] != missing]

    assert not is_complete(pool)


def test_a_deployment_is_full_when_all_wanted_pods_are_ready() -> None:
    assert is_full({"spec": {"replicas": 4}, "status": {"readyReplicas": 4}})
    assert not is_full({"spec": {"replicas": 4}, "status": {"readyReplicas": 3}})
    assert not is_full({"spec": {"replicas": 4}})


def test_what_is_followed_is_what_the_watch_said_last() -> None:
    followed = Followed()
    followed.objects = {name: {"metadata": {"name": name}} for name in "ab"}
    followed.take({"type": "ADDED", "object": {"metadata": {"name": "c"}}})
    followed.take({"type": "MODIFIED", "object": {"metadata": {"name": "a"}, "status": {}}})
    followed.take({"type": "DELETED", "object": {"metadata": {"name": "b"}}})

    assert followed.objects == {"a": {"metadata": {"name": "a"}, "status": {}}, "c": {"metadata": {"name": "c"}}}


def test_nothing_is_counted_once_it_is_not_known_what_there_is() -> None:
    followed = Followed()
    followed.failure = ClusterError("refused")
    with pytest.raises(ClusterError, match="refused"):
        followed.count(is_full)


def test_a_watch_that_failed_is_an_error() -> None:
    with pytest.raises(ClusterError, match="too old"):
        Followed().take({"type": "ERROR", "object": {"message": "too old resource version"}})


async def test_the_stand_in_keeps_a_worker_list_for_each_address() -> None:
    fleet = StandInFleet()
    async with (
        RawTestServer(fleet.router, host="127.0.0.2") as one,
        RawTestServer(fleet.router, host="127.0.0.3") as other,
        ClientSession() as session,
    ):
        await session.post(one.make_url("/workers"), json={"url": "http://10.0.0.9:8000"})

        async with session.get(one.make_url("/workers")) as full, session.get(other.make_url("/workers")) as empty:
            assert [worker["url"] for worker in (await full.json())["workers"]] == ["http://10.0.0.9:8000"]
            assert (await empty.json())["workers"] == []


async def test_a_worker_that_was_removed_is_off_the_stand_ins_list() -> None:
    async with RawTestServer(StandInFleet().router) as router, ClientSession() as session:
        async with session.post(router.make_url("/workers"), json={"url": "http://10.0.0.9:8000"}) as added:
            worker = (await added.json())["worker_id"]

        async with session.delete(router.make_url(f"/workers/{worker}")) as removed:
            assert removed.status == 202
        async with session.delete(router.make_url(f"/workers/{worker}")) as again:
            assert again.status == 404
