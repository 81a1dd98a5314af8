"""After a setback: what makes another attempt worth while, how long to pause, or the error that ends the sample.

`retry.py` says what kinds of setback there are. A request whose worker failed goes to the same router again, which by
then avoids that worker.
"""

import logging

from rewardpool.client.connections import Connections
from rewardpool.client.effort import Effort
from rewardpool.client.report import Ledger
from rewardpool.client.retry import FAILURES, Setback, pause_seconds
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import DeadlineError, PoolAccessError, PoolError, SampleError, ScoreError

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 1.0
"""At most this often is the address of an unreachable pool looked up again."""
LOOK_AGAIN_WAITING_SECONDS = 15.0
"""At most this often is that of a pool looked up again which is there and has no worker."""
LOG_SECONDS = 10.0
"""At most this often is a line about retries logged."""


class Recovery:
    """Gets the samples of one `Pool` over their setbacks."""

    def __init__(self, connections: Connections, ledger: Ledger) -> None:
        """`ledger` counts them."""
        self._connections = connections
        self._following = connections.following
        self._ledger = ledger
        self._logged_at = float("-inf")

    async def after(self, effort: Effort, used: Endpoint, setback: Setback) -> None:
        """Do what makes another attempt worth while, and pause.

        Raises:
            SampleError: No attempt is worth while.
            PoolError: The same, for every sample.
        """
        effort.setbacks += 1
        effort.problem = setback.problem
        effort.denied = setback.kind == "denied"
        effort.nonsense = setback.kind == "nonsense"
        await self._look(effort, used, setback)
        self._ledger.retry(setback.kind, first=effort.setbacks == 1)
        self._log_retry(effort, setback)
        if effort.denied and not effort.refused_keys.issuperset(self._connections.endpoint.keys):
            # Another key is tried at once: the connection is likely the same, and then so is the router.
            return
        await self._connections.sleep(pause_seconds(effort.setbacks, setback.kind, uniform=self._connections.uniform))

    async def _look(self, effort: Effort, used: Endpoint, setback: Setback) -> None:
        """Look the address up again, where that may help, or raise the error that ends the sample."""
        now = self._connections.clock()
        match setback.kind:
            case "denied":
                admitted = self._connections.admitted
                await self._following.moved(used, since=now - LOOK_AGAIN_SECONDS if admitted else now)
                if not self._connections.admitted and effort.refused_keys.issuperset(self._connections.endpoint.keys):
                    raise _no_access(used, setback.problem)
            case "missing":
                if not await self._following.moved(used, since=now):
                    raise ScoreError(
                        effort.label, f"{used.url}, found by {used.origin}, is no reward pool: {setback.problem}"
                    )
            case "unreachable":
                moved = await self._following.moved(used, since=now - LOOK_AGAIN_SECONDS)
                if not moved and self._following.problem:
                    effort.problem += f"; looking it up again: {self._following.problem}"
            case "waiting":
                # No hurry, but the address may have become another pool's.
                await self._following.moved(used, since=now - LOOK_AGAIN_WAITING_SECONDS)
            case "worker" | "nonsense":
                effort.failures += FAILURES[setback.kind]
                if effort.failures >= self._connections.config.attempts:
                    raise ScoreError(
                        effort.label, f"no usable answer in {effort.attempts} attempts; last: {setback.problem}"
                    )

    def too_late(self, effort: Effort) -> SampleError | PoolError:
        """The error of a sample whose deadline passed."""
        if effort.denied:
            # No trouble of this sample's: every further one would meet it too.
            return _no_access(self._connections.endpoint, effort.problem)
        problem = effort.problem or "the first attempt had no answer yet"
        return DeadlineError(effort.label, self._connections.config.deadline_seconds, effort.attempts, problem)

    def _log_retry(self, effort: Effort, setback: Setback) -> None:
        log.debug("retrying sample %s after attempt %d: %s", effort.label, effort.attempts, setback.problem)
        now = self._connections.clock()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.warning(
                "%d samples needed a retry so far %s; now sample %s, attempt %d (request %s-%d): %s",
                self._ledger.retried,
                dict(self._ledger.setbacks),
                effort.label,
                effort.attempts,
                effort.request_id,
                effort.attempts,
                setback.problem,
            )


def _no_access(used: Endpoint, problem: str) -> PoolAccessError:
    return PoolAccessError(f"{used.pool} at {used.url} does not take the key found by {used.origin}: {problem}")
