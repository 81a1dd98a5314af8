"""The sizes that a pool had over time, and what they were around each burst of a job."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from scene import Scene, of_component


@dataclass(frozen=True, kw_only=True)
class Size:
    """One look at a pool."""

    at: float
    """When it was over, in seconds since 1970."""
    wanted: int
    """Replicas that the autoscaler asks for."""
    ready: int
    """Replicas that answer, and are in every router."""
    pods: int
    """Worker pods, leaving ones too."""

    @property
    def is_zero(self) -> bool:
        """Whether nothing of the fleet is there, or wanted."""
        return self.wanted == self.ready == self.pods == 0


@dataclass
class Course:
    """The sizes of the pool of a scene, oldest first."""

    scene: Scene
    sizes: list[Size] = field(default_factory=list)

    def until(self, holds: Callable[[Size], bool], *, what: str, deadline_seconds: float) -> float:
        """Look at the pool until that holds; return the seconds it took. Raises `StoryError` after the deadline."""
        seconds = self.scene.until(lambda: holds(self.look()), what=what, deadline_seconds=deadline_seconds)
        self.scene.say(f"  {what}: {seconds:.1f} s")
        return seconds

    def look(self) -> Size:
        """How large the pool is now."""
        objects = self.scene.objects("rewardpools,pods")
        status = next(found.get("status", {}) for found in objects if found["metadata"]["name"] == self.scene.name)
        size = Size(
            wanted=status.get("scaling", {}).get("desired", 0),
            ready=status.get("readyReplicas", 0),
            pods=len(of_component(objects, self.scene.name, "worker")),
            at=time.time(),
        )
        self.sizes.append(size)
        return size


@dataclass(frozen=True, kw_only=True)
class Burst:
    """The time in which a burst was scored, in seconds since 1970."""

    began: float
    ended: float


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What became of the fleet between two bursts."""

    at_zero_seconds: float
    """For so long nothing of it was there."""
    ready_at_burst: int
    """Replicas that served at the last look before the burst."""
    warm_seconds: float
    """For so long before the burst there had been as many as it needs; 0.0 when there were not."""


def read_bursts(path: Path) -> list[Burst]:
    """The bursts that ended, from what `autoscaling.job` wrote; none where it has not begun."""
    told: dict[int, dict[str, float]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        told.setdefault(entry.pop("burst"), {}).update(entry)
    return [Burst(**times) for times in told.values() if len(times) == 2]


def gaps(sizes: Sequence[Size], bursts: Sequence[Burst], *, needed: int) -> list[Gap]:
    """The gaps between these bursts; one less than there are bursts."""
    return [_gap(sizes, before.ended, burst.began, needed) for before, burst in pairwise(bursts)]


def _gap(sizes: Sequence[Size], since: float, until: float, needed: int) -> Gap:
    seen = [size for size in sizes if since <= size.at <= until]
    ends = [*(size.at for size in seen[1:]), until]
    at_zero = sum(end - size.at for size, end in zip(seen, ends, strict=False) if size.is_zero)
    warm_since = until
    for size in reversed(seen):
        if size.ready < needed:
            break
        warm_since = size.at
    return Gap(
        at_zero_seconds=round(at_zero, 1),
        ready_at_burst=seen[-1].ready if seen else 0,
        warm_seconds=round(until - warm_since, 1),
    )
