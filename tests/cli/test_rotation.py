"""What `rewardpool rotate-key` says of a rotation."""

import pytest
from support.decide_builders import a_pool

from rewardpool_api import RewardPoolStatus
from rewardpool_api.status import AuthStatus, KeyRotation
from rewardpool_cli.commands.rotate_key import progress


def pool_with(rotation: KeyRotation | None):
    return a_pool(RewardPoolStatus(auth=AuthStatus(rotation=rotation)))


def rotation(phase, *, request="2", message=""):
    return KeyRotation(phase=phase, since="2026-01-01T00:00:00Z", request=request, message=message)


@pytest.mark.parametrize("found", [None, rotation("Done", request="1")])
def test_an_earlier_rotation_is_not_the_one_that_was_asked_for(found):
    assert progress(pool_with(found), "2") == (False, "the operator has not begun yet")


@pytest.mark.parametrize(("phase", "is_over"), [("Preparing", False), ("Changing", False), ("Done", True)])
def test_it_is_over_when_it_is_done(phase, is_over):
    assert progress(pool_with(rotation(phase)), "2")[0] == is_over


def test_whom_it_waits_for_is_said():
    waits = rotation("Preparing", message="for 10 minutes workers do not take the next key: w1")
    assert progress(pool_with(waits), "2") == (False, waits.message)
