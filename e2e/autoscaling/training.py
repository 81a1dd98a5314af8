"""A job that announces its bursts: the fleet is there for each, gone between them, and gone when the job dies."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoscaling import manifests
from autoscaling.course import Course, Gap, first_start_seconds, gaps, read_bursts
from autoscaling.job import BURSTS
from autoscaling.manifests import FUNCTION, IDLE_SECONDS, LEAVING_SECONDS, MODEL, NEEDED, SAMPLES, Manifest
from autoscaling.model import score_texts
from autoscaling.pods import Asking
from cluster.contract import NotPossibleError
from rewardpool_control.autoscaler import starts
from scene import Scene, StoryError

LEARNED_FROM = 2
"""Bursts after which the beat is known: the third is the first that is prepared for."""
QUIET_SECONDS = 2.0
"""From the last score to the kill."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What the job trains on, and the times that follow from how long that takes to start."""

    pool: Manifest
    needed: int
    """Replicas that a burst takes."""
    bursts: int
    gap_seconds: float
    """So long that less a tenth, as one gap alone is foreseen, it is more than twice what a start takes, with the
    autoscaler's margins, or the fleet would be kept through it."""
    burst_seconds: float
    """Longest that a burst may take, the first one's starts on two cores included."""

    @property
    def seconds(self) -> float:
        """Longest that all of it may take."""
        return self.burst_seconds + self.bursts * (self.gap_seconds + self.burst_seconds / 2)


def on_functions(scene: Scene, *, folder: Path) -> dict[str, Any]:
    """The story with workers that start in ten seconds, three at once."""
    training = Training(pool=manifests.function_pool(), needed=NEEDED, bursts=3, gap_seconds=60.0, burst_seconds=60.0)
    return play(scene, training, manifests.job("job", folder / "job", pool=FUNCTION, **_shape(training)), folder=folder)


def on_a_model(scene: Scene, *, folder: Path) -> dict[str, Any]:
    """The story on vLLM, one replica of which is enough. Twelve minutes, so it is told only when it is asked for."""
    training = Training(pool=manifests.model_pool(most=1), needed=1, bursts=3, gap_seconds=222.0, burst_seconds=180.0)
    pod = manifests.job("job", folder / "job", pool=MODEL, **_shape(training))
    return play(scene, training, pod, folder=folder, texts=score_texts(folder))


def play(scene: Scene, training: Training, pod: Manifest, *, folder: Path, **files: str) -> dict[str, Any]:
    """The whole story; returns its figures and what became of all samples."""
    course = Course(scene)
    scene.apply(training.pool)
    job = Asking.start(scene, pod, folder=folder / "job", **files)
    seen = train(course, job, training)
    killed = kill(scene, course, job, needed=training.needed)
    tally = job.tally(training.bursts * SAMPLES)
    return {
        "needed": training.needed,
        **seen,
        **killed,
        "slowest_seconds": round(tally.slowest_seconds, 1),
        "samples": tally.samples,
        "failed": tally.failed,
        "wrong": tally.wrong,
    }


def _shape(training: Training) -> dict[str, Any]:
    return {"bursts": training.bursts, "gap_seconds": training.gap_seconds}


def train(course: Course, job: Asking, training: Training) -> dict[str, Any]:
    """From the third burst on, the fleet was gone before each burst, and was all there when it began."""
    bursts, needed = job.folder / BURSTS, training.needed

    def over(size: object) -> bool:
        return len(read_bursts(bursts)) == training.bursts or job.phase() not in ("", "Pending", "Running")

    course.until(over, what=f"{training.bursts} bursts are scored", deadline_seconds=training.seconds)
    found = gaps(course.sizes, read_bursts(bursts), needed=needed)[LEARNED_FROM - 1 :]
    slowest = first = first_start_seconds(course.sizes, needed=needed)
    for number, gap in enumerate(found, start=LEARNED_FROM + 1):
        course.scene.say(f"  before burst {number}: {asdict(gap)}")
        check(gap, number, needed=needed, slowest_seconds=slowest)
        slowest = max(slowest, gap.start_seconds)
    warm = sum(gap.is_warm(needed) for gap in found)
    return {
        "first_start_seconds": first,
        "prepared_bursts": len(found),
        "warm_bursts": warm,
        "gaps": list(map(asdict, found)),
    }


def check(gap: Gap, number: int, *, needed: int, slowest_seconds: float) -> None:
    """Raise `StoryError` unless the fleet was gone, and back in time where it started no slower than before.

    Nobody can know that a start is going to be slower than any that was seen, as it may be on a machine of two cores.
    """
    if gap.at_zero_seconds == 0:
        raise StoryError(f"the fleet was kept through the gap before burst {number}")
    if not gap.is_warm(needed) and gap.start_seconds <= starts.MARGIN * slowest_seconds:
        raise StoryError(f"burst {number} found {gap.ready_at_burst} replicas, and needs {needed}")


def kill(scene: Scene, course: Course, job: Asking, *, needed: int) -> dict[str, Any]:
    """`kill -9` of the job, which said that samples are coming: within cooldownSeconds no replica is wanted."""
    time.sleep(QUIET_SECONDS)
    if course.observe().wanted != needed:
        raise StoryError(f"the job rolls out, and the pool wants {course.sizes[-1].wanted} replicas")
    try:
        scene.kill(job.object())
    except NotPossibleError as error:
        scene.say(f"  not possible here, so it is deleted: {error}")
        scene.kubectl("delete", "pod", job.name, "--grace-period=0", "--force")
    seconds = course.until(lambda size: size.wanted == 0, what="no replica is wanted", deadline_seconds=IDLE_SECONDS)
    leaving = course.until(lambda size: size.is_zero, what="no replica is left", deadline_seconds=LEAVING_SECONDS)
    return {"kill_to_none_wanted_seconds": round(seconds, 1), "kill_to_none_left_seconds": round(seconds + leaving, 1)}
