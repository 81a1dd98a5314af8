"""Election of the operator that acts: the one that holds a Lease.

The protocol is the one of Kubernetes' own controllers (a Lease with a holder that renews it; whoever sees the same
version of it for its whole duration may take it), with four points that matter here:

- Time is measured on each operator's own monotonic clock, never compared between machines. The holder counts from the
  moment it *sent* a renewal, the others from the moment they first *saw* it, which is later; so the holder stops
  `MARGIN_SECONDS` before anybody else may start, and two never act at once.
- While the API server is away, or refuses the Lease, the holder's time runs out all the same. It then writes nothing
  and only fills routers that lost all their workers (`Acting.ROUTERS`): serving must not need the API server.
- Whoever makes the Lease acts only when its duration has passed: one that was deleted may have a holder, who does not
  know yet. So two never act at once even where somebody deletes the Lease again and again.
- An operator that ends in good order gives the Lease back, so an upgrade costs a second and not ten.

kubernetes_asyncio has an elector of its own. It is not used: its calls have no deadline, so a holder whose call hangs
acts beyond its time, and an API server that is away ends it with an exception.
"""

import asyncio
import enum
import logging
import math
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from secrets import token_hex
from time import monotonic
from typing import Final, TypeVar

from rewardpool_api.times import rfc3339
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import LEASES, Object
from rewardpool_operator.kubernetes.cache.reflector import EtcdRestoredError
from rewardpool_runtime.untrusted import count_of

log = logging.getLogger(__name__)
T = TypeVar("T")

DURATION_SECONDS: Final = 10
"""Nobody takes a Lease that was renewed within this time. A dead operator is replaced this long after it died, plus up
to two renewal periods."""
MARGIN_SECONDS: Final = 2.0  # the holder stops this long before `DURATION_SECONDS` are over
RENEW_SECONDS: Final = 2.0
CONFLICT: Final = 409
RETRY_SECONDS: Final = 0.5
# A call can hang before the holder's time runs out; the next one has the rest of that time.
CALL_SECONDS: Final = 3.0


class Acting(enum.Enum):
    """Rights of an operator at one moment."""

    FULL = "full"
    ROUTERS = "routers"
    """It led last, and the Lease cannot be had: it may fill routers that have no worker, and write nothing.

    Another operator may lead by now: what this one knows of a router that has workers is older than what is there.
    """
    NONE = "none"


