"""Rules of the simulation that are functions of data: each can be broken."""

from dataclasses import dataclass, field, replace

import pytest
from simulation import remembered
from simulation.invariants import Taken

NEEDLESS = Taken(
    wanted=2, left=1, room_seconds=60.0, hopeless_seconds=0.0, calm_seconds=60.0, turns="new first"
)  # fmt: skip


def test_a_worker_that_is_wanted_does_not_leave_where_another_one_has_room() -> None:
    assert NEEDLESS.is_missed(2)


@pytest.mark.parametrize(
    "excuse",
    [
        {"left": 2},
        {"room_seconds": 1.0},
        {"calm_seconds": 1.0},
        {"turns": "old first"},
        {"turns": "as told"},
    ],
    ids=str,
)
def test_a_worker_may_leave_for_a_cause(excuse: dict[str, object]) -> None:
    assert not replace(NEEDLESS, **excuse).is_missed(2)  # type: ignore[arg-type]


def test_a_worker_may_leave_for_a_smaller_size_that_the_status_tells_later() -> None:
    assert not NEEDLESS.is_missed(1)


def test_an_old_worker_does_not_leave_where_that_gives_no_room() -> None:
    assert replace(NEEDLESS, room_seconds=0.0, hopeless_seconds=60.0, turns="old first").is_missed(2)


@dataclass
class Memory:
    """As a class of the operator's."""

    passes: list[int] = field(default_factory=list)
    pools: dict[tuple[str, str], list[str]] = field(default_factory=dict)


Memory.__module__ = "rewardpool_operator.memory"


def test_what_grows_with_every_pass_is_found_with_the_way_to_it() -> None:
    assert remembered.largest(Memory(passes=[*range(1000)], pools={("rl", "rm"): ["a"]})) == (1000, ".passes")


def test_a_long_text_is_found_with_the_way_to_it() -> None:
    assert remembered.longest(Memory(pools={("rl", "rm"): ["a", "x" * 1000]})) == (1000, ".pools[]")


def test_what_remembers_a_pool_is_found() -> None:
    assert remembered.holding(Memory(pools={("rl", "rm"): ["a"]}), ("rl", "rm")) == [".pools"]
    assert remembered.holding(Memory(pools={("rl", "rm"): ["a"]}), ("rl", "other")) == []
