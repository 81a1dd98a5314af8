"""How many replicas are wanted, by whom."""

import pytest
from support.decide_builders import a_pool, a_router, a_snapshot

from rewardpool_control.decide import decide
from rewardpool_control.snapshot import RegisteredWorker

EXTERNAL = {"minReplicas": 1, "maxReplicas": 4, "policy": {"type": "External"}}
QUEUE = {
    "minReplicas": 1,
    "maxReplicas": 4,
    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}},
}


def busy_router(in_flight, waiting=0, name="router"):
    entries = (RegisteredWorker(id="a", url="http://a:8000", in_flight=in_flight),)
    return a_router(name, registered=entries, waiting=waiting)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, 1),
        ({"replicas": 0}, 0),
        ({"replicas": 3}, 3),
        ({"replicas": 3, "suspend": True}, 0),
        ({"replicas": 9, "autoscaling": EXTERNAL}, 4),
        ({"replicas": 0, "autoscaling": EXTERNAL}, 1),
        ({"autoscaling": QUEUE}, 3),
    ],
)
def test_the_wanted_number_comes_from_the_spec(spec, wanted):
    plan = decide(a_snapshot(pool=a_pool(**spec), routers=(busy_router(25, waiting=3),)))
    assert plan.status.scaling.desired == wanted


def test_a_change_of_the_wanted_number_is_told_once_and_kept_in_the_history():
    first = decide(a_snapshot(pool=a_pool(replicas=2)))
    assert first.events == (), "the first size is what the spec says"
    scaled = decide(a_snapshot(pool=a_pool(replicas=3, status=first.status)))
    assert [event.reason for event in scaled.events] == ["Scaled"]
    again = decide(a_snapshot(pool=a_pool(replicas=3, status=scaled.status)))
    assert again.events == ()
    assert len(again.status.scaling.history) == 2


def test_the_history_is_bounded():
    status = None
    for replicas in range(15):
        status = decide(a_snapshot(pool=a_pool(replicas=replicas, status=status))).status
    assert [change.replicas for change in status.scaling.history] == list(range(5, 15))


def test_a_pool_that_begins_at_zero_has_not_been_scaled():
    assert not [event for event in decide(a_snapshot(pool=a_pool(replicas=0))).events if event.reason == "Scaled"]
