"""First score: what a request waits for that finds the pool at zero, from its arrival to its score.

Each part lasts from the end of the one before to the look at which its own end was seen. Looks follow what watches and
probes report, so a part is right to some tenths of a second.
"""

from typing import Literal

from rewardpool_api.quantities import Duration, Time
from rewardpool_api.rules import ApiModel

FirstScorePart = Literal["Decision", "Scheduling", "Pull", "Download", "Load", "Answer"]


class FirstScoreParts(ApiModel):
    """Seconds of a first score, by part; they add up to all of it."""

    decision: Duration = 0.0
    """Seconds from the last pass without a waiting request until a replica was wanted for it."""
    scheduling: Duration = 0.0
    """Seconds until the replica was created and scheduled to a node."""
    pull: Duration = 0.0
    """Seconds until its container ran: volumes, network and image."""
    download: Duration = 0.0
    """Seconds in which the model was downloaded."""
    load: Duration = 0.0
    """Seconds from the engine's start until its first score for a probe."""
    answer: Duration = 0.0
    """Seconds until the routers listed the replica and the request had its score."""


class FirstScoreStatus(ApiModel):
    """From a request that found the pool at zero to its score."""

    since: Time
    """RFC 3339 time since which the request may have waited."""
    seconds: Duration
    """Seconds that the request has waited so far, or waited until its score."""
    parts: FirstScoreParts = FirstScoreParts()
    """Seconds that each part of the start took."""
    waits_for: FirstScorePart | None = None
    """Part in progress: Decision, Scheduling, Pull, Download, Load or Answer; absent after the score."""
