"""While a pool answers nothing: who asks it meanwhile, and that all go on the moment it answers again.

Samples that fail pause, ever longer, so that a pool which comes back is not flooded. Left alone, each would notice for
itself, seconds late. So they notice together: while nothing succeeds, one of those that pause is sent early every
fifth of a second or so, and the first success, whoever has it, ends the pauses of all. Where the router holds requests
until it has a worker, nobody pauses: then a fresh request is sent beside one that has waited unusually long, and the
first success sends one beside each of them, since the router's own next try may be seconds away.

    no success since it was sent -> pause, or held by the router
        every PROBE_SECONDS one of those that pause is sent  -> a success -> all are sent, within WAKE_SECONDS
        every CANARY_SECONDS one goes beside one that is held -^

Both are one for all requests of the process, however many wait, and have jitter. Where the server said when to come
again (`Retry-After`), it is not asked earlier; an answer that another sample gets is better news. Those that were
refused as too much (HTTP 408, 425, 429) are no part of this.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

from rewardpool._client.connections.exchange import Exchange

# Shortest and longest time between two paused requests that are sent early.
PROBE_SECONDS = (0.15, 0.25)
# The same for requests beside those that are held; longer where answers usually take longer than this.
CANARY_SECONDS = (0.3, 0.4)
# No more at a time, because autoscaling measures what the routers hold.
MOST_CANARIES = 2
# Within this time all are sent again: a thousand trainers learn of it in different moments anyhow.
WAKE_SECONDS = 0.1
# After so long without a success, one means that the pool is back.
SILENCE_SECONDS = 1.0


# Ends the pause of a request within so many seconds from now.
GoOn = Callable[[float], None]


class Outage:
    """Shared state of a pool that is away, for its requests on the running event loop."""

    def __init__(self, *, uniform: Callable[[float, float], float]) -> None:
        """`uniform` is a random number between two bounds."""
        self._uniform = uniform
        self._loop = asyncio.get_running_loop()
        self._pausing: OrderedDict[GoOn, float] = OrderedDict()
        """Earliest time for each; the one that pauses longest first."""
        self._probe: asyncio.TimerHandle | None = None
        self.answered_at = self._loop.time()
        """Time of the last answer (the loop's), or of the opening."""
        self._canary_at = 0.0
        self._canaries: deque[Exchange] = deque()

    def answered(self) -> bool:
        """Count a success; returns whether it is the first after a silence, so that the pool is back."""
        now = self._loop.time()
        silent = now - self.answered_at >= SILENCE_SECONDS
        self.answered_at = now
        if self._pausing:
            for go_on in self._pausing:
                go_on(self.spread_seconds())
            self._pausing.clear()
        return silent

    def spread_seconds(self) -> float:
        """Return the time that one of many requests waits before it is sent again, when the pool is back."""
        return self._uniform(0.0, WAKE_SECONDS)

    def pauses(self, go_on: GoOn, *, at_least: float = 0.0) -> None:
        """Add a request that got no answer and pauses: its pause ends when it is its turn, or the pool is back.

        Its turn comes after `at_least` seconds, which a server requested.
        """
        self._pausing[go_on] = self._loop.time() + at_least
        if self._probe is None:
            self._plan()

    def forget(self, go_on: GoOn) -> None:
        self._pausing.pop(go_on, None)

    def unanswered_seconds(self, *, since: float) -> float:
        """Return how long, since that time (of the loop), nothing was answered."""
        return self._loop.time() - max(since, self.answered_at)

    def wants_canary(self, *, sent_at: float, usual_seconds: float, now: float) -> bool:
        """Return whether to send a fresh request beside one that is held since `sent_at`; if so, count it as sent."""
        if self.answered_at > sent_at or now - self.answered_at < SILENCE_SECONDS or now < self._canary_at:
            return False
        self._canary_at = now + max(self._uniform(*CANARY_SECONDS), usual_seconds)
        return True

    def canary_sent(self, canary: Exchange) -> None:
        """Close the oldest of these requests when there is one too many."""
        self._canaries.append(canary)
        while len(self._canaries) > MOST_CANARIES:
            self._canaries.popleft().cancel()

    def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()

    def _plan(self) -> None:
        self._probe = self._loop.call_later(self._uniform(*PROBE_SECONDS), self._send_one)

    def _send_one(self) -> None:
        self._probe = None
        if not self._pausing:
            return
        now = self._loop.time()
        if (first := next((one for one, may_go_at in self._pausing.items() if may_go_at <= now), None)) is not None:
            del self._pausing[first]
            first(0.0)
        self._plan()
