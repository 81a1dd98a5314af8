"""Whose turn a shared GPU is, as a table."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_train.colocated.gpu_scheduler import POLL_SECONDS, Choice, Costs, Moment, choose, seconds_until_due

COSTS = Costs(wake_seconds=2, sleep_seconds=1, samples_per_second=10, patience_seconds=0.1)
URGENT = Costs(wake_seconds=2, sleep_seconds=1, samples_per_second=10, patience_seconds=0.1, longest_wait_seconds=30)


@pytest.mark.parametrize(
    ("what", "moment", "choice"),
    [
        ("the trainer computes", {"trainer_has": True, "waiting": 99, "quiet_seconds": 9}, "wait"),
        ("it asks and nobody else does", {"trainer_waits": True}, "train"),
        ("it asks and samples wait", {"trainer_waits": True, "waiting": 99, "quiet_seconds": 9}, "train"),
        ("samples wait, and the GPU was let go of just now", {"waiting": 3, "quiet_seconds": 0.05}, "wait"),
        ("samples wait, and the trainer does not come back", {"waiting": 3, "quiet_seconds": 0.1}, "wake"),
        ("nobody wants it", {"quiet_seconds": 9}, "wait"),
        ("awake, samples wait", {"awake": True, "waiting": 3}, "admit"),
        ("awake, some wait and others are scored", {"awake": True, "waiting": 3, "scoring": 4}, "admit"),
        ("a few more are quicker than another turn", {"awake": True, "trainer_waits": True, "waiting": 30}, "admit"),
        ("many more are slower", {"awake": True, "trainer_waits": True, "waiting": 31}, "sleep"),
        ("those inside finish", {"awake": True, "trainer_waits": True, "waiting": 31, "scoring": 1}, "wait"),
        ("nothing is left, the trainer asks", {"awake": True, "trainer_waits": True}, "sleep"),
        ("nothing is left for the moment", {"awake": True, "quiet_seconds": 0.05}, "wait"),
        ("nothing is left", {"awake": True, "quiet_seconds": 0.1}, "sleep"),
    ],
)
def test_the_choice(what: str, moment: dict[str, Any], choice: Choice) -> None:
    assert choose(Moment(**moment), COSTS) == choice, what


@pytest.mark.parametrize(
    ("what", "moment", "choice"),
    [
        ("samples wait", {"waiting": 3, "quiet_seconds": 9}, "wait"),
        ("the trainer asks here too", {"waiting": 3, "trainer_waits": True}, "train"),
        ("the trainer asks here too, and a sample is overdue",
         {"waiting": 3, "trainer_waits": True, "waited_seconds": 99}, "train"),
        ("a sample is overdue", {"waiting": 3, "waited_seconds": 99, "quiet_seconds": 9}, "wait"),
    ],
)  # fmt: skip
def test_the_choice_while_another_rank_computes(what: str, moment: dict[str, Any], choice: Choice) -> None:
    assert choose(Moment(others_compute=True, **moment), URGENT) == choice, what


@pytest.mark.parametrize(("waited_seconds", "choice"), [(29.9, "train"), (30.0, "wake")])
def test_a_sample_that_waited_too_long_goes_before_the_trainer(waited_seconds: float, choice: Choice) -> None:
    assert choose(Moment(trainer_waits=True, waiting=1, waited_seconds=waited_seconds), URGENT) == choice


def test_what_is_overdue_does_not_interrupt_the_trainer() -> None:
    assert choose(Moment(trainer_has=True, waiting=1, waited_seconds=99), URGENT) == "wait"


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        (Moment(waiting=1, quiet_seconds=0.04), 0.06),
        (Moment(awake=True, quiet_seconds=0.04), 0.06),
        (Moment(quiet_seconds=0.04), None),
        (Moment(trainer_has=True, waiting=1), None),
        (Moment(awake=True, scoring=1, waiting=1), None),
        (Moment(others_compute=True, waiting=1, quiet_seconds=9), POLL_SECONDS),
        (Moment(others_compute=True), None),
    ],
)
def test_when_patience_ends(moment: Moment, seconds: float | None) -> None:
    assert seconds_until_due(moment, COSTS) == (None if seconds is None else pytest.approx(seconds))


@given(
    moment=st.builds(
        Moment,
        trainer_has=st.booleans(),
        trainer_waits=st.booleans(),
        others_compute=st.booleans(),
        awake=st.booleans(),
        scoring=st.integers(0, 3),
        waiting=st.integers(0, 99),
        waited_seconds=st.floats(0, 99),
        quiet_seconds=st.floats(0, 9),
    ),
    costs=st.sampled_from([COSTS, URGENT]),
)
def test_the_gpu_never_has_two_users(moment: Moment, costs: Costs) -> None:
    choice = choose(moment, costs)
    if moment.trainer_has:
        assert choice == "wait"
    if choice == "train":
        assert not moment.awake
    if moment.others_compute and not moment.trainer_has and not moment.awake:
        assert choice == ("train" if moment.trainer_waits else "wait")
    if choice == "sleep":
        assert moment.awake
        assert moment.scoring == 0
    if choice == "admit":
        assert moment.awake


@pytest.mark.parametrize("field", ["wake_seconds", "sleep_seconds", "samples_per_second", "patience_seconds"])
def test_costs_that_cannot_be_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Costs(**{field: -1.0})
