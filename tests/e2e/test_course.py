"""What is said of a fleet between two bursts: too kind, and a cold start would pass for a warm one."""

import json
from pathlib import Path

from autoscaling.course import Burst, Gap, Size, gaps, read_bursts


def size(at: float, ready: int, *, wanted: int | None = None) -> Size:
    return Size(at=at, ready=ready, wanted=ready if wanted is None else wanted, pods=ready)


BURSTS = [Burst(began=0, ended=10), Burst(began=40, ended=50)]


def test_a_fleet_that_went_and_came_back_in_time_was_at_zero_and_warm() -> None:
    sizes = [size(9, 3), size(12, 0), size(30, 0, wanted=3), size(35, 1), size(37, 3), size(39, 3), size(41, 3)]
    assert gaps(sizes, BURSTS, needed=3) == [Gap(at_zero_seconds=18, ready_at_burst=3, warm_seconds=3)]


def test_a_fleet_that_is_there_after_the_burst_began_was_not_warm() -> None:
    sizes = [size(12, 3), size(39, 2, wanted=3), size(40.5, 3)]
    assert gaps(sizes, BURSTS, needed=3) == [Gap(at_zero_seconds=0, ready_at_burst=2, warm_seconds=0)]


def test_a_fleet_that_lost_a_replica_just_before_the_burst_was_warm_only_since() -> None:
    sizes = [size(12, 3), size(38, 2), size(39, 3)]
    assert gaps(sizes, BURSTS, needed=3)[0].warm_seconds == 1


def test_a_gap_that_nobody_looked_at_proves_nothing() -> None:
    assert gaps([size(5, 3), size(45, 3)], BURSTS, needed=3) == [
        Gap(at_zero_seconds=0, ready_at_burst=0, warm_seconds=0)
    ]


def test_a_burst_that_goes_on_is_not_read(tmp_path: Path) -> None:
    told = [{"burst": 0, "began": 1.0}, {"burst": 0, "ended": 2.0}, {"burst": 1, "began": 3.0}]
    path = tmp_path / "bursts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in told))
    assert read_bursts(path) == [Burst(began=1.0, ended=2.0)]
