"""When a worker that runs and does not answer counts as hanging."""

import pytest

from rewardpool_local.replica import Silence


@pytest.mark.parametrize(
    ("looks", "hangs"),
    [
        ([(second, False) for second in range(0, 61, 6)], True),
        ([(second, False) for second in range(0, 55, 6)], False),
        ([(0, False), (10_000, False)], False),
        ([(second / 2, False) for second in range(40)], False),
        ([(30, True) if second == 30 else (second, False) for second in range(0, 61, 6)], False),
    ],
    ids=["silent for a minute", "not yet", "the machine slept", "many refusals in a moment", "one answer between"],
)
def test_a_worker_hangs_after_many_silent_looks_over_a_minute(looks: list[tuple[float, bool]], hangs: bool) -> None:
    silence = Silence()
    assert any(silence.note(answered=answered, now=now) for now, answered in looks) is hangs
