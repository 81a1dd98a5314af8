"""Evidence for explanations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rewardpool_api import RewardPool, names
from rewardpool_kube.events import last_seen, summary
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.workload.pods import is_managed, is_over


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Objects and figures of one pool at `now`."""

    now: datetime
    """Timezone-aware."""
    pool: RewardPool
    pods: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    """Name of a pod -> its newest warning event."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Kinds that could not be read, such as `pods` -> why."""
    is_local: bool = False
    program: str = "rewardpool"

    def pods_of(self, component: str) -> tuple[Object, ...]:
        mine = [pod for pod in self.pods if is_managed(pod) and not is_over(pod)]
        return tuple(pod for pod in mine if pod["metadata"]["labels"][names.LABEL_COMPONENT] == component)

    def command(self, *words: str) -> str:
        first, *rest = words
        return " ".join([self.program, first, self.pool.key, *rest])

    def patch(self, path: str, value: str) -> str:
        """The command that sets a field of the pool's spec to a value in JSON."""
        for name in reversed(f"spec.{path}".split(".")):
            value = f'{{"{name}":{value}}}'
        if self.is_local:
            return f"merge {value} into the manifest, then {self.program} up -f MANIFEST"
        metadata = self.pool.metadata
        return f"kubectl patch rewardpool {metadata.name} -n {metadata.namespace} --type merge -p '{value}'"

    def in_words(self, at: datetime) -> str:
        """A time as one that lies ahead or behind, such as `in 40 s, at 12:10:40 UTC`."""
        seconds = round((at - self.now).total_seconds())
        clock = f"at {at.astimezone(UTC):%H:%M:%S} UTC"
        return f"{clock}, {duration(-seconds)} ago" if seconds < 0 else f"in {duration(seconds)}, {clock}"

    def seconds_since(self, time: datetime | None) -> int | None:
        return None if time is None else int((self.now - time).total_seconds())


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"


def counted(number: int, what: str) -> str:
    """So many of a thing, such as `1 replica` and `2 replicas`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def newest_warnings(events: Iterable[Object]) -> dict[str, str]:
    """The newest warning about each pod, as `REASON: NOTE`, by the pod's name."""
    about_pods = [event for event in events if event["regarding"].get("kind") == "Pod" and event["type"] == "Warning"]
    about_pods.sort(key=last_seen)
    return {event["regarding"]["name"]: summary(event) for event in about_pods}
