"""A simulated fleet and its router.

    Pending -> Starting -> Ready -> Draining -> Gone

The router sends a request to the least loaded ready replica, and keeps it while none has room. A replica works on
`concurrency` requests at once and queues some more. A draining replica gets nothing new, finishes what it has, and
ends. The requests of a lost replica start anew on others.

A replica costs GPU-seconds from its creation to its end, but none while no node has room for it (Pending).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from random import Random

from rewardpool_simulator.events import Events
from rewardpool_simulator.policy import View
from rewardpool_simulator.trace import FleetSpec


class Phase(Enum):
    """A replica's phase."""

    PENDING = "Pending"
    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    GONE = "Gone"


class Request:
    """A sample to be scored."""

    __slots__ = ("attempts", "on_response", "service_seconds")

    def __init__(self, service_seconds: float, on_response: Callable[[], None]) -> None:
        self.service_seconds = service_seconds
        self.on_response = on_response
        # Incremented when a replica gets the request and when that replica ends, so that a finish left over is ignored.
        self.attempts = 0


@dataclass(eq=False, kw_only=True)
class SimulatedReplica:
    """One worker."""

    name: str
    phase: Phase = Phase.PENDING
    created: float
    scheduled: float = 0.0
    """Seconds since the trace began."""
    start_seconds: float | None = None
    """From its creation, Pending included, to its being ready; None before that."""
    requests: dict[Request, None] = field(default_factory=dict)
    """An ordered set, oldest first."""
    queue: deque[Request] = field(default_factory=deque)
    answered: int = 0
    busy_since: float = 0.0
    """Seconds since the trace began, of the last request that came while it had none."""


