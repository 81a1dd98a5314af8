"""The simulation finds faults: each of these was fixed, and is found by its seed once it is switched on again."""

import pytest
from simulation.reverted_fixes import FIXES, Fix

each_fix = pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.name)


@pytest.mark.long
@each_fix
def test_a_fix_that_is_switched_off_is_found(fix: Fix, monkeypatch: pytest.MonkeyPatch) -> None:
    fix.switch_off(monkeypatch)
    outcome = fix.run(fix.seed, fix.steps)
    assert any(fix.finds in violation for violation in outcome.violations), outcome.violations


@pytest.mark.long
@each_fix
def test_the_same_run_is_well_with_it(fix: Fix) -> None:
    assert fix.run(fix.seed, fix.steps).violations == []
