"""Which starts are remembered."""

from hypothesis import given
from hypothesis import strategies as st

from rewardpool_api.status import WorkerStart
from rewardpool_control.autoscaler.signals import Start
from rewardpool_control.autoscaler.starts import MAX_STARTS, learned


def seen(*seconds: float) -> list[Start]:
    """The starts of replicas w0, w1 and so on."""
    return [Start(worker=f"w{number}", seconds=one) for number, one in enumerate(seconds)]


def test_the_starts_of_replicas_that_are_gone_are_kept() -> None:
    known = [WorkerStart(worker="gone", seconds=9.0)]
    assert [start.seconds for start in learned(known, seen(3.0, 4.0))] == [9.0, 3.0, 4.0]


def test_a_new_replica_with_an_old_name_counts() -> None:
    known = learned([], seen(3.0, 4.0))
    assert [start.seconds for start in learned(known, [Start(worker="w0", seconds=5.0)])] == [4.0, 5.0]


@given(st.lists(st.floats(0, 1000), max_size=3 * MAX_STARTS))
def test_looking_again_changes_nothing_however_many_replicas_there_are(seconds: list[float]) -> None:
    once = learned([WorkerStart(worker="gone", seconds=9.0)], seen(*seconds))
    assert learned(once, seen(*seconds)) == once
    assert len(once) <= MAX_STARTS