class SimulatedFleet:
    """Replicas behind one router."""

    def __init__(self, spec: FleetSpec, events: Events, *, seed: str) -> None:
        self._spec = spec
        self._replica_capacity, self._concurrency = spec.replica_capacity, spec.concurrency
        self._events = events
        self._random = Random(f"{seed}/fleet")
        # Ready replicas by their number of requests; none has fewer than `_lowest`.
        self._ready_by_load: list[dict[SimulatedReplica, None]] = [{} for _ in range(self._replica_capacity + 1)]
        self._lowest = 0
        self._waiting: deque[Request] = deque()
        self._created = 0
        self._spent = 0.0
        self._busy = 0.0
        self.replicas: list[SimulatedReplica] = []
        self.desired = 0
        self.changes = 0
        self.peak = 0
        self.answered = 0
        self.retried = 0
        self._capacity_limit: int | None = None

    def submit(self, request: Request) -> None:
        if not self._waiting and (replica := self._least_loaded()):
            self._assign(replica, request)
        else:
            self._waiting.append(request)

    def scale(self, wanted: int) -> None:
        if wanted != self.desired:
            self.desired = wanted
            self.changes += 1
            self.peak = max(self.peak, wanted)
        self._reconcile()

    def lose(self, share: float) -> None:
        """Lose a share of the replicas that have a GPU, rounded up, and replace them."""
        there = [replica for replica in self.replicas if replica.phase is not Phase.PENDING]
        orphans: list[Request] = []
        for replica in self._random.sample(there, k=ceil(share * len(there))):
            if replica.phase is Phase.READY:
                del self._ready_by_load[len(replica.requests)][replica]
            orphans += replica.requests
            self._remove(replica)
        self.retried += len(orphans)
        for request in orphans:
            self.submit(request)
        self._reconcile()

    def limit_capacity(self, replicas: int | None) -> None:
        """Limit the replicas that get a GPU; None is no limit. Those that have one keep it."""
        self._capacity_limit = replicas
        self._schedule_pending()

    @property
    def lacks_capacity(self) -> bool:
        return any(replica.phase is Phase.PENDING for replica in self.replicas)

    @property
    def active(self) -> list[SimulatedReplica]:
        return [replica for replica in self.replicas if replica.phase is not Phase.DRAINING]

    @property
    def ready(self) -> list[SimulatedReplica]:
        """Replicas that receive requests, oldest first."""
        return [replica for replica in self.replicas if replica.phase is Phase.READY]

    def gpu_seconds(self) -> float:
        scheduled = [replica for replica in self.replicas if replica.phase is not Phase.PENDING]
        return self._spent + sum(self._events.now - replica.scheduled for replica in scheduled)

    def busy_seconds(self) -> float:
        """Return the seconds until now in which replicas had requests, summed over replicas."""
        return self._busy + sum(self._events.now - one.busy_since for one in self.replicas if one.requests)

    def view(self) -> View:
        ready = self.ready
        return View(
            now=self._events.now,
            in_flight=sum(len(replica.requests) for replica in ready),
            waiting=len(self._waiting),
            desired=self.desired,
            ready=len(ready),
            starting=len(self.active) - len(ready),
            draining=len(self.replicas) - len(self.active),
        )

    def _reconcile(self) -> None:
        active = self.active
        for _ in range(self.desired - len(active)):
            self._created += 1
            self.replicas.append(SimulatedReplica(name=f"replica-{self._created}", created=self._events.now))
        if len(active) > self.desired:
            for replica in self._scale_down_order(active, len(active) - self.desired):
                self._drain(replica)
        if self.lacks_capacity:
            self._schedule_pending()

    def _least_loaded(self) -> SimulatedReplica | None:
        for load in range(self._lowest, self._replica_capacity):
            if self._ready_by_load[load]:
                self._lowest = load
                return next(iter(self._ready_by_load[load]))
        self._lowest = self._replica_capacity
        return None

    def _assign(self, replica: SimulatedReplica, request: Request) -> None:
        load = len(replica.requests)
        del self._ready_by_load[load][replica]
        self._ready_by_load[load + 1][replica] = None
        self._start_or_queue(replica, request, load)

    def _start_or_queue(self, replica: SimulatedReplica, request: Request, load: int) -> None:
        if not replica.requests:
            replica.busy_since = self._events.now
        replica.requests[request] = None
        request.attempts += 1
        if load < self._concurrency:
            self._events.call_later(request.service_seconds, self._finish, replica, request, request.attempts)
        else:
            replica.queue.append(request)

    def _finish(self, replica: SimulatedReplica, request: Request, attempt: int) -> None:
        if request.attempts != attempt:
            return  # its replica was lost, and another has it
        del replica.requests[request]
        left = len(replica.requests)
        if not left:
            self._busy += self._events.now - replica.busy_since
        replica.answered += 1
        if replica.queue:
            following = replica.queue.popleft()
            self._events.call_later(following.service_seconds, self._finish, replica, following, following.attempts)
        if replica.phase is Phase.READY:
            if self._waiting:  # the replica was full, and is again
                self._start_or_queue(replica, self._waiting.popleft(), left)
            else:
                del self._ready_by_load[left + 1][replica]
                self._ready_by_load[left][replica] = None
                if left < self._lowest:
                    self._lowest = left
        elif not left:
            self._remove(replica)
        self.answered += 1
        request.on_response()

    def _scale_down_order(self, active: list[SimulatedReplica], count: int) -> list[SimulatedReplica]:
        # The cheapest to lose come first: those without a GPU, then those that start, then the least loaded.
        order = {Phase.PENDING: 0, Phase.STARTING: 1, Phase.READY: 2}
        return sorted(active, key=lambda one: (order[one.phase], len(one.requests), -one.created))[:count]

    def _drain(self, replica: SimulatedReplica) -> None:
        if replica.phase is Phase.READY:
            del self._ready_by_load[len(replica.requests)][replica]
        if replica.requests:
            replica.phase = Phase.DRAINING
        else:
            self._remove(replica)

    def _remove(self, replica: SimulatedReplica) -> None:
        if replica.phase is not Phase.PENDING:
            self._spent += self._events.now - replica.scheduled
        if replica.requests:
            self._busy += self._events.now - replica.busy_since
        for request in replica.requests:
            request.attempts += 1  # cancels the finish that is scheduled here
        replica.phase = Phase.GONE
        replica.requests.clear()
        replica.queue.clear()
        self.replicas.remove(replica)
        if self._capacity_limit is not None:
            self._schedule_pending()

    def _schedule_pending(self) -> None:
        placed = sum(replica.phase is not Phase.PENDING for replica in self.replicas)
        for replica in self.replicas:
            if replica.phase is not Phase.PENDING:
                continue
            if self._capacity_limit is not None and placed >= self._capacity_limit:
                return
            placed += 1
            replica.phase, replica.scheduled = Phase.STARTING, self._events.now
            self._events.call_later(self._spec.start_seconds.draw(self._random), self._become_ready, replica)

    def _become_ready(self, replica: SimulatedReplica) -> None:
        if replica.phase is not Phase.STARTING:
            return  # it ended before it was ready
        replica.phase, replica.start_seconds = Phase.READY, self._events.now - replica.created
        self._ready_by_load[0][replica] = None
        self._lowest = 0
        while self._waiting and len(replica.requests) < self._replica_capacity:
            self._assign(replica, self._waiting.popleft())
