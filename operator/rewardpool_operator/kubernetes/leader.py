"""Which of several operators acts: the one that holds a Lease.

The protocol is the one of Kubernetes' own controllers (a Lease with a holder that renews it; whoever sees the same
version of it for its whole duration may take it), with three points that matter here:

- Time is measured on each operator's own monotonic clock, never compared between machines. The holder counts from the
  moment it *sent* a renewal, the others from the moment they first *saw* it, which is later; so the holder stops
  `MARGIN_SECONDS` before anybody else may start, and two never act at once.
- While the API server is away, or refuses the Lease, the holder's time runs out all the same. It then writes nothing
  and only puts workers back into routers that lost them (`Acting.ROUTERS`): serving must not need the API server.
- An operator that ends in good order gives the Lease back, so an upgrade costs a second and not ten.

kubernetes_asyncio has an elector of its own. It is not used: its calls have no deadline, so a holder whose call hangs
acts beyond its time, and an API server that is away ends it with an exception.
"""

import asyncio
import enum
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime
from secrets import token_hex
from time import monotonic
from typing import Final

from rewardpool_operator.kubernetes.client import LEASES, Kube, KubeError, KubeUnreachableError, Object
from rewardpool_operator.metrics import METRICS
from rewardpool_operator.times import rfc3339

log = logging.getLogger(__name__)

DURATION_SECONDS: Final = 10
"""Nobody takes a Lease that was renewed within this time. A dead operator is replaced this long after it died, plus up
to two renewal periods."""
MARGIN_SECONDS: Final = 2.0
"""Before that time is over, the holder has stopped."""
RENEW_SECONDS: Final = 2.0
"""Between two renewals, and between two looks of an operator that waits."""
CONFLICT: Final = 409
CALL_SECONDS: Final = 3.0
"""Deadline of one call. Two can hang before the time runs out."""


class Acting(enum.Enum):
    """What an operator may do now."""

    FULL = "full"
    """It leads: everything."""
    ROUTERS = "routers"
    """It led last, and the Lease cannot be had: put workers back into routers, take none out, write nothing."""
    NONE = "none"
    """Somebody else may lead: nothing."""


class Leadership:
    """One operator's share in the election. It takes part for as long as `run` runs.

    Args:
        kube: for the Lease only.
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
        self._valid_until = float("-inf")
        self._led = False
        self._api_away = False

    def acting(self) -> Acting:
        """What may be done at this moment."""
        if self._clock() < self._valid_until:
            return Acting.FULL
        return Acting.ROUTERS if self._led and self._api_away else Acting.NONE

    async def run(self) -> None:
        """Take the Lease when that is allowed, and renew it while it is held; until cancelled."""
        while True:
            await self.attempt()
            METRICS.leads(self.acting() is Acting.FULL)
            # A holder renews in time; those that wait need not all ask at once.
            spread = 1.0 if self._led else random.uniform(0.5, 1.0)  # noqa: S311 - spreads, hides nothing
            await asyncio.sleep(RENEW_SECONDS * spread)

    async def attempt(self) -> bool:
        """Take or renew the Lease if that is allowed; whether this operator holds it now."""
        sent = self._clock()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                held = await self._take_or_renew()
        except (KubeUnreachableError, TimeoutError) as error:
            self._api_away = True
            log.warning("the lease could not be renewed: %s", error or "no answer in time")
            return False
        except KubeError as error:
            # A conflict is somebody else's write: the next look shows whose. Any other refusal (throttling, a fault, a
            # right that was taken) says nothing of who leads, so it is as if the API server were away.
            self._api_away = error.status != CONFLICT
            log.warning("the lease could not be renewed: %s", error)
            return False
        self._api_away = False
        if held != self._led:
            log.info("%s %s the lease %s/%s", self.identity, "holds" if held else "lost", self._namespace, self._name)
        self._led = held
        self._valid_until = sent + DURATION_SECONDS - MARGIN_SECONDS if held else float("-inf")
        return held

    async def release(self) -> None:
        """Give the Lease back, after all acting has ended; failing to is only slower."""
        if self._clock() >= self._valid_until:
            return
        self._valid_until, self._led = float("-inf"), False
        try:
            async with asyncio.timeout(CALL_SECONDS):
                lease = await self._kube.get(LEASES, self._namespace, self._name)
                if lease is not None and holder_of(lease) == self.identity:
                    await self._write(lease, {"holderIdentity": ""})
        except (KubeError, KubeUnreachableError, TimeoutError) as error:
            log.warning("the lease was not given back, the next operator waits for its end: %s", error)

    async def _take_or_renew(self) -> bool:
        lease = await self._kube.get(LEASES, self._namespace, self._name)
        now = rfc3339(datetime.now(UTC))
        spec: Object = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": now,
        }
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            await self._kube.create(
                LEASES,
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": metadata,
                    "spec": {**spec, "acquireTime": now, "leaseTransitions": 0},
                },
            )
            return True
        if holder_of(lease) != self.identity:
            if not may_take(lease, unchanged_seconds=self._unchanged_seconds(lease)):
                return False
            transitions = (lease.get("spec") or {}).get("leaseTransitions") or 0
            spec |= {"acquireTime": now, "leaseTransitions": transitions + 1}
        await self._write(lease, spec)
        return True

    async def _write(self, lease: Object, spec: Object) -> None:
        # With the version that was read: of two that take an old lease, the second gets a conflict.
        metadata = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        await self._kube.merge(LEASES, self._namespace, self._name, {"metadata": metadata, "spec": spec})

    def _unchanged_seconds(self, lease: Object) -> float:
        version, now = lease["metadata"]["resourceVersion"], self._clock()
        if self._seen is None or self._seen[0] != version:
            self._seen = version, now
        return now - self._seen[1]


def holder_of(lease: Object) -> str:
    """Identity of the operator that holds the Lease; empty when it was given back."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def may_take(lease: Object, *, unchanged_seconds: float) -> bool:
    """Whether an operator that does not hold the Lease may take it.

    Args:
        lease: as it is now.
        unchanged_seconds: how long this version of it has been seen.
    """
    duration = (lease.get("spec") or {}).get("leaseDurationSeconds") or DURATION_SECONDS
    return not holder_of(lease) or unchanged_seconds >= duration
