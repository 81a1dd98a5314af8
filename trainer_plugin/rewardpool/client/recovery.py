"""After a setback: what makes another attempt worth while, how long to pause, or the error that ends the sample.

`retry.py` says what kinds of setback there are. A request whose worker failed goes to the same router again, which by
then avoids that worker.
"""

import logging

from rewardpool.client.effort import Effort
from rewardpool.client.report import Ledger
from rewardpool.client.retry import FAILURES, RetryableError, pause_seconds
from rewardpool.client.transport import Connections
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.discovery.places import LocalPlace
from rewardpool.errors import DeadlineError, PoolAccessError, PoolError, SampleError, ScoreError

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 1.0
"""At most this often is the address of an unreachable pool looked up again."""
LOOK_AGAIN_HERE_SECONDS = 0.2
"""The same where the address is in a file of this machine, which costs nobody anything."""
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

    async def after(self, effort: Effort, used: Endpoint, setback: RetryableError, *, sent_at: float) -> None:
        """Do what makes another attempt worth while, and pause; the last one was sent at `sent_at` (the loop's time).

        Raises:
            SampleError: No attempt is worth while.
            PoolError: The same, for every sample.
        """
        effort.setbacks += 1
        effort.problem = setback.problem
        effort.kind = setback.kind
        await self._look(effort, used, setback)
        self._log_retry(effort, setback)
        await self._pause(effort, setback, sent_at=sent_at)
        self._ledger.retry(setback.kind, first=effort.setbacks == 1)

    async def _pause(self, effort: Effort, setback: RetryableError, *, sent_at: float) -> None:
        if setback.kind == "denied" and not effort.refused_keys.issuperset(self._connections.endpoint.keys):
            # Another key is tried at once: the connection is likely the same, and then so is the router.
            return
        if setback.kind == "stale":
            return
        setbacks, kind, outage = effort.setbacks, setback.kind, self._connections.outage
        if setback.is_away and (is_back := outage.answered_at > sent_at):
            # Others find somebody there: what this one went through before that is no reason to go on pausing.
            effort.overtaken += 1
            setbacks, kind = effort.overtaken, "busy"
        pause = pause_seconds(setbacks, kind, uniform=self._connections.uniform, retry_after=setback.retry_after)
        if setback.is_away and not is_back:
            await outage.pause(pause, at_least=setback.retry_after or 0.0)
        else:
            await self._connections.sleep(pause)

    async def _look(self, effort: Effort, used: Endpoint, setback: RetryableError) -> None:
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
                    error = ScoreError(effort.label, f"{_where(used)}, does not serve it: {setback.problem}")
                    error.status = setback.status
                    raise error
            case "unreachable":
                again = LOOK_AGAIN_HERE_SECONDS if isinstance(used.place, LocalPlace) else LOOK_AGAIN_SECONDS
                moved = await self._following.moved(used, since=now - again)
                if not moved and self._following.problem:
                    effort.problem += f"; looking it up again: {self._following.problem}"
            case "waiting":
                # No hurry, but the address may have become another pool's.
                await self._following.moved(used, since=now - LOOK_AGAIN_WAITING_SECONDS)
            case "worker" | "nonsense":
                effort.failures += FAILURES[setback.kind]
                if effort.failures >= self._connections.config.max_attempts:
                    raise ScoreError(
                        effort.label, f"no usable answer in {effort.attempts} attempts; last: {setback.problem}"
                    )

    def too_late(self, effort: Effort) -> SampleError | PoolError:
        """The error of a sample whose deadline passed."""
        endpoint = self._connections.endpoint
        if effort.kind == "denied":
            # No trouble of this sample's: every further one would meet it too.
            return _no_access(endpoint, effort.problem)
        if effort.attempts == 0:
            problem = "others waited before it, and the pool answered none of them"
        else:
            problem = effort.problem or "the first attempt had no answer yet"
        if self._following.not_ready:
            problem += f"; when the pool was looked up last: {self._following.not_ready}"
        error = DeadlineError(effort.label, self._connections.config.timeout, effort.attempts, problem)
        return self._connections.breaker.too_late(error, kind=effort.kind, where=_where(endpoint))

    def expired(self, effort: Effort, *, queued_at: float, samples: int = 1) -> SampleError | PoolError:
        """The error of so many samples whose deadline passed while they waited for a slot, since `queued_at`."""
        if effort.attempts == 0:
            self._ledger.samples += samples
        effort.seconds += self._connections.outage.unanswered_seconds(since=queued_at)
        error = self.too_late(effort)
        if isinstance(error, PoolError) and samples == 1:
            self._ledger.unscored += 1
        return error

    def of_pool(self, error: BaseException) -> BaseException:
        """The error that ends a sample, or that of the pool where it is not the sample's."""
        if isinstance(error, SampleError) and error.status is not None:
            return self._connections.breaker.refused(error, where=_where(self._connections.endpoint))
        return error

    def _log_retry(self, effort: Effort, setback: RetryableError) -> None:
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


def _where(used: Endpoint) -> str:
    return f"{used.url}, found by {used.origin}"


def _no_access(used: Endpoint, problem: str) -> PoolAccessError:
    return PoolAccessError(f"{used.pool} at {used.url} does not take the key found by {used.origin}: {problem}")
