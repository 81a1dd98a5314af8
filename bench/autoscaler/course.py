"""The sizes of a pool over time, as the API server told of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from rewardpool_kube.client import Kube
from rewardpool_kube.resources import POOLS

WATCH_SECONDS = 600
"""For which one watch is asked for."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a pool's object said from a moment on."""

    at: float
    """Monotonic seconds."""
    wanted: int
    """Replicas that the autoscaler asks for."""
    ready: int
    """Replicas that serve."""


@dataclass
class Course:
    """The sizes of one pool, oldest first."""

    sizes: list[Size] = field(default_factory=list)

    @property
    def latest(self) -> str:
        """The last size in words."""
        return f"{self.sizes[-1].ready} of {self.sizes[-1].wanted}" if self.sizes else "unknown"

    def note(self, pool: Mapping[str, Any], *, at: float) -> None:
        """Take in the pool's object."""
        spec, status = pool["spec"], pool.get("status", {})
        external = spec["autoscaling"]["policy"]["type"] == "External"
        wanted = spec["replicas"] if external else status.get("scaling", {}).get("desired", 0)
        self.sizes.append(Size(at=at, wanted=wanted, ready=status.get("readyReplicas", 0)))

    def seconds_until(self, holds: Callable[[Size], bool], *, since: float) -> float | None:
        """From `since` to the first size after it of which that holds; None where there was none."""
        return next((size.at - since for size in self.sizes if size.at >= since and holds(size)), None)

    def most_wanted(self, *, since: float) -> int:
        """The largest size asked for from `since` on."""
        before = [size.wanted for size in self.sizes if size.at < since][-1:]
        return max([*before, *(size.wanted for size in self.sizes if size.at >= since)], default=0)


async def follow(kube: Kube, namespace: str, courses: Mapping[str, Course]) -> None:
    """Note every change of the pools of these names, until cancelled."""
    while True:
        version = ""
        async for page in kube.pages(POOLS, namespace):
            version = page.version
            for pool in page.items:
                courses[pool["metadata"]["name"]].note(pool, at=monotonic())
        async for event in kube.watch(POOLS, namespace, version=version, seconds=WATCH_SECONDS):
            if event.type in ("ADDED", "MODIFIED"):
                courses[event.object["metadata"]["name"]].note(event.object, at=monotonic())
