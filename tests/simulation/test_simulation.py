"""The control loop simulated: a few runs that are the same each time, and a new one that nobody has seen.

`make simulate` runs many more, see CONTRIBUTING.md.
"""

import math
import os
import time

import pytest
from simulation.__main__ import story
from simulation.faults import Step
from simulation.invariants import Invariants
from simulation.shrink import shrunk
from simulation.world import Outcome, run

SEEDS = (1, 3)
REGRESSIONS = {
    "a status of a generation that a restored backup does not have": (
        11,
        (
            Step(60.0, "api: backed up", 1.0, 1),
            Step(70.0, "people: edit", 1.0, 1),
            Step(130.0, "api: restored from the backup", 1.0, 1),
        ),
    ),
    "a pool that was forgotten, since something in the API server's place did not know the path of its status": (
        830000004,
        (
            Step(297.2, "api: 404-text", 60.9, 152990),
            Step(310.4, "people: change_flavor", 21.9, 703813),
        ),
    ),
    "the keys of a pool that was deleted stayed in the operator's memory": (
        4,
        (Step(60.0, "people: delete", 1.0, 1),),
    ),
    "a pass failed while one of the two Secrets was being read": (
        850000044,
        (Step(176.5, "api: slow", 60.0, 485598),),
    ),
    "a worker was stopped while a router of the deleted pool of its name, which refused the new key, had it": (
        600124,
        (Step(65.3, "people: recreate", 2.0, 887003),),
    ),
    "a worker that had no room was made and taken away three times a second, since a lost node kept an old pod": (
        600178,
        (
            Step(218.2, "people: larger_workers", 2.0, 695956),
            Step(326.9, "people: larger_workers", 114.0, 883837),
            Step(335.5, "node: lost", math.inf, 533803),
            Step(366.2, "node: lost", math.inf, 190808),
        ),
    ),
    "a worker that started again and that the router did not reach was said by no condition": (
        620019,
        (
            Step(111.5, "worker: silent", math.inf, 51716),
            Step(245.8, "worker: crashes", 65.6, 191186),
        ),
    ),
    "a deleted pool's pods stayed on a node that was cut off for good, as they do": (
        630637,
        (
            Step(76.8, "node: cut off", math.inf, 610813),
            Step(314.8, "people: delete", 57.0, 695835),
        ),
    ),
    "a worker that routers listed was stopped, since its set was made smaller by workers that no watch had reported": (
        650073,
        (Step(209.5, "api: watches go silent", 112.0, 606250),),
    ),
    "a deleted pool's pods on a node that was cut off for good stayed in the operator's store": (
        700231,
        (
            Step(104.9, "node: cut off", math.inf, 6480),
            Step(131.7, "people: delete", 117.0, 987858),
        ),
    ),
    "a worker whose process had ended was stopped while a router listed its old address, which harms nothing": (
        750283,
        (
            Step(278.4, "people: edit_to_hang", 7.0, 507104),
            Step(291.0, "pod: address moved", 120.0, 831850),
            Step(296.3, "pod: address moved", 122.0, 864295),
            Step(340.8, "api: 503-html", 104.0, 697736),
        ),
    ),
    "a worker on a node cut off left its routers when Kubernetes deleted it, just after the last other node was": (
        2000421,
        (
            Step(66.2, "node: cut off", math.inf, 797041),
            Step(388.5, "node: cut off", 77.0, 535212),
        ),
    ),
    "a pool whose load has a beat of its own went to zero between two bursts, as it may": (
        600011,
        (Step(395.3, "api: unreachable", 61.0, 564910),),
    ),
    "a worker whose time to leave was over was stopped a second after the list of a router could be read again": (
        1000074,
        (
            Step(122.4, "api: watch has nonsense", 54.0, 723409),
            Step(123.7, "router: odd list", 25.0, 712798),
            Step(144.6, "people: scale", 25.0, 769274),
        ),
    ),
    "a worker whose time to leave was over was stopped while the routers' key could not be read, as it may": (
        1500018,
        (
            Step(75.2, "api: hangs", 114.0, 396971),
            Step(172.1, "api: hangs", 64.0, 900732),
            Step(197.8, "router: crashes", 101.0, 595276),
        ),
    ),
}
"""What a run violated -> its seed, and the fewest steps by which it did."""


def check(outcome: Outcome) -> None:
    assert not outcome.violations, story(shrunk(outcome))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_breaks_in_a_run(seed: int) -> None:
    check(run(seed))


@pytest.mark.parametrize("seed", REGRESSIONS.values(), ids=REGRESSIONS)
def test_what_was_found_and_fixed_stays_so(seed: tuple[int, tuple[Step, ...]]) -> None:
    check(run(*seed))


@pytest.mark.long
def test_nothing_breaks_in_a_run_that_nobody_has_seen() -> None:
    seed = int(os.environ.get("SIMULATION_SEED", time.time_ns() % 1_000_000))
    print(f"seed {seed}")
    check(run(seed))


def test_one_seed_gives_one_history() -> None:
    first, second = run(5), run(5)
    assert first.history == second.history
    assert first.samples > 0


def test_a_failing_run_is_shrunk_to_what_it_takes() -> None:
    steps = tuple(Step(float(number), f"step {number}", 1.0, number) for number in range(20))

    def fails_by_two(seed: int, steps: tuple[Step, ...]) -> Outcome:
        broken = {step.seed for step in steps} >= {3, 14}
        return Outcome(seed, steps, violations=["7.0 s: worker-3 was lost"] if broken else [])

    outcome = shrunk(fails_by_two(1, steps), again=fails_by_two)
    assert [step.seed for step in outcome.steps] == [3, 14]


def test_a_check_that_raises_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Invariants, "_check_bounds", lambda _: 1 / 0)
    assert "ZeroDivisionError" in str(run(2, ()).violations)
