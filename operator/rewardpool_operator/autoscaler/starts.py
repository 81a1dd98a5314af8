"""How long a replica takes from its making to its first score: how early a burst has to be prepared for."""

from collections.abc import Sequence
from typing import Final

from rewardpool_api.status import WorkerStart
from rewardpool_operator.autoscaler.signals import Start

KEPT: Final = 8
"""Starts in the status."""
UNKNOWN_SECONDS: Final = 60.0
"""Taken for a start until one was seen: about what an engine with a small model takes."""
MARGIN: Final = 1.1
"""Of the slowest start that is remembered."""
MARGIN_SECONDS: Final = 2.0
"""And what a decision takes on its way to a node."""


def learned(known: Sequence[WorkerStart], seen: Sequence[Start]) -> list[WorkerStart]:
    """The last starts, each replica's once."""
    names = {start.worker for start in known}
    new = [WorkerStart(worker=one.worker, seconds=round(one.seconds, 1)) for one in seen if one.worker not in names]
    return [*known, *new][-KEPT:]


def lead_seconds(known: Sequence[WorkerStart]) -> float:
    """How long before a burst its replicas have to be asked for."""
    slowest = max((start.seconds for start in known), default=UNKNOWN_SECONDS)
    return slowest * MARGIN + MARGIN_SECONDS
