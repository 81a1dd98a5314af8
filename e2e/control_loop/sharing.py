"""An elastic pool of two jobs, one of which announces what it will ask, and one of which only asks."""

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from autoscaling import manifests
from autoscaling.course import Course, Size, read_bursts
from autoscaling.job import BURSTS
from autoscaling.manifests import FUNCTION, NAMESPACE, SAMPLES
from autoscaling.pods import Asking
from cluster.folders import STATE
from faults.manifests import chart_values
from faults.stage import Stage
from faults.tally import TrafficLog, count
from faults.traffic import ENDED
from rewardpool_api.times import from_rfc3339
from scene import Scene, StoryError

SHARED_SECONDS = 300.0
"""For which both ask."""
SILENT_RATE = 1.0
"""Samples per second of the job that announces nothing: most looks at the routers find none of them."""
BURSTS_AT_MOST = 20
GAP_SECONDS = 45.0
"""Of the job that announces: past window and cooldown."""
START_SECONDS = 90.0
ENDS_SECONDS = 60.0
QUIET_SECONDS = 90.0
"""For window and cooldown, after the announcement of a job that was killed counts no more (15 s)."""
LEAST_BURSTS = 3
"""Each is followed by a gap of which the job says that no sample comes."""


def a_silent_job_shares_a_pool(stage: Stage) -> str:
    """A job that announces bursts, and one that only asks, for 5 minutes: the pool is never sent to zero meanwhile."""
    scene = Scene(stage.cluster, namespace=NAMESPACE, name=FUNCTION, say=stage.say)
    folder = STATE / "control-loop"
    # The namespace first: the chart makes a Role in it.
    scene.apply(*manifests.namespace())
    values = chart_values()
    stage.installation.install({**values, "trainers": [*values["trainers"], *manifests.chart_values()["trainers"]]})
    try:
        return play(scene, silent=folder / "silent", loud=folder / "loud")
    finally:
        scene.attempt("delete", "rewardpools", "--all", "--timeout=60s")
        stage.installation.install(values)
        scene.attempt("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def play(scene: Scene, *, silent: Path, loud: Path) -> str:
    """The story on a cluster that has the operator; return the note."""
    course = Course(scene)
    scene.apply(manifests.function_pool())
    pod = manifests.silent("silent", silent, pool=FUNCTION, rate=SILENT_RATE)
    asking = Asking.start(scene, pod, folder=silent)
    answers = TrafficLog(silent)
    course.until(lambda _: answers.flows, what="the silent job is served", deadline_seconds=START_SECONDS)
    pod = manifests.job("loud", loud, pool=FUNCTION, bursts=BURSTS_AT_MOST, gap_seconds=GAP_SECONDS)
    announcing = Asking.start(scene, pod, folder=loud)
    began = time.time()
    course.until(
        lambda _: time.time() - began > SHARED_SECONDS,
        what="both have asked",
        deadline_seconds=SHARED_SECONDS + ENDS_SECONDS,
    )
    ended = time.time()
    asked = end(scene, asking)
    bursts = len(read_bursts(loud / BURSTS))
    scene.kubectl("delete", "pod", announcing.name, "--grace-period=0", "--force")
    of_silent, of_loud = count(range(asked), answers.answers()), announcing.tally(bursts * SAMPLES)
    check(scene, course.sizes, since=began, until=ended)
    if bursts < LEAST_BURSTS:
        raise StoryError(f"the job that announces had {bursts} bursts scored, less than {LEAST_BURSTS}")
    if bad := [*of_silent.problems, *of_loud.problems]:
        raise StoryError(f"samples of the two jobs: {bad}")
    seconds = course.until(lambda size: size.wanted == 0, what="none is wanted", deadline_seconds=QUIET_SECONDS)
    sizes = [size.wanted for size in course.sizes if began <= size.at <= ended]
    return (
        f"{len(sizes)} looks in {ended - began:.0f} s, {min(sizes)} to {max(sizes)} wanted, 0 times to zero;"
        f" {of_silent.samples} silent samples and {of_loud.samples} of {bursts} announced bursts, 0 failed, 0 wrong;"
        f" none wanted {seconds:.0f} s after both ended"
    )


def end(scene: Scene, asking: Asking) -> int:
    """Let it finish what it asked, and return how many that were."""
    scene.kubectl("delete", "pod", asking.name, "--wait=false")
    scene.until(lambda: not asking.phase(), what="the silent job has its answers", deadline_seconds=ENDS_SECONDS + 30)
    asked: int = json.loads((asking.folder / ENDED).read_text())["asked"]
    return asked


def check(scene: Scene, sizes: Sequence[Size], *, since: float, until: float) -> None:
    """Raise `StoryError` where the pool was sent to zero in that time, by what was seen or by its own history."""
    history = scene.pool()["status"]["scaling"]["history"]
    told = [one for one in history if one["replicas"] == 0 and since <= from_rfc3339(one["time"]).timestamp() <= until]
    if seen := falls(sizes, since=since, until=until):
        raise StoryError(f"sent to zero {seen} times under live traffic: {told}")
    if told:
        raise StoryError(f"sent to zero under live traffic: {told}")


def falls(sizes: Sequence[Size], *, since: float, until: float) -> int:
    """How often none was wanted any more in that time, oldest look first."""
    wanted = [size.wanted for size in sizes if since <= size.at <= until]
    return sum(before > 0 and after == 0 for before, after in pairwise(wanted))


PLAYS = (a_silent_job_shares_a_pool,)
