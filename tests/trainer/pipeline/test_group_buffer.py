import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_train.pipeline.group_buffer import GroupBuffer
from rewardpool_train.pipeline.parts import GroupTask


def buffer_of(*, groups: int, size: int) -> GroupBuffer[str, str]:
    buffer: GroupBuffer[str, str] = GroupBuffer()
    for index in range(groups):
        buffer.begin(GroupTask(index=index, prompt="?", size=size, version=0))
    return buffer


@given(st.integers(1, 5), st.integers(1, 5), st.randoms(use_true_random=True))
def test_the_order_of_arrival_does_not_change_a_groups_scores(groups: int, size: int, rng: random.Random) -> None:
    buffer = buffer_of(groups=groups, size=size)
    arrivals = [(index, member) for index in range(groups) for member in range(size)]
    rng.shuffle(arrivals)
    for index, member in arrivals:
        buffer.add_rollout(index, member, f"{index}.{member}")
    rng.shuffle(arrivals)
    for index, member in arrivals:
        buffer.add_score(index, member, index + member / 10)
    for group in buffer.pop(range(groups)):
        assert list(group.rated().rollouts) == [f"{group.index}.{member}" for member in range(size)]
        assert list(group.rated().scores) == [group.index + member / 10 for member in range(size)]


def test_a_group_arrives_with_its_last_score_also_where_that_is_none() -> None:
    buffer = buffer_of(groups=2, size=2)
    assert [buffer.add_score(*outcome) for outcome in [(1, 0, 0.5), (0, 1, 1.0), (1, 1, None), (0, 0, 2.0)]] == [
        False,
        False,
        True,
        True,
    ]
    assert [group.arrival for group in buffer.groups()] == [1, 0]


@pytest.mark.parametrize(
    ("index", "member", "problem"),
    [
        (0, 1, "member 1 of group 0 has its rollout already"),
        (0, 2, "member 2 of group 0 was not requested"),
        (7, 0, "member 0 of group 7 was not requested"),
    ],
)
def test_a_rollout_that_nobody_waits_for_is_refused(index: int, member: int, problem: str) -> None:
    buffer = buffer_of(groups=1, size=2)
    buffer.add_rollout(0, 1, "once")
    with pytest.raises(ValueError, match=problem):
        buffer.add_rollout(index, member, "again")
