"""Model a to b and back under an open reward: a rollout, a rollback, and a worker that is killed in a rollout."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faults.stage import settle
from scene import Scene, StoryError
from two_models import manifests
from two_models.findings import findings
from two_models.rating import ENDED, RATINGS

REPLICAS = 2
START_SECONDS = 300.0
ROLLOUT_SECONDS = 300.0
POD_SECONDS = 120.0
GROUPS = 25
"""Groups that a revision rates alone before the next change."""


class Ratings:
    """The pod that rates."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self._scene = scene
        self._folder = folder

    def start(self, models: Path) -> None:
        """Start it, and return when a group is rated."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o777)  # the pod is not root
        for earlier in self._folder.iterdir():
            earlier.unlink()
        self._scene.apply(manifests.rater(models, self._folder))
        self.more(1)

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups that are rated so far."""
        path = self._folder / RATINGS
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def more(self, count: int = GROUPS) -> None:
        """Return when so many more groups are rated."""
        wanted = len(self.groups()) + count

        def rated() -> bool:
            if self._scene.phase(manifests.RATER) in {"Failed", "Succeeded"}:
                raise StoryError(f"the pod ended:\n{self._scene.kubectl('logs', manifests.RATER, '--tail=30')}")
            return len(self.groups()) >= wanted

        self._scene.until(rated, what=f"{count} more groups are rated", deadline_seconds=POD_SECONDS)

    def end(self) -> dict[str, int]:
        """Let it finish what it began; return what it says at its end."""
        self._scene.kubectl("delete", "pod", manifests.RATER, "--wait=false")
        ended = self._folder / ENDED
        self._scene.until(ended.exists, what="the pod has its ratings", deadline_seconds=POD_SECONDS + 30)
        said: dict[str, int] = json.loads(ended.read_text())
        return said


def play(scene: Scene, *, models: Path, out: Path) -> dict[str, Any]:
    """Tell the whole story; return what the ratings show."""
    truth = json.loads((models / "truth.json").read_text())
    scene.apply(manifests.pool(models, replicas=REPLICAS))
    settle(scene, what="model a serves", deadline_seconds=START_SECONDS)
    ratings = Ratings(scene, out)
    ratings.start(models)
    model_of = {revision(scene): "a"}
    seconds = {}
    for step, model in {"rollout": "b", "rollback": "a", "rollout with a kill": "b"}.items():
        ratings.more()
        began = time.monotonic()
        scene.say(f"{step}: to model {model}")
        scene.change({"model": {"source": manifests.source(models, model)}})
        if "kill" in step:
            scene.until(lambda: len(scene.pods("worker")) > REPLICAS, what="it rolls", deadline_seconds=60)
            scene.kill(scene.pods("worker")[0])
        settle(scene, what=f"model {model} serves alone", deadline_seconds=ROLLOUT_SECONDS)
        model_of[revision(scene)] = model
        seconds[step] = round(time.monotonic() - began, 1)
        scene.say(f"  {seconds[step]} s, {len(ratings.groups())} groups so far")
    ratings.more()
    said = ratings.end()
    found = findings(ratings.groups(), truth, model_of)
    if found.groups != said["begun"]:
        raise StoryError(f"{said['begun']} groups were begun, and {found.groups} rated")
    crossed = sum(abs(truth["crossed"][label] - score) > 0.01 for label, score in truth["b"].items())
    return {**asdict(found), **said, "seconds": seconds, "would_differ": f"{crossed} of {len(truth['b'])}"}


def revision(scene: Scene) -> str:
    """Return the revision that serves."""
    return str(scene.pool()["status"]["currentRevision"])
