"""A job that announces its bursts: the fleet is there for each, gone between them, and gone when the job dies."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoscaling import manifests
from autoscaling.course import Course, Gap, first_start_seconds, gaps, read_bursts
from autoscaling.job import BURSTS
from autoscaling.manifests import IDLE_SECONDS, LEAVING_SECONDS, NEEDED, SAMPLES
from autoscaling.pods import Asking
from cluster.contract import NotPossibleError
from scene import Scene, StoryError

BURST_COUNT = 4
LEARNED_FROM = 2
"""Bursts after which the beat is known: the third is the first that is prepared for."""
ALLOWED = 1.1
"""Times the slowest start that was seen: the autoscaler allows for it, see `rewardpool_operator.autoscaler.starts`."""
GAP_SECONDS = 36.0
"""More than twice what a start of these workers takes, three at once on two cores, or they would be kept through it."""
PLAY_SECONDS = 60.0 + BURST_COUNT * (GAP_SECONDS + 25.0)
QUIET_SECONDS = 2.0
"""From the last score to the kill."""


def play(scene: Scene, *, folder: Path) -> dict[str, Any]:
    """The whole story; returns its figures and what became of all samples."""
    course = Course(scene)
    scene.apply(manifests.function_pool())
    pod = manifests.job("job", folder / "job", bursts=BURST_COUNT, gap_seconds=GAP_SECONDS)
    job = Asking.start(scene, pod, folder=folder / "job")
    seen = train(course, job)
    killed = kill(scene, course, job)
    tally = job.tally(BURST_COUNT * SAMPLES)
    return {
        "needed": NEEDED,
        **seen,
        **killed,
        "slowest_seconds": round(tally.slowest_seconds, 1),
        "samples": tally.samples,
        "failed": tally.failed,
        "wrong": tally.wrong,
    }


def train(course: Course, job: Asking) -> dict[str, Any]:
    """From the third burst on, the fleet was gone before each burst, and was all there when it began."""
    bursts = job.folder / BURSTS

    def over(size: object) -> bool:
        return len(read_bursts(bursts)) == BURST_COUNT or job.phase() not in ("", "Pending", "Running")

    course.until(over, what=f"{BURST_COUNT} bursts are scored", deadline_seconds=PLAY_SECONDS)
    found = gaps(course.sizes, read_bursts(bursts), needed=NEEDED)[LEARNED_FROM - 1 :]
    slowest = first = first_start_seconds(course.sizes, needed=NEEDED)
    for number, gap in enumerate(found, start=LEARNED_FROM + 1):
        course.scene.say(f"  before burst {number}: {asdict(gap)}")
        check(gap, number, slowest_seconds=slowest)
        slowest = max(slowest, gap.start_seconds)
    warm = sum(gap.is_warm(NEEDED) for gap in found)
    return {
        "first_start_seconds": first,
        "prepared_bursts": len(found),
        "warm_bursts": warm,
        "gaps": list(map(asdict, found)),
    }


def check(gap: Gap, number: int, *, slowest_seconds: float) -> None:
    """Raise `StoryError` unless the fleet was gone, and back in time where it started no slower than before.

    Nobody can know that a start is going to be slower than any that was seen, as it may be on a machine of two cores.
    """
    if gap.at_zero_seconds == 0:
        raise StoryError(f"the fleet was kept through the gap before burst {number}")
    if not gap.is_warm(NEEDED) and gap.start_seconds <= ALLOWED * slowest_seconds:
        raise StoryError(f"burst {number} found {gap.ready_at_burst} replicas, and needs {NEEDED}")


def kill(scene: Scene, course: Course, job: Asking) -> dict[str, Any]:
    """`kill -9` of the job, which said that samples are coming: within idleSeconds no replica is wanted any more."""
    time.sleep(QUIET_SECONDS)
    if course.look().wanted != NEEDED:
        raise StoryError(f"the job rolls out, and the pool wants {course.sizes[-1].wanted} replicas")
    try:
        scene.kill(job.object())
    except NotPossibleError as error:
        scene.say(f"  not possible here, so it is deleted: {error}")
        scene.kubectl("delete", "pod", job.name, "--grace-period=0", "--force")
    seconds = course.until(lambda size: size.wanted == 0, what="no replica is wanted", deadline_seconds=IDLE_SECONDS)
    leaving = course.until(lambda size: size.is_zero, what="no replica is left", deadline_seconds=LEAVING_SECONDS)
    return {"kill_to_none_wanted_seconds": round(seconds, 1), "kill_to_none_left_seconds": round(seconds + leaving, 1)}
