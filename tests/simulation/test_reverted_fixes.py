"""The simulation finds faults: each of these was mended, and is found by its seed once it is switched on again."""

import pytest
from simulation.reverted_fixes import MENDS, Mend
from simulation.world import run

each_mend = pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.name)


@pytest.mark.long
@each_mend
def test_a_mend_that_is_switched_off_is_found(mend: Mend, monkeypatch: pytest.MonkeyPatch) -> None:
    mend.switch_off(monkeypatch)
    outcome = run(mend.seed, mend.steps)
    assert any(mend.finds in violation for violation in outcome.violations), outcome.violations


@pytest.mark.long
@each_mend
def test_the_same_run_is_well_with_it(mend: Mend) -> None:
    assert run(mend.seed, mend.steps).violations == []
