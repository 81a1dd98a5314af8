"""Seconds from a replica's making to its first score: how early a burst has to be prepared for."""

from collections.abc import Sequence
from typing import Final

from rewardpool_api.status import WorkerStart
from rewardpool_control.autoscaler.signals import Start

MAX_STARTS: Final = 8
# About what an engine with a small model takes.
UNKNOWN_SECONDS: Final = 60.0
MARGIN: Final = 1.25  # several that start at once on one node take longer than one
MARGIN_SECONDS: Final = 2.0  # what a decision takes on its way to a node


def learned(known: Sequence[WorkerStart], seen: Sequence[Start]) -> list[WorkerStart]:
    """The last starts, each replica's once; those that are seen come oldest first, again at every look."""
    recent = [(one.worker, round(one.seconds, 1)) for one in seen[-MAX_STARTS:]]
    if recent == [(start.worker, start.seconds) for start in known]:
        return list(known)  # as at nearly every look
    there = [WorkerStart(worker=one.worker, seconds=round(one.seconds, 1)) for one in seen]
    # On one machine a new replica may have the name of one that is gone.
    names = {start.worker for start in there}
    return [*(start for start in known if start.worker not in names), *there][-MAX_STARTS:]


def lead_seconds(known: Sequence[WorkerStart]) -> float:
    """Return how many seconds before a burst its replicas have to be requested."""
    slowest = max((start.seconds for start in known), default=UNKNOWN_SECONDS)
    return slowest * MARGIN + MARGIN_SECONDS
