"""Warnings about pods whose containers do not even start: a claim, a path, an image, in the words of the last event.

Events are expensive to look for (the API server goes through all of the namespace), and every pod takes a moment to
start. So only pods that have not started for a while are asked for, a few per pool, seldom, in the background.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from rewardpool_api.status import MAX_MESSAGE
from rewardpool_api.times import from_rfc3339
from rewardpool_kube.client import Kube
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.polls.reading import Polling, Reading
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_runtime.untrusted import printable

log = logging.getLogger(__name__)

MAX_EXPLAINED: Final = 3  # of a hundred pods, all have the same problem
SLOW: Final = timedelta(seconds=5)
AGAIN_SECONDS: Final = 10.0


class PodWarnings:
    """The last warnings about one pool's pods that do not start."""

    def __init__(self, kube: Kube, polling: Polling) -> None:
        self._kube = kube
        self._polling = polling
        self._reading: Reading[dict[str, str]] = Reading(polling)

    async def notes(self, objects: Objects, *, now: datetime | None = None) -> Mapping[str, str]:
        """Pod name -> what is known of why it does not start; what is not known yet is polled in the background."""
        late = (now or datetime.now(UTC)) - SLOW
        stuck = [
            pod
            for pod in objects.pods
            if pods.is_stuck_before_start(pod) and from_rfc3339(pod["metadata"]["creationTimestamp"]) <= late
        ]
        is_due = self._polling.clock() - self._reading.asked_at >= AGAIN_SECONDS
        if self._reading.pending or (stuck and is_due):
            over = await self._reading.poll(partial(self._request, stuck[:MAX_EXPLAINED]), patience=0.0)
            if over and self._reading.problem is not None:
                log.warning("why pods do not start stays unknown: %s", self._reading.problem)
        there = {pod["metadata"]["name"] for pod in stuck}
        return {name: note for name, note in (self._reading.last or {}).items() if name in there}

    def close(self) -> None:
        self._reading.close()

    async def _request(self, stuck: list[Object]) -> dict[str, str]:
        async with self._polling.limit:
            notes = {pod["metadata"]["name"]: await self._last_warning(pod) for pod in stuck}
        return {name: note for name, note in notes.items() if note}

    async def _last_warning(self, pod: Object) -> str | None:
        said = await self._kube.last_warning(pod["metadata"]["namespace"], pod["metadata"]["uid"])
        return None if said is None else printable(said, most=MAX_MESSAGE)
