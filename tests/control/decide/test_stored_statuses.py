"""What somebody wrote into a stored status: numbers and times that no operator writes never fail a decision."""

import json
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.decide_builders import NOW, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPool, RewardPoolStatus
from rewardpool_api.times import rfc3339
from rewardpool_control.decide import decide
from rewardpool_control.plan import Plan
from rewardpool_operator.left_out import with_sane_status
from rewardpool_operator.metrics import METRICS

AGO, FUTURE = rfc3339(NOW - timedelta(minutes=5)), rfc3339(NOW + timedelta(days=400_000))
STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "replicas": 2,
    "readyReplicas": 2,
    "currentRevision": "new",
    "load": {"inFlight": 3, "waiting": 1},
    "conditions": [
        {"type": kind, "status": status, "reason": "X", "lastTransitionTime": AGO, "observedGeneration": 1}
        for kind, status in (("Ready", "True"), ("Degraded", "False"), ("ScalingActive", "True"))
    ],
    "scaling": {
        "desired": 2,
        "reason": "",
        "recommendedReplicas": 2,
        "idleSince": AGO,
        "quietSince": AGO,
        "unannounced": AGO,
        "window": [{"time": AGO, "replicas": 3}, {"time": AGO, "replicas": 2}],
        "serviceRate": {"perReplica": 4.0, "inFlight": 8, "measured": [{"rate": 4.0, "inFlight": 8}], "time": AGO},
        "starts": [{"worker": "w0", "seconds": 30.0}],
        "bursts": [
            {"begun": rfc3339(NOW - timedelta(minutes=minutes)), "ended": rfc3339(NOW - timedelta(minutes=minutes - 1)),
             "replicas": 2, "jobs": []}
            for minutes in (20, 15, 10, 5)
        ],
        "history": [{"time": AGO, "replicas": 2, "reason": ""}],
    },
    "demands": [{"job": "grpo", "state": "Live", "samples": 64, "nextBurst": AGO, "replicas": 1}],
    "firstScore": {"since": AGO, "seconds": 3.5, "parts": {"load": 3.5}, "waitsFor": "Load"},
    "rollout": {
        "targetRevision": "new", "stableRevision": "new", "silentSince": AGO,
        "failed": {"revision": "bad", "reason": "ProgressDeadlineExceeded", "time": AGO},
    },
    "model": {
        "type": "Discriminative", "servedName": "rm", "maxModelLen": 4096,
        "download": {"phase": "Downloading", "downloadedBytes": 5, "totalBytes": 9, "workers": 1, "time": AGO},
        "revisions": [{"revision": "new", "source": "hf://org/model", "servedName": "rm", "maxModelLen": 4096}],
    },
    "auth": {"rotation": {"phase": "Preparing", "since": AGO}},
}  # fmt: skip
POLICIES = (
    {"type": "DrainTime", "drainTime": {"targetSeconds": 5}},
    {"type": "Demand", "demand": {}},
    {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}},
)
SPECS: tuple[dict[str, Any], ...] = (
    {"replicas": 2},
    *({"autoscaling": {"minReplicas": 0, "maxReplicas": 4, "policy": policy}} for policy in POLICIES),
)
ODD = [0, -1, 1, 2**31, 2**63, 10**400, 0.0, 5e-324, -0.5, 1e308, FUTURE, "9999-12-31T23:59:59Z", "never", None, True]

Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> list[Path]:
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for name, child in entries for leaf in leaves(child, (*path, name))]
    return [path]


def spoilt(*changes: tuple[Path, Any]) -> dict[str, Any]:
    status = deepcopy(STATUS)
    for path, value in changes:
        place: Any = status
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
    return status


def decided(status: dict[str, Any], spec: dict[str, Any], *, requests: int = 9) -> Plan:
    """What a pass decides and tells; the status that it writes is one that the next pass reads whole."""
    metadata = {"name": "rm", "namespace": "rl", "uid": "u", "generation": 1}
    found = {"metadata": metadata, "spec": {"model": {"source": "hf://org/model"}, **spec}, "status": status}
    pool = RewardPool.model_validate(with_sane_status(found, now=NOW), extra="ignore")
    workers = tuple(a_worker(f"w{number}", in_flight=4) for number in range(2))
    routers = (a_router(workers=workers, waiting=requests),)
    plan = decide(a_snapshot(*workers, pool=pool, routers=routers))
    METRICS.record_pool(pool, plan.status)
    written = json.loads(plan.status.model_dump_json(by_alias=True, exclude_none=True))
    again = with_sane_status({**found, "status": written}, now=NOW)["status"]
    assert again == written
    RewardPoolStatus.model_validate(again)
    return plan


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec)[-60:])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("scaling", "serviceRate", "perReplica"), 0),
        (("scaling", "serviceRate", "inFlight"), 10**400),
        (("scaling", "bursts", 0, "replicas"), 10**400),
    ],
)
def test_a_number_that_nothing_measured_is_forgotten_with_its_part(
    path: Path, value: Any, spec: dict[str, Any]
) -> None:
    status = spoilt((path, value))
    assert with_sane_status({"status": status}, now=NOW)["status"] == without(STATUS, "scaling")
    decided(status, spec)


def without(status: dict[str, Any], part: str) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name != part}


@pytest.mark.parametrize("field", ["idleSince", "unannounced"])
def test_a_time_that_is_to_come_is_taken_for_now(field: str) -> None:
    status = spoilt((("scaling", field), FUTURE), (("demands", 0, "nextBurst"), FUTURE))
    kept = with_sane_status({"status": status}, now=NOW)["status"]
    assert kept["scaling"] == {**STATUS["scaling"], field: rfc3339(NOW)}
    assert kept["demands"] == status["demands"]


changes = st.tuples(st.sampled_from(leaves(STATUS)), st.sampled_from(ODD))


@settings(deadline=None, max_examples=300)
@given(st.lists(changes, min_size=1, max_size=3), st.sampled_from(SPECS), st.sampled_from([0, 9, 10**12]))
def test_no_number_or_time_in_a_stored_status_fails_a_decision(
    changes: list[tuple[Path, Any]], spec: dict[str, Any], requests: int
) -> None:
    decided(spoilt(*changes), spec, requests=requests)


def test_a_status_that_an_operator_wrote_is_read_whole() -> None:
    assert with_sane_status({"status": STATUS}, now=NOW)["status"] == STATUS
