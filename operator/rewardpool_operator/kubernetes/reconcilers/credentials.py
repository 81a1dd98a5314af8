"""The keys and the certificate of one pool: Secrets are read, and a change of keys goes one step further.

What cannot be read is as it was read last; while not all of it was read, nothing is made of it. See `credentials/`.
"""

from time import monotonic

from rewardpool_api import RewardPool, names
from rewardpool_api.reasons import ConditionReason
from rewardpool_control.snapshot import Snapshot
from rewardpool_kube.client import Kube
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.credentials.key_rotator import KeyRotator
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.secret_deletion import shows_a_deletion
from rewardpool_operator.kubernetes.credentials.secret_reader import SecretReader
from rewardpool_operator.kubernetes.credentials.tls import CertificateReader, Tls
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.kubernetes.queue.requeue import BUSY_SECONDS
from rewardpool_operator.kubernetes.steps import ReconcileStep, Steps


class CredentialsReconciler:
    """Keys and certificate of one pool."""

    def __init__(self, kube: Kube, store: Store, key: Key, steps: Steps, polling: Polling) -> None:
        self._pool = key[1]
        self._steps = steps
        self._secrets = SecretReader(kube, store, key, polling)
        self._certificate = CertificateReader(kube, polling)
        self._keys = KeyRotator(polling)

    @property
    def opens_routers(self) -> bool:
        return self._secrets.opens_routers

    @property
    def known(self) -> bool:
        return self._secrets.known

    @property
    def may_write(self) -> bool:
        """True if the last reading was complete, so that Secrets may be made of it."""
        return self._secrets.current

    async def read(self, objects: Objects, *, pools: int) -> None:
        self._secrets.expect(gateway=(objects.pool.get("spec") or {}).get("gateway") is not None)
        if shows_a_deletion(objects.find("Service", names.router_name(self._pool)), objects.secrets):
            self._secrets.suspect()
        now = monotonic()
        waits = self._steps.pause(ReconcileStep.SECRETS) > 0 and not self._secrets.pending
        if self._secrets.due(now, pools=pools) > 0 or waits or not await self._secrets.read(now):
            return
        self._steps.came_to(ReconcileStep.SECRETS, ConditionReason.SECRETS_UNREADABLE, self._secrets.problem)

    async def keys(self, pool: RewardPool, objects: Objects, *, may_change: bool) -> Keys:
        """The keys that the Secrets shall have; the same as they have where they may not change."""
        may_change = may_change and self._secrets.current
        return await self._keys.reconcile(pool, objects, may_change=may_change, known=self._secrets.known)

    async def certificate(self, pool: RewardPool, *, may_read: bool, pools: int) -> Tls:
        may_read = may_read and self._steps.pause(ReconcileStep.CERTIFICATE) == 0
        tls = await self._certificate.read(pool, now=monotonic(), pools=pools, may_read=may_read)
        if may_read:
            self._steps.came_to(
                ReconcileStep.CERTIFICATE, ConditionReason.CERTIFICATE_UNREADABLE, self._certificate.refused
            )
        return tls

    def observed(self, snapshot: Snapshot) -> Snapshot:
        return self._keys.observed(snapshot)

    def suspect(self) -> None:
        """Let the next pass read the Secrets: something failed that they may be the cause of."""
        self._secrets.suspect()

    def seconds_until_reading(self, *, pools: int) -> float:
        due = BUSY_SECONDS if self._secrets.pending else self._secrets.due(monotonic(), pools=pools)
        return max(due, self._steps.pause(ReconcileStep.SECRETS))

    def close(self) -> None:
        self._secrets.close()
        self._certificate.close()
