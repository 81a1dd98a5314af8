"""The Secrets of one pool, read by name when they may have changed: see `secret_deletion.py` for why not watched.

They are read at first, when the Service shows a loss, after a pass that failed, and every so often for edits
by hand: every few seconds where there are few pools, every two minutes where there are a thousand.

A Secret that cannot be read is not a Secret that is gone. What was read of it last holds, each for itself, and as long
as the last reading is not complete nothing may be made from what the store has.
"""

import asyncio
import random
from functools import partial

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.polls.reading import Polling, Reading, keep_only
from rewardpool_operator.kubernetes.queue.requeue import SECRETS as PACE


def secret_names(pool: str, *, gateway: bool) -> tuple[str, ...]:
    """The Secrets that a pool owns; one more with a gateway."""
    own = (names.key_secret(pool), names.admin_secret(pool))
    return (*own, names.gateway_name(pool)) if gateway else own


class SecretReader:
    """Keeps the Secrets of one pool in the store."""

    def __init__(self, kube: Kube, store: Store, key: Key, polling: Polling) -> None:
        self._kube = kube
        self._store = store
        self._namespace, self._pool = key
        self._polling = polling
        self._read_at: float | None = None
        self._suspicious = False
        self._readings: dict[str, Reading[Object | None]] = {}
        self.expect(gateway=False)

    def expect(self, *, gateway: bool) -> None:
        """Read from now on what a pool with or without a gateway owns."""
        wanted = secret_names(self._pool, gateway=gateway)
        keep_only(self._readings, wanted)
        for name in wanted:
            if name not in self._readings:
                self._readings[name] = Reading(self._polling)
                self._suspicious = True

    @property
    def known(self) -> bool:
        """True if all of them were read, at any time."""
        return all(reading.is_answered for reading in self._readings.values())

    @property
    def opens_routers(self) -> bool:
        """True if the Secret with the key of the routers' worker lists was read, at any time."""
        return self._readings[names.admin_secret(self._pool)].is_answered

    @property
    def pending(self) -> bool:
        return any(reading.pending for reading in self._readings.values())

    @property
    def problem(self) -> str | None:
        """Reason why the last reading that ended was incomplete; None when it was complete."""
        return "; ".join(reading.problem for reading in self._readings.values() if reading.problem) or None

    @property
    def current(self) -> bool:
        """True if the last reading is over and was complete, so that Secrets may be made and changed."""
        return self.known and self.problem is None and not self.pending

    def suspect(self) -> None:
        self._suspicious = True

    def due(self, now: float, *, pools: int) -> float:
        """Seconds until they are to be read; not positive when now."""
        if self._read_at is None or self._suspicious or self.problem is not None or self.pending:
            return 0.0
        return self._read_at + PACE.seconds(pools) - now

    async def read(self, now: float) -> bool:
        """Read them into the store; whether the reading is over. One that takes long goes on in the background."""
        if not all(await asyncio.gather(*map(self._read, self._readings))):
            return False
        if self.problem is None:
            # Spread, or pools that were made together would be read together for ever.
            self._read_at = now - random.uniform(0.0, 0.2) * PACE.shortest  # noqa: S311 - hides nothing
            self._suspicious = False
        return True

    def close(self) -> None:
        keep_only(self._readings, ())

    async def _read(self, name: str) -> bool:
        reading = self._readings[name]
        over = await reading.poll(partial(self._kube.get, resources.SECRETS, self._namespace, name))
        if over and reading.problem is None:
            if reading.last is None:
                self._store.forget(resources.SECRETS, self._namespace, name)
            else:
                self._store.put(resources.SECRETS, reading.last)
        return over
