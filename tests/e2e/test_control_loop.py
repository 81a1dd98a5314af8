"""What `make e2e-control-loop` makes of what it sees: a check that is too kind would pass what is wrong."""

from typing import Any

import pytest

from autoscaling.course import Size
from cluster.fault_proxy import Rule
from control_loop import election, sharing
from control_loop.election import PAGES, STOOD_DOWN_SECONDS
from control_loop.rollouts import Course, Look
from faults.manifests import POOL
from rewardpool_api import names


def said(
    at: float, *, operator: str = "one", acting: str = "full", leads: bool | None = None, ok: bool = True
) -> election.Look:
    return election.Look(
        at=at, operator=operator, ok=ok, acting=acting, leads=acting == "full" if leads is None else leads
    )


LATE = STOOD_DOWN_SECONDS + 1
GOOD = [said(1.0), said(1.0, operator="two", acting="none"), said(LATE, acting="routers")]


def test_an_operator_that_stands_down_and_says_so_is_in_order() -> None:
    assert election.problems(GOOD) == []
    assert election.first_without(GOOD) == 1.0


@pytest.mark.parametrize(
    ("untrue", "words"),
    [
        (said(1.0, operator="two"), "two lead"),
        (said(1.0, acting="none", leads=True, operator="two"), "rewardpool_leader 1"),
        (said(2.0, leads=False), "rewardpool_leader 0"),
        (said(2.0, ok=False), "not ok"),
        (said(LATE + 1), "still leads"),
    ],
)
def test_an_operator_that_says_what_is_not_so_is_found(untrue: election.Look, words: str) -> None:
    assert words in "; ".join(election.problems([*GOOD, untrue]))


def test_looks_that_end_before_the_lease_does_prove_nothing() -> None:
    assert election.problems(GOOD[:2]) == ["nobody looked long enough"]


def test_the_pages_are_for_the_lease_of_the_operators_alone() -> None:
    group = "/apis/coordination.k8s.io/v1"
    for rule in PAGES.values():
        assert rule.is_about(f"{group}/namespaces/rewardpool-system/leases/rewardpool")
        assert not rule.is_about(f"{group}/namespaces/rl/leases")
        assert not rule.is_about("/api/v1/namespaces/rewardpool-system/secrets/rewardpool")


def test_a_page_is_answered_as_it_is_and_another_rule_in_the_words_of_kubernetes() -> None:
    page = Rule(status=200, page=b"<html>\xfc").answer("/api/v1/pods")
    assert page is not None
    assert (page.status, page.body, page.content_type) == (200, b"<html>\xfc", "text/html")
    refused = Rule(status=403).answer("/api/v1/pods")
    assert refused is not None
    assert refused.content_type == "application/json"
    assert Rule().answer("/api/v1/pods") is None


def objects(
    *workers: str, current: str, stable: str, failed: str | None = None, ready: int, generation: int = 2
) -> list[dict[str, Any]]:
    rollout = {"stableRevision": stable} | ({} if failed is None else {"failed": {"revision": failed}})
    status = {"observedGeneration": 2, "currentRevision": current, "readyReplicas": ready, "rollout": rollout}
    status["conditions"] = [{"type": "Progressing", "status": "True", "reason": "Surging", "message": "rolling"}]
    labels = {names.LABEL_POOL: POOL, names.LABEL_COMPONENT: "worker"}
    pods = [
        {"kind": "Pod", "metadata": {"labels": labels | {names.LABEL_REVISION: one}, "creationTimestamp": "now"}}
        for one in workers
    ]
    return [{"kind": names.KIND, "metadata": {"name": POOL, "generation": generation}, "status": status}, *pods]


@pytest.mark.parametrize(
    ("seen", "ended"),
    [
        (objects("new", "new", "new", current="new", stable="new", ready=2), True),
        (objects("new", "new", "old", current="new", stable="new", ready=2), False),
        (objects("new", "new", current="new", stable="old", ready=2), False),
        (objects("new", "new", current="new", stable="new", ready=1), False),
        (objects("old", "old", current="old", stable="old", ready=2), False),
        (objects("new", "new", current="new", stable="new", ready=2, generation=3), False),
    ],
)
def test_a_revision_took_over_when_it_is_alone_and_good_and_so_many_serve(seen: list[Any], ended: bool) -> None:
    assert Look.from_objects(seen).took_over("old", 2) == ended


@pytest.mark.parametrize(
    ("seen", "ended"),
    [
        (objects("old", "old", current="new", stable="old", failed="new", ready=2), True),
        (objects("old", "old", current="new", stable="old", ready=2), False),
        (objects("old", "old", current="new", stable="new", failed="new", ready=2), False),
        (objects("old", "old", "new", current="new", stable="old", failed="new", ready=2), False),
        (objects("old", current="new", stable="old", failed="new", ready=1), False),
    ],
)
def test_a_pool_went_back_when_the_old_revision_is_whole_and_alone(seen: list[Any], ended: bool) -> None:
    assert Look.from_objects(seen).went_back("old", 2) == ended


def test_a_course_keeps_the_fewest_that_served_and_the_reasons_in_their_order() -> None:
    course = Course(old="old", fewest=2)
    for ready in (2, 1, 2):
        course.observe(objects("old", current="new", stable="old", ready=ready))
    assert (course.fewest, course.reasons) == (1, ["Surging"])


def test_each_fall_to_zero_within_the_time_is_counted() -> None:
    sizes = [Size(at=at, wanted=wanted, ready=1, pods=1) for at, wanted in enumerate([1, 0, 0, 2, 0, 1, 0])]
    assert sharing.falls(sizes, since=0, until=5) == 2
    assert sharing.falls(sizes, since=1, until=3) == 0
