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
        seconds = self.scene.until(lambda: holds(self.observe()), what=what, deadline_seconds=deadline_seconds)
        self.scene.say(f"  {what}: {seconds:.1f} s")
        return seconds

    def observe(self) -> Size:
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
    asked_ahead_seconds: float
    """So long before the burst as many were wanted as it needs; 0.0 when they were not."""
    start_seconds: float
    """From then until so many served, which may have been after the burst began; 0.0 when they never went."""
    ready_at_burst: int
    """Replicas that served at the last look before the burst."""

    def is_warm(self, needed: int) -> bool:
        """Whether the burst found what it needs."""
        return self.ready_at_burst >= needed


def read_bursts(path: Path) -> list[Burst]:
    """The bursts that ended, from what `autoscaling.job` wrote; none where it has not begun."""
    told: dict[int, dict[str, float]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        told.setdefault(entry.pop("burst"), {}).update(entry)
    return [Burst(**times) for times in told.values() if len(times) == 2]


def gaps(sizes: Sequence[Size], bursts: Sequence[Burst], *, needed: int) -> list[Gap]:
    """The gaps between these bursts; one less than there are bursts."""
    return [_gap(sizes, before, burst, needed) for before, burst in pairwise(bursts)]


def first_start_seconds(sizes: Sequence[Size], *, needed: int) -> float:
    """From the first time that so many were wanted until so many served; 0.0 where that never came."""
    asked = next((size.at for size in sizes if size.wanted >= needed), None)
    whole = next((size.at for size in sizes if size.ready >= needed), None)
    return 0.0 if asked is None or whole is None else round(whole - asked, 1)


def _gap(sizes: Sequence[Size], before: Burst, burst: Burst, needed: int) -> Gap:
    seen = [size for size in sizes if before.ended <= size.at <= burst.began]
    ends = [*(size.at for size in seen[1:]), burst.began]
    gone = max((size.at for size in seen if size.wanted < needed), default=before.ended)
    asked = next((size.at for size in sizes if size.at > gone and size.wanted >= needed), burst.began)
    whole = next((size.at for size in sizes if size.at > gone and size.ready >= needed), burst.ended)
    went = gone > before.ended
    return Gap(
        at_zero_seconds=round(sum(end - size.at for size, end in zip(seen, ends, strict=False) if size.is_zero), 1),
        asked_ahead_seconds=round(max(0.0, burst.began - asked), 1),
        start_seconds=round(whole - asked, 1) if went else 0.0,
        ready_at_burst=seen[-1].ready if seen else 0,
    )
