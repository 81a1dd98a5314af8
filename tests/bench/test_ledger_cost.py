"""`make bench-ledger`: that its figures are what they are called, and what it aims at."""

from ledger_cost.aims import Turn, aims, figures


def test_ratios_are_of_two_turns_of_one_round() -> None:
    turns = {
        "none": [Turn(100.0, 10.0), Turn(50.0, 20.0), Turn(200.0, 5.0)],
        "kept": [Turn(98.0, 10.0), Turn(48.0, 25.0), Turn(180.0, 10.0)],
    }
    found = figures(turns, without="none")["kept"]
    assert found["samples_per_second"]["median"] == 98.0
    assert found["ratio"] == {"median": 0.96, "q25": 0.93, "q75": 0.97}
    assert found["cpu_ratio"]["median"] == 0.8


def test_a_ledger_that_takes_more_than_a_twentieth_misses_its_aim() -> None:
    turns = {"none": [Turn(100.0, 10.0)] * 2, "fast": [Turn(95.0, 10.0)] * 2, "slow": [Turn(94.0, 10.0)] * 2}
    found = {one["where"]: one["met"] for one in aims(figures(turns, without="none"), without="none")}
    assert found == {"fast": True, "slow": False}
