"""Training jobs: they send samples to a pool's routers until each is answered, and some announce what is to come."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from simulation.api_server import Refused
from simulation.cluster import Cluster
from simulation.programs import Sample, Worker

from rewardpool_api import names
from rewardpool_api.demand import Demand, Phase, lease_manifest, lease_name
from rewardpool_api.times import rfc3339

MOST_IN_FLIGHT: Final = 24
PAUSE_SECONDS: Final = (1.0, 3.0)
RENEW_SECONDS: Final = 5.0
BURST_SECONDS: Final = (30.0, 600.0)


class Trainer:
    """One job.

    Args:
        name: of the job.
        cluster: where its pool is.
        pool: namespace and name.
        chance: of when it sends.
        announces: whether it tells the pool of its bursts.
        broken: hears of a sample that went wrong in a way that nothing excuses.
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        pool: tuple[str, str],
        chance: random.Random,
        *,
        announces: bool,
        broken: Callable[[str], None],
    ) -> None:
        self.name, self.pool, self.announces = name, pool, announces
        self.sent = self.answered = 0
        self.sent_at = float("-inf")
        """When a router last took a sample."""
        self.answered_at = float("-inf")
        """When its last sample was answered."""
        self._next_at = 0.0
        self.waiting: dict[Sample, float] = {}
        """Not answered yet -> since when."""
        self._cluster, self._chance, self._broken = cluster, chance, broken

    def start(self) -> None:
        self._later(self._chance.uniform(1, 60), self._burst)
        if self.announces:
            self._renew()

    def _burst(self) -> None:
        for _ in range(min(self._chance.randint(1, 16), MOST_IN_FLIGHT - len(self.waiting))):
            self.sent += 1
            sample = Sample(self.sent, self.pool, self._now(), self._done)
            self.waiting[sample] = self._now()
            self._later(self._chance.uniform(0.0, 10.0), self._send, sample)
        self._next_at = self._now() + self._chance.uniform(*BURST_SECONDS)
        self._later(self._next_at - self._now(), self._burst)

    def _send(self, sample: Sample) -> None:
        routers = self._cluster.exposed_routers(self.pool)
        silent = self._cluster.network.silent
        routers = [one for one in routers if one.address.partition(":")[0] not in silent]
        if routers:
            self.sent_at = self._now()
            self._chance.choice(routers).send(sample)
        else:
            self._later(self._chance.uniform(*PAUSE_SECONDS), self._send, sample)

    def _done(self, sample: Sample, worker: Worker | None, status: int) -> None:
        if worker is None:
            self._later(self._chance.uniform(*PAUSE_SECONDS), self._send, sample)
            return
        sample.answers += 1
        if sample.answers > 1:
            self._broken(f"sample {self.name}/{sample.number} was answered twice")
        if worker.pool != self.pool:
            self._broken(f"sample {self.name}/{sample.number} was answered by {worker.pod} of {'/'.join(worker.pool)}")
        if self.waiting.pop(sample, None) is not None:
            self.answered += 1
            self.answered_at = self._now()

    def _renew(self) -> None:
        server, (namespace, name) = self._cluster.server, self.pool
        pool = server.get(names.KIND, namespace, name)
        begins = None if self.waiting else max(0.0, self._next_at - self._now())
        phase: Phase = "Rollout" if begins is None else "Update"
        demand = Demand(job=self.name, phase=phase, samples=MOST_IN_FLIGHT, starts_in_seconds=begins)
        manifest = lease_manifest(
            demand,
            pool=name,
            namespace=namespace,
            pool_uid=pool["metadata"]["uid"] if pool else None,
            seconds=15,
            now=rfc3339(server._now()),
        )
        try:
            server.apply("Lease", manifest, manager=names.TRAINER_FIELD_MANAGER)
        except Refused as refusal:
            self._broken(f"lease {lease_name(name, self.name)}: {refusal}")
        self._later(RENEW_SECONDS, self._renew)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *arguments)
