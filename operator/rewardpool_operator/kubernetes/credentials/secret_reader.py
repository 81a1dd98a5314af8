"""The Secrets of one pool, read by name when they may have changed: see `witness.py` for why not watched.

They are read at first, when the witness tells of a loss, after a pass that failed, and every so often for edits by
hand: every few seconds where there are few pools, about once a minute where there are a thousand.
"""

import asyncio
import random
from typing import Final

from rewardpool_api import names
from rewardpool_operator.kubernetes import client
from rewardpool_operator.kubernetes.client import Kube
from rewardpool_operator.kubernetes.watch.store import Key, Store

READS_PER_SECOND: Final = 33
"""Of all pools together, while nothing happens: two hundredths of a core."""
SHORTEST_SECONDS: Final = 4.0
LONGEST_SECONDS: Final = 60.0


def secret_names(pool: str) -> tuple[str, ...]:
    """The Secrets that a pool owns."""
    return names.key_secret(pool), names.admin_secret(pool)


def seconds_between_reads(pools: int) -> float:
    """Between two readings of a pool's Secrets for no reason, with so many pools."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, 2 * pools / READS_PER_SECOND))


class SecretReader:
    """Keeps the Secrets of one pool in the store."""

    def __init__(self, kube: Kube, store: Store, key: Key) -> None:
        self._kube = kube
        self._store = store
        self._key = key
        self._read_at: float | None = None
        self._suspicious = False

    @property
    def known(self) -> bool:
        """Whether they were read at all."""
        return self._read_at is not None

    def suspect(self) -> None:
        """Have them read by the next pass."""
        self._suspicious = True

    def due(self, now: float, *, pools: int) -> float:
        """Seconds until they are to be read; not positive when now."""
        if self._read_at is None or self._suspicious:
            return 0.0
        return self._read_at + seconds_between_reads(pools) - now

    async def read(self, now: float) -> None:
        """Read them into the store.

        Raises:
            KubeError: the API server refuses.
            KubeUnreachableError: it does not answer.
        """
        namespace, pool = self._key
        called = secret_names(pool)
        found = await asyncio.gather(*(self._kube.get(client.SECRETS, namespace, name) for name in called))
        for name, secret in zip(called, found, strict=True):
            if secret is None:
                self._store.forget(client.SECRETS, namespace, name)
            else:
                self._store.put(client.SECRETS, secret)
        # Spread, or pools that were made together would be read together for ever.
        self._read_at = now - random.uniform(0.0, 0.2) * SHORTEST_SECONDS  # noqa: S311 - hides nothing
        self._suspicious = False
