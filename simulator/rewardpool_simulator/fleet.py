"""A fleet and its router, simulated.

    Pending -> Starting -> Ready -> Draining -> Gone

The router gives a request to the ready replica that has least, and holds it while none has room. A replica works on
`concurrency` requests at once and keeps some more. One that is to leave gets nothing new, finishes what it has, and
goes. One that is lost takes nothing with it: its requests are given to others, and worked on from their beginning.

A replica costs GPU-seconds from its making to its end; while no node has room for it (Pending) it costs none.
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
    """Where a replica is on its way."""

    PENDING = "Pending"
    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    GONE = "Gone"


class Request:
    """One sample on its way to its score."""

    __slots__ = ("answered", "attempts", "service_seconds")

    def __init__(self, service_seconds: float, answered: Callable[[], None]) -> None:
        self.service_seconds = service_seconds
        self.answered = answered
        """Called once, when the score is there."""
        self.attempts = 0
        """Replicas that it was given to."""


@dataclass(eq=False, kw_only=True)
class Replica:
    """One server."""

    name: str
    phase: Phase = Phase.PENDING
    made: float
    """When it was wanted."""
    placed: float = 0.0
    """When it got its GPU."""
    start_seconds: float | None = None
    """From its making, room or not, to its being ready; None before that."""
    requests: dict[Request, None] = field(default_factory=dict)
    """What it has, in the order of its coming."""
    queue: deque[Request] = field(default_factory=deque)
    """What of that it does not work on yet."""
    answered: int = 0
    """Since its beginning."""


class Fleet:
    """Replicas behind one router."""

    def __init__(self, spec: FleetSpec, events: Events, *, seed: str) -> None:
        self._spec = spec
        self._room, self._concurrency = spec.room, spec.concurrency
        self._events = events
        self._chance = Random(f"{seed}/fleet")
        self._free: list[dict[Replica, None]] = [{} for _ in range(self._room + 1)]
        """Ready replicas by the number of requests they have."""
        self._lowest = 0
        """No ready replica has less."""
        self._held: deque[Request] = deque()
        """None of the ready replicas has room for these."""
        self._made = 0
        self._spent = 0.0
        self.replicas: list[Replica] = []
        """All that are not gone, oldest first."""
        self.desired = 0
        self.changes = 0
        """How often another number was wanted."""
        self.peak = 0
        """Most that were wanted."""
        self.answered = 0
        self.retried = 0
        """Requests that were given to another replica because the first was lost."""
        self._most_that_fit: int | None = None

    def ask(self, request: Request) -> None:
        """A request comes."""
        if not self._held and (replica := self._least_loaded()):
            self._give(replica, request)
        else:
            self._held.append(request)

    def scale(self, wanted: int) -> None:
        """Have so many replicas."""
        if wanted != self.desired:
            self.desired = wanted
            self.changes += 1
            self.peak = max(self.peak, wanted)
        self.fill()

    def fill(self) -> None:
        """Make or take away replicas until as many are there as are wanted."""
        active = self.active
        for _ in range(self.desired - len(active)):
            self._made += 1
            self.replicas.append(Replica(name=f"replica-{self._made}", made=self._events.now))
        if len(active) > self.desired:
            for replica in self._victims(active, len(active) - self.desired):
                self._drain(replica)
        if self.is_short:
            self._place()

    def lose(self, share: float) -> None:
        """Some of the replicas that have a GPU vanish; as many are made anew."""
        there = [replica for replica in self.replicas if replica.phase is not Phase.PENDING]
        orphans: list[Request] = []
        for replica in self._chance.sample(there, k=ceil(share * len(there))):
            if replica.phase is Phase.READY:
                del self._free[len(replica.requests)][replica]
            orphans += replica.requests
            self._end(replica)
        self.retried += len(orphans)
        for request in orphans:
            self.ask(request)
        self.fill()

    def fit(self, replicas: int | None) -> None:
        """From now on no more than these get a GPU; None is no limit. Those that have one keep it."""
        self._most_that_fit = replicas
        self._place()

    @property
    def is_short(self) -> bool:
        """Whether a replica waits for room."""
        return any(replica.phase is Phase.PENDING for replica in self.replicas)

    @property
    def active(self) -> list[Replica]:
        """Replicas that are wanted: all but those that leave."""
        return [replica for replica in self.replicas if replica.phase is not Phase.DRAINING]

    @property
    def ready(self) -> list[Replica]:
        """Replicas that take requests, oldest first."""
        return [replica for replica in self.replicas if replica.phase is Phase.READY]

    def gpu_seconds(self) -> float:
        """Spent until now."""
        there = (self._events.now - replica.placed for replica in self.replicas if replica.phase is not Phase.PENDING)
        return self._spent + sum(there)

    def view(self) -> View:
        """What an autoscaler may see now."""
        per_replica = tuple(len(replica.requests) for replica in self.ready)
        return View(
            now=self._events.now,
            in_flight=sum(per_replica),
            waiting=len(self._held),
            per_replica=per_replica,
            desired=self.desired,
            ready=len(per_replica),
            starting=len(self.active) - len(per_replica),
        )

    def _least_loaded(self) -> Replica | None:
        for load in range(self._lowest, self._room):
            if self._free[load]:
                self._lowest = load
                return next(iter(self._free[load]))
        self._lowest = self._room
        return None

    def _give(self, replica: Replica, request: Request) -> None:
        load = len(replica.requests)
        del self._free[load][replica]
        self._free[load + 1][replica] = None
        self._take(replica, request, load)

    def _take(self, replica: Replica, request: Request, load: int) -> None:
        """Have a replica with so many other requests work on it, or keep it for later."""
        replica.requests[request] = None
        request.attempts += 1
        if load < self._concurrency:
            self._events.after(request.service_seconds, self._finish, replica, request, request.attempts)
        else:
            replica.queue.append(request)

    def _finish(self, replica: Replica, request: Request, attempt: int) -> None:
        if request.attempts != attempt:
            return  # its replica was lost meanwhile, and another has it
        del replica.requests[request]
        left = len(replica.requests)
        replica.answered += 1
        if replica.queue:
            following = replica.queue.popleft()
            self._events.after(following.service_seconds, self._finish, replica, following, following.attempts)
        if replica.phase is Phase.READY:
            if self._held:  # it was full, and is again
                self._take(replica, self._held.popleft(), left)
            else:
                del self._free[left + 1][replica]
                self._free[left][replica] = None
                if left < self._lowest:
                    self._lowest = left
        elif not left:
            self._end(replica)
        self.answered += 1
        request.answered()

    def _victims(self, active: list[Replica], count: int) -> list[Replica]:
        """Who costs least to lose: who has no GPU, then the youngest that start, then who has least to do."""
        order = {Phase.PENDING: 0, Phase.STARTING: 1, Phase.READY: 2}
        return sorted(active, key=lambda one: (order[one.phase], len(one.requests), -one.made))[:count]

    def _drain(self, replica: Replica) -> None:
        if replica.phase is Phase.READY:
            del self._free[len(replica.requests)][replica]
        if replica.requests:
            replica.phase = Phase.DRAINING
        else:
            self._end(replica)

    def _end(self, replica: Replica) -> None:
        if replica.phase is not Phase.PENDING:
            self._spent += self._events.now - replica.placed
        for request in replica.requests:
            request.attempts += 1  # so that what was to finish here does not
        replica.phase = Phase.GONE
        replica.requests.clear()
        replica.queue.clear()
        self.replicas.remove(replica)
        if self._most_that_fit is not None:
            self._place()

    def _place(self) -> None:
        """Give GPUs to replicas that wait for one, as far as there are."""
        placed = sum(replica.phase is not Phase.PENDING for replica in self.replicas)
        for replica in self.replicas:
            if replica.phase is not Phase.PENDING:
                continue
            if self._most_that_fit is not None and placed >= self._most_that_fit:
                return
            placed += 1
            replica.phase, replica.placed = Phase.STARTING, self._events.now
            self._events.after(self._spec.start_seconds.draw(self._chance), self._serve, replica)

    def _serve(self, replica: Replica) -> None:
        if replica.phase is not Phase.STARTING:
            return  # it was taken away before it was ready
        replica.phase, replica.start_seconds = Phase.READY, self._events.now - replica.made
        self._free[0][replica] = None
        self._lowest = 0
        while self._held and len(replica.requests) < self._room:
            self._give(replica, self._held.popleft())
