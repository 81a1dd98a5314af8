"""Nothing is there; a job announces and asks; all three pools serve; nothing is there again."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from autoscaling.course import Course
from autoscaling.pods import Asking
from scene import Scene, StoryError
from two_teachers import manifests
from two_teachers.findings import findings
from two_teachers.job import ANSWERS, GATEWAY, JOB, JUDGE, SEQUENCES

AT_ZERO_SECONDS = 120.0
JOB_SECONDS = 900.0
"""Two vLLMs start at once on two cores, each with its certificate."""
LEAVING_SECONDS = manifests.IDLE_SECONDS + 60.0


def play(scenes: Sequence[Scene], *, models: Path, folder: Path) -> dict[str, Any]:
    """Tell the whole story; return what the answers show."""
    scene, courses = scenes[0], [Course(one) for one in scenes]
    scene.apply(*manifests.pools(models))
    for one in scenes:
        one.until(partial(_routes, one), what=f"{one.name} serves at zero", deadline_seconds=AT_ZERO_SECONDS)
    if not all(course.observe().is_zero for course in courses):
        raise StoryError(f"the pools did not begin at zero: {[course.sizes[-1] for course in courses]}")
    known = json.loads((models / SEQUENCES).read_text())
    job = Asking.start(scene, manifests.job(folder), folder=folder, sequences=json.dumps(known))
    announced: set[str] = set()

    def over() -> bool:
        for course in courses:
            course.observe()
            demands = course.scene.pool().get("status", {}).get("demands", [])
            announced.update(course.scene.name for demand in demands if demand["job"] == JOB)
        return job.phase() == "Succeeded"

    scene.until(over, what="the job has all answers", deadline_seconds=JOB_SECONDS)
    began = scene.until(
        lambda: all(course.observe().is_zero for course in courses),
        what="nothing is left of all three fleets",
        deadline_seconds=LEAVING_SECONDS,
    )
    served = [course.scene.name for course in courses if any(size.ready for size in course.sizes)]
    if announced != {*manifests.POOLS} or served != [one.name for one in scenes]:
        raise StoryError(f"announced to {sorted(announced)}, served by {served}, and not by all of {manifests.POOLS}")
    asked = {name: len(found) for name, found in known.items()}
    asked |= {JUDGE: sum(asked.values()), "gateway": asked[GATEWAY]}
    answers = [json.loads(line) for line in (folder / ANSWERS).read_text().splitlines()]
    return {"asked": asked, **asdict(findings(answers, asked)), "to_zero_seconds": round(began, 1)}


def _routes(scene: Scene) -> bool:
    """Whether the routers of a pool answer, and its gateway, where it has one."""
    wanted = ("RouterReady", "GatewayReady") if scene.name == GATEWAY else ("RouterReady",)
    return all(scene.condition(kind).get("status") == "True" for kind in wanted)
