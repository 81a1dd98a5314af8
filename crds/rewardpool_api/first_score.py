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
    """Seconds from the last look at which nobody waited until the request was noticed and a replica wanted."""
    scheduling: Duration = 0.0
    """Seconds until the replica was made and a node took it."""
    pull: Duration = 0.0
    """Seconds until its container ran: volumes, network and image."""
    download: Duration = 0.0
    """Seconds in which the model was downloaded."""
    load: Duration = 0.0
    """Seconds from the engine's start until a probe had a score of it."""
    answer: Duration = 0.0
    """Seconds until the routers had the replica and the first request its score."""


class FirstScoreStatus(ApiModel):
    """From a request that found the pool at zero to its score."""

    since: Time
    """RFC 3339 time from which on the request may have waited."""
    seconds: Duration
    """Seconds that it has waited so far, or did until its score."""
    parts: FirstScoreParts = FirstScoreParts()
    """What the time was spent on."""
    waits_for: FirstScorePart | None = None
    """Part that is going on: Decision, Scheduling, Pull, Download, Load or Answer; absent once there was a score."""
