import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_train.pipeline.schedule import Order, Plan
from rewardpool_train.pipeline.staleness import capacity, choose


@dataclass(frozen=True, kw_only=True)
class Group:
    """An outstanding group, and nothing else."""

    index: int
    version: int
    arrival: int | None


PAIRS = Plan(steps=100, groups_per_step=2, groups_per_minibatch=2, group_size=1)


def outstanding(*groups: tuple[int, int | None]) -> list[Group]:
    """Groups as (version, arrival), indexed in that order."""
    return [Group(index=index, version=version, arrival=arrival) for index, (version, arrival) in enumerate(groups)]


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 50), st.integers(0, 100))
def test_the_room_is_areals_admission_where_the_rollout_side_has_the_weights_of_now(
    size: int, bound: int, version: int, begun: int
) -> None:
    plan = Plan(steps=1, groups_per_step=size, groups_per_minibatch=size, group_size=1)
    begun += version * size  # N groups were begun, and those of `version` mini-batches are trained
    admitted = capacity(
        plan, outstanding=begun - version * size, version=version, published=version, max_staleness=bound
    )
    following = begun + 1
    assert (admitted > 0) == ((following - 1) // size <= version + bound)


def test_old_weights_at_the_rollout_side_leave_less_room() -> None:
    rooms = [capacity(PAIRS, outstanding=0, version=5, published=p, max_staleness=1) for p in (5, 4, 3)]
    assert rooms == [4, 2, 0]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([(4, 1), (4, None), (4, 0), (4, 2)], [2, 0]),  # nothing is urgent: as they came
        ([(3, None), (4, 0), (4, 1)], [1, 2]),  # the slow one can still be trained in the next version
        ([(2, None), (4, 0), (4, 1)], None),  # it cannot: it is waited for
        ([(2, 2), (4, 0), (4, 1)], [0, 1]),  # and then trained with the first of the others
        ([(3, None), (3, None), (3, None), (4, 0), (4, 1)], None),  # three for one mini-batch: one must be in this one
        ([(4, 0)], None),  # too few
    ],
)
def test_the_next_mini_batch_at_version_4_with_a_staleness_of_at_most_2(
    groups: list[tuple[int, int | None]], expected: list[int] | None
) -> None:
    assert (
        choose(outstanding(*groups), PAIRS, version=4, max_staleness=2 if len(groups) < 5 else 1, order="arrival")
        == expected
    )


def test_in_the_order_of_prompts_the_oldest_are_waited_for() -> None:
    assert choose(outstanding((4, 0), (4, None), (4, 1)), PAIRS, version=4, max_staleness=9, order="prompt") is None
    assert choose(outstanding((4, 1), (4, 0), (4, 2)), PAIRS, version=4, max_staleness=9, order="prompt") == [0, 1]


@given(st.randoms(use_true_random=True), st.integers(1, 4), st.integers(0, 4), st.sampled_from(["arrival", "prompt"]))
def test_whatever_comes_first_no_group_is_trained_too_late_and_training_never_stops(
    rng: random.Random, size: int, bound: int, order: Order
) -> None:
    plan = Plan(steps=1, groups_per_step=size, groups_per_minibatch=size, group_size=1)
    publish_every = rng.randint(1, bound + 1)
    open_groups: dict[int, Group] = {}
    begun = arrivals = version = published = 0
    while version < 12:
        free = capacity(plan, outstanding=len(open_groups), version=version, published=published, max_staleness=bound)
        for _ in range(rng.randint(0, free)):
            open_groups[begun] = Group(index=begun, version=published, arrival=None)
            begun += 1
        running = [index for index, group in open_groups.items() if group.arrival is None]
        # Back-pressure holds nothing up: there is always a group to begin, to complete or to train on.
        chosen = choose(list(open_groups.values()), plan, version=version, max_staleness=bound, order=order)
        assert chosen or running or free
        if chosen and (not running or rng.random() < 0.5):
            assert all(version - open_groups.pop(index).version <= bound for index in chosen)
            version += 1
            published = version if version % publish_every == 0 else published
        elif running:
            index = rng.choice(running)
            open_groups[index] = Group(index=index, version=open_groups[index].version, arrival=arrivals)
            arrivals += 1
    assert begun == version * size + len(open_groups)
