"""Why a pod's containers do not even start, in the words of the last warning event about it: a claim, a path, an image.

Events are expensive to look for (the API server goes through all of the namespace), and every pod takes a moment to
start. So only pods that have not started for a while are asked for, a few per pool, seldom, in the background.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from rewardpool_api.status import MAX_MESSAGE
from rewardpool_operator.kubernetes import pods
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.client import Kube, KubeError, KubeUnreachableError, Object
from rewardpool_operator.times import from_rfc3339
from rewardpool_operator.untrusted import printable

log = logging.getLogger(__name__)

MAX_EXPLAINED: Final = 3
"""Pods of one pool; of a hundred, all have the same problem."""
SLOW: Final = timedelta(seconds=5)
"""A pod that has not started for this long has a problem, or pulls an image."""
AGAIN_SECONDS: Final = 10.0
"""Between two looks."""


class PodWarnings:
    """The last warnings about one pool's pods that do not start.

    Args:
        kube: the API server.
        news: called when there is something new.
        poll_limit: bounds the background polls at a time, of all pools together.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        news: Callable[[], None],
        poll_limit: asyncio.Semaphore,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._kube = kube
        self._news = news
        self._poll_limit = poll_limit
        self._clock = clock
        self._notes: dict[str, str] = {}
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def notes(self, objects: Objects, *, now: datetime | None = None) -> Mapping[str, str]:
        """Pod name -> what is known of why it does not start; what is not known yet is polled in the background."""
        late = (now or datetime.now(UTC)) - SLOW
        stuck = [
            pod
            for pod in objects.pods
            if pods.is_stuck_before_start(pod) and from_rfc3339(pod["metadata"]["creationTimestamp"]) <= late
        ]
        if stuck and self._asking is None and self._clock() - self._asked_at >= AGAIN_SECONDS:
            self._asked_at = self._clock()
            self._asking = asyncio.create_task(self._ask(stuck[:MAX_EXPLAINED]))
        there = {pod["metadata"]["name"] for pod in stuck}
        return {name: note for name, note in self._notes.items() if name in there}

    def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, stuck: list[Object]) -> None:
        try:
            async with self._poll_limit:
                notes = {pod["metadata"]["name"]: await self._last_warning(pod) for pod in stuck}
        except (KubeError, KubeUnreachableError) as error:
            log.warning("why pods do not start stays unknown: %s", error)
            return
        finally:
            self._asking = None
        found = {name: note for name, note in notes.items() if note}
        if found != self._notes:
            self._notes = found
            self._news()

    async def _last_warning(self, pod: Object) -> str | None:
        said = await self._kube.last_warning(pod["metadata"]["namespace"], pod["metadata"]["uid"])
        return None if said is None else printable(said, most=MAX_MESSAGE)
