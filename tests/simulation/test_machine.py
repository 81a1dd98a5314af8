"""The supervisor simulated with the faults of a machine: a few runs that are the same each time, and a new one."""

import os
import time

import pytest
from simulation.__main__ import story
from simulation.machine import Machine, run
from simulation.shrink import shrunk
from simulation.world import Outcome


def check(outcome: Outcome) -> None:
    assert not outcome.violations, story(shrunk(outcome, again=run))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_breaks_in_a_run(seed: int) -> None:
    check(run(seed))


@pytest.mark.long
def test_nothing_breaks_in_a_run_of_a_new_seed() -> None:
    seed = int(os.environ.get("SIMULATION_SEED", time.time_ns() % 1_000_000))
    print(f"seed {seed}")
    check(run(seed))


def test_one_seed_gives_one_history() -> None:
    first, second = run(5), run(5)
    assert first.history == second.history
    assert first.samples > 0


def test_a_check_that_raises_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "_check_status", lambda _: 1 / 0)
    assert "ZeroDivisionError" in str(run(2, ()).violations)