class Leadership:
    """One operator's share in the election. It takes part for as long as `run` runs.

    Args:
        namespace: of the Lease, the operator's own.
        name: of the Lease; operators of one name exclude each other.
        operator: who this is, for people: the pod's name.
        clock: monotonic seconds.
    """

    def __init__(
        self, kube: Kube, *, namespace: str, name: str, operator: str, clock: Callable[[], float] = monotonic
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        # Not the pod's name alone: a container that is started again is another operator.
        self.identity = f"{operator}_{token_hex(4)}"
        self._clock = clock
        self._seen: tuple[str, float] | None = None
        self._newest = -1
        self._acts_from = -math.inf
        """Time from which no holder of an earlier Lease acts; infinite while the answer to making this one is missing.
        """
        self._valid_until = -math.inf
        self._led = False
        self._api_away = False
        self._own_version: str | None = None
        """Version of the Lease that this operator wrote last; None where that failed, or the Lease is another's."""

    def acting(self) -> Acting:
        now = self._clock()
        if now < self._acts_from:
            return Acting.NONE
        if now < self._valid_until:
            return Acting.FULL
        return Acting.ROUTERS if self._led and self._api_away else Acting.NONE

    async def run(self) -> None:
        """Acquire the Lease when that is allowed, and renew it while it is held; until cancelled.

        Raises:
            EtcdRestoredError: the Lease's version went back.
        """
        while True:
            began = self._clock()
            succeeded = await self.attempt()
            # A holder renews in time; those that wait need not all ask at once.
            spread = 1.0 if self._led else random.uniform(0.5, 1.0)  # noqa: S311 - spreads, hides nothing
            pause = RENEW_SECONDS if succeeded or not self._led else RETRY_SECONDS
            await asyncio.sleep(max(0.0, pause * spread - (self._clock() - began)))

    async def attempt(self) -> bool:
        """Acquire or renew the Lease if that is allowed; return whether this operator holds it now."""
        try:
            written_at = await self._take_or_renew()
        except (KubeUnreachableError, TimeoutError) as error:
            self._api_away, self._own_version = True, None
            log.warning("the lease could not be renewed: %s", error or "no answer in time")
            return False
        except KubeError as error:
            # A conflict is another operator's write, whose the next attempt reads. Any other refusal (throttling, a
            # fault, a right that was revoked) says nothing of who leads, as an API server that is away.
            self._api_away, self._own_version = error.status != CONFLICT, None
            log.warning("the lease could not be renewed: %s", error)
            return False
        self._api_away = False
        held = written_at is not None
        if held != self._led:
            log.info("%s %s the lease %s/%s", self.identity, "holds" if held else "lost", self._namespace, self._name)
        self._led = held
        self._valid_until = -math.inf if written_at is None else written_at + DURATION_SECONDS - MARGIN_SECONDS
        return held

    async def release(self) -> None:
        """Release the Lease, after all acting has ended; where that fails, the next one only waits longer."""
        if self.acting() is not Acting.FULL:
            return
        self._valid_until, self._led, self._own_version = -math.inf, False, None
        try:
            lease = await _in_time(self._kube.get(LEASES, self._namespace, self._name))
            if lease is not None and holder_of(lease) == self.identity:
                await self._write(version_of(lease), {"holderIdentity": ""})
        except (KubeError, KubeUnreachableError, TimeoutError) as error:
            log.warning("the lease was not given back, the next operator waits for its end: %s", error)

    async def _take_or_renew(self) -> float | None:
        """Write the Lease if that is allowed; return when the write was sent, None without one."""
        spec: Object = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": rfc3339(datetime.now(UTC)),
        }
        if self._own_version is not None:
            # One call in place of two: the version that was written last is the one to replace.
            return await self._write(self._own_version, spec)
        lease = await _in_time(self._kube.get(LEASES, self._namespace, self._name))
        if lease is None:
            return await self._create(spec)
        self._check_version(lease)
        if holder_of(lease) != self.identity:
            if not may_take(lease, unchanged_seconds=self._unchanged_seconds(version_of(lease))):
                return None
            spec |= {"acquireTime": spec["renewTime"], "leaseTransitions": transitions_of(lease) + 1}
            self._acts_from = -math.inf
        elif self._acts_from == math.inf:
            self._was_made()
        return await self._write(version_of(lease), spec)

    async def _create(self, spec: Object) -> float:
        manifest = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**spec, "acquireTime": spec["renewTime"], "leaseTransitions": 0},
        }
        sent_at, self._acts_from = self._clock(), math.inf
        self._own_version = version_of(await _in_time(self._kube.create(LEASES, manifest)))
        self._was_made()
        return sent_at

    def _was_made(self) -> None:
        """Begin to wait: the Lease is there, and holders of earlier ones cannot renew theirs."""
        self._acts_from = self._clock() + DURATION_SECONDS
        log.info("there was no lease; if it was deleted, its holder may still act for %g s", DURATION_SECONDS)

    async def _write(self, version: str, spec: Object) -> float:
        """Write the Lease if this is its version; return when that was sent."""
        # Of two that take an old Lease by its version, the second gets a conflict.
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        sent_at = self._clock()
        written = await _in_time(self._kube.merge(LEASES, self._namespace, self._name, patch))
        self._own_version = version_of(written)
        self._newest = max(self._newest, int(self._own_version))
        return sent_at

    def _check_version(self, lease: Object) -> None:
        version = int(version_of(lease))
        if version < self._newest:
            # A watch from a version that is to come says nothing for long: what is known would be written meanwhile.
            raise EtcdRestoredError(f"the version of the lease went back from {self._newest} to {version}")
        self._newest = version

    def _unchanged_seconds(self, version: str) -> float:
        now = self._clock()
        if self._seen is None or self._seen[0] != version:
            self._seen = version, now
        return now - self._seen[1]


async def _in_time(call: Awaitable[T]) -> T:
    async with asyncio.timeout(CALL_SECONDS):
        return await call


def version_of(lease: Object) -> str:
    """The Lease's version, which the client has checked."""
    return str(lease["metadata"]["resourceVersion"])


def holder_of(lease: Object) -> str:
    """Identity of the operator that holds the Lease; empty when it was given back."""
    holder = _spec_of(lease).get("holderIdentity")
    return holder if isinstance(holder, str) else ""


def transitions_of(lease: Object) -> int:
    """Number of times that the Lease changed hands."""
    return count_of(_spec_of(lease).get("leaseTransitions")) or 0


def may_take(lease: Object, *, unchanged_seconds: float) -> bool:
    """Return whether an operator that does not hold the Lease may take it.

    Args:
        unchanged_seconds: how long this version of it has been seen.
    """
    duration = count_of(_spec_of(lease).get("leaseDurationSeconds")) or DURATION_SECONDS
    return not holder_of(lease) or unchanged_seconds >= duration


def _spec_of(lease: Object) -> Object:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}
