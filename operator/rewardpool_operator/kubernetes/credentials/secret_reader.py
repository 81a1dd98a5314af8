"""The Secrets of one pool, read by name when they may have changed: see `secret_deletion.py` for why not watched.

They are read at first, when the Service shows a loss, after a pass that failed, and every so often for edits
by hand: every few seconds where there are few pools, every two minutes where there are a thousand.

A Secret that cannot be read is not a Secret that is gone. What was read of it last holds, each for itself, and as long
as the last reading is not complete nothing may be made from what the store has.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rewardpool_api import names
from rewardpool_operator.kubernetes import client
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.client import Kube, KubeError, KubeUnreachableError, Object
from rewardpool_operator.kubernetes.polls.background_poll import BackgroundPoll

READS_PER_SECOND: Final = 16
"""Of all pools together, while nothing happens, until the longest time is reached: one hundredth of a core."""
SHORTEST_SECONDS: Final = 4.0
LONGEST_SECONDS: Final = 120.0


def secret_names(pool: str) -> tuple[str, ...]:
    """The Secrets that a pool owns."""
    return names.key_secret(pool), names.admin_secret(pool)


def seconds_between_reads(pools: int) -> float:
    """Between two readings of a pool's Secrets for no reason, with so many pools."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, 2 * pools / READS_PER_SECOND))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the API server said of the Secrets, each for itself."""

    found: Mapping[str, Object | None]
    """Name -> the Secret, None where there is none."""
    refused: Mapping[str, str]
    """Name -> why nobody knows."""


class SecretReader:
    """Keeps the Secrets of one pool in the store.

    Args:
        kube: the API server.
        store: takes the Secrets.
        key: of the pool.
        news: called when an answer came that no pass waited for.
    """

    def __init__(self, kube: Kube, store: Store, key: Key, *, news: Callable[[], None] = lambda: None) -> None:
        self._kube = kube
        self._store = store
        self._key = key
        self._asked: BackgroundPoll[Reading] = BackgroundPoll(news, is_answer=lambda reading: not reading.refused)
        self._seen: set[str] = set()
        self._read_at: float | None = None
        self._suspicious = False
        self.problem: str | None = None
        """Why the last reading that ended was not complete; None when it was."""

    @property
    def known(self) -> bool:
        """Whether all of them were read, at any time."""
        return self._seen >= set(secret_names(self._key[1]))

    @property
    def opens_routers(self) -> bool:
        """Whether the Secret with the key of the routers' worker lists was read, at any time."""
        return names.admin_secret(self._key[1]) in self._seen

    @property
    def pending(self) -> bool:
        """Whether a reading is under way in the background."""
        return self._asked.pending

    @property
    def current(self) -> bool:
        """Whether the last reading is over and was complete, so that Secrets may be made and changed."""
        return self.known and self.problem is None and not self.pending

    def suspect(self) -> None:
        """Have them read by the next pass."""
        self._suspicious = True

    def due(self, now: float, *, pools: int) -> float:
        """Seconds until they are to be read; not positive when now."""
        if self._read_at is None or self._suspicious or self.problem is not None or self.pending:
            return 0.0
        return self._read_at + seconds_between_reads(pools) - now

    async def read(self, now: float) -> bool:
        """Read them into the store; whether the reading is over. One that takes long goes on in the background."""
        reading = await self._asked.ask(self._read)
        if reading is None:
            return False
        for name, secret in reading.found.items():
            self._seen.add(name)
            if secret is None:
                self._store.forget(client.SECRETS, self._key[0], name)
            else:
                self._store.put(client.SECRETS, secret)
        self.problem = "; ".join(reading.refused.values()) or None
        if self.problem is None:
            # Spread, or pools that were made together would be read together for ever.
            self._read_at = now - random.uniform(0.0, 0.2) * SHORTEST_SECONDS  # noqa: S311 - hides nothing
            self._suspicious = False
        return True

    def close(self) -> None:
        """Stop reading."""
        self._asked.close()

    async def _read(self) -> Reading:
        found: dict[str, Object | None] = {}
        refused: dict[str, str] = {}

        async def read(name: str) -> None:
            try:
                found[name] = await self._kube.get(client.SECRETS, self._key[0], name)
            except (KubeError, KubeUnreachableError) as error:
                refused[name] = str(error)

        await asyncio.gather(*(read(name) for name in secret_names(self._key[1])))
        return Reading(found=found, refused=dict(sorted(refused.items())))
