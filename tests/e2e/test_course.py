"""What is said of a fleet between two bursts: too kind, and a cold start would pass for a warm one."""

import json
from pathlib import Path

from autoscaling.course import Burst, Gap, Size, first_start_seconds, gaps, read_bursts


def size(at: float, ready: int, *, wanted: int | None = None) -> Size:
    return Size(at=at, ready=ready, wanted=ready if wanted is None else wanted, pods=ready)


BURSTS = [Burst(began=0, ended=10), Burst(began=40, ended=50)]


def test_a_fleet_that_went_and_came_back_in_time_was_warm() -> None:
    sizes = [size(9, 3), size(12, 0), size(30, 0, wanted=3), size(35, 1, wanted=3), size(37, 3), size(41, 3)]
    [gap] = gaps(sizes, BURSTS, needed=3)
    assert gap == Gap(at_zero_seconds=18, asked_ahead_seconds=10, start_seconds=7, ready_at_burst=3)
    assert gap.is_warm(3)


def test_a_fleet_that_is_whole_after_the_burst_began_was_not_warm() -> None:
    sizes = [size(12, 0), size(35, 0, wanted=3), size(39, 2, wanted=3), size(40.5, 3)]
    [gap] = gaps(sizes, BURSTS, needed=3)
    assert (gap.start_seconds, gap.ready_at_burst, gap.is_warm(3)) == (5.5, 2, False)


def test_a_fleet_that_is_not_asked_for_before_the_burst_was_asked_for_no_time_ahead() -> None:
    [gap] = gaps([size(12, 0), size(39, 0), size(41, 0, wanted=3), size(47, 3)], BURSTS, needed=3)
    assert (gap.asked_ahead_seconds, gap.start_seconds, gap.is_warm(3)) == (0, 6, False)


def test_a_fleet_that_stayed_was_not_at_zero() -> None:
    [gap] = gaps([size(12, 3), size(39, 3), size(41, 3)], BURSTS, needed=3)
    assert (gap.at_zero_seconds, gap.start_seconds, gap.is_warm(3)) == (0, 0, True)


def test_a_gap_that_nobody_looked_at_proves_nothing() -> None:
    [gap] = gaps([size(5, 3), size(45, 3)], BURSTS, needed=3)
    assert (gap.at_zero_seconds, gap.is_warm(3)) == (0, False)


def test_a_gap_without_an_end_to_its_start_is_taken_to_last_as_long_as_the_burst() -> None:
    [gap] = gaps([size(12, 0), size(30, 0, wanted=3)], BURSTS, needed=3)
    assert gap.start_seconds == 20


def test_the_first_start_counts_from_when_so_many_were_wanted() -> None:
    sizes = [size(0, 0), size(1, 0, wanted=1), size(2, 0, wanted=3), size(9, 2, wanted=3), size(10, 3)]
    assert first_start_seconds(sizes, needed=3) == 8


def test_a_burst_that_goes_on_is_not_read(tmp_path: Path) -> None:
    told = [{"burst": 0, "began": 1.0}, {"burst": 0, "ended": 2.0}, {"burst": 1, "began": 3.0}]
    path = tmp_path / "bursts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in told))
    assert read_bursts(path) == [Burst(began=1.0, ended=2.0)]
