"""Which pods' events are looked for, and how often. The API server is a fake that knows one warning."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from support.kube_builders import a_pod

from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.polls.pod_warnings import AGAIN_SECONDS, MAX_EXPLAINED, PodWarnings
from rewardpool_operator.kubernetes.polls.reading import Polling

CREATED = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = CREATED + timedelta(minutes=1)


class Surroundings:
    """A fake API server, a clock, and what was told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.now = 0.0
        self.news = 0
        session: Any = None
        polling = Polling(session=session, news=self._tell, clock=lambda: self.now)
        self.warnings = PodWarnings(self, polling)  # type: ignore[arg-type]

    async def last_warning(self, namespace: str, uid: str) -> str | None:
        self.asked.append(uid)
        for _ in range(5):
            await asyncio.sleep(0)
        return "FailedMount: no such claim"

    def _tell(self) -> None:
        self.news += 1

    async def notes(self, *pods: Object, now: datetime = LATER) -> dict[str, str]:
        found = dict(await self.warnings.notes(Objects(pool={}, pods=pods), now=now))
        for _ in range(20):
            await asyncio.sleep(0)
        return found


def a_stuck_pod(name: str = "w0") -> Object:
    pod = a_pod(name, state={"waiting": {"reason": "ContainerCreating"}})
    pod["metadata"]["namespace"] = "rl"
    return pod


async def test_a_pod_that_has_just_been_made_is_left_to_start() -> None:
    around = Surroundings()
    await around.notes(a_stuck_pod(), now=CREATED + timedelta(seconds=1))
    assert around.asked == []


async def test_the_trouble_of_a_pod_that_does_not_start_is_told_by_the_next_pass() -> None:
    around = Surroundings()
    assert await around.notes(a_stuck_pod()) == {}
    assert around.news == 1
    assert await around.notes(a_stuck_pod()) == {"w0": "FailedMount: no such claim"}


async def test_what_is_known_is_asked_again_seldom_and_is_no_news() -> None:
    around = Surroundings()
    for moment in (0.0, 1.0, AGAIN_SECONDS):
        around.now = moment
        await around.notes(a_stuck_pod())
    assert len(around.asked) == 2
    assert around.news == 1


async def test_of_many_pods_some_are_asked_for() -> None:
    around = Surroundings()
    await around.notes(*(a_stuck_pod(f"w{index}") for index in range(100)))
    assert len(around.asked) == MAX_EXPLAINED


async def test_a_pod_that_runs_has_no_trouble_any_more() -> None:
    around = Surroundings()
    await around.notes(a_stuck_pod())
    assert await around.notes(a_pod()) == {}
