"""One run: a cluster, operators, trainers and people, with what happens to them; and what became of it.

world.py        this
virtual_time.py the clock and the event loop
faults.py       all that can happen, by name
api_server.py   objects, versions, watches        network.py   calls, and what goes wrong with them
cluster.py      controllers, scheduler, kubelets  programs.py  routers and workers
operators.py    the real code                     trainers.py  samples and announcements
people.py       edits                             invariants.py what must hold
machine.py      the same of one machine, and its supervisor
"""

import asyncio
import logging
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from simulation import faults
from simulation.api_server import ApiServer
from simulation.cluster import Cluster
from simulation.faults import Step
from simulation.invariants import Invariants
from simulation.network import Network
from simulation.operators import Operator
from simulation.people import People
from simulation.trainers import Trainer
from simulation.virtual_time import DeadlockError, LivelockError, VirtualTime

EVENTFUL_SECONDS: Final = 400.0
"""Of a run, in which things happen."""
SETTLING_SECONDS: Final = 1200.0
"""After the last of it, for all to be well again."""
STEPS: Final = 12
NAMESPACE: Final = "rl"
BOOKMARK_SECONDS: Final = 60.0
PACKAGES: Final = ("rewardpool_operator", "rewardpool_control", "rewardpool_kube", "rewardpool_api")
"""What an operator is made of: it goes by the simulated time."""


@dataclass
class Outcome:
    """What came of a run."""

    seed: int
    steps: tuple[Step, ...]
    violations: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    virtual_seconds: float = 0.0
    samples: int = 0


class Scene:
    """What every run has that is under way: a clock, steps, a history, and what was violated."""

    def __init__(self, time: VirtualTime, steps: Iterable[Step]) -> None:
        self.time = time
        self.history: list[str] = []
        self.violations: list[str] = []
        self.steps = tuple(steps)
        self._is_broken = asyncio.Event()

    def note(self, *words: object) -> None:
        """Write a line of the history."""
        self.history.append(f"{self.time.monotonic():10.3f} " + " ".join(map(str, words)))

    def violated(self, what: str) -> None:
        """An invariant does not hold."""
        self.note("VIOLATION", what)
        self.violations.append(f"{self.time.monotonic():.1f} s: {what}")
        self._is_broken.set()

    def _raised(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A check that raises is never made again. Of a task that nobody awaits this is called at any time.
        if "handle" in context:
            self.violated(f"{context['message']}: {context.get('exception')!r}")

    @property
    def samples(self) -> int:
        """Samples that were answered."""
        raise NotImplementedError

    def outcome(self, seed: int) -> Outcome:
        """Return what came of it."""
        return Outcome(
            seed,
            self.steps,
            violations=self.violations,
            history=self.history,
            virtual_seconds=self.time.monotonic(),
            samples=self.samples,
        )


class World(Scene):
    """A run that is under way.

    Args:
        time: its clock and chance.
        steps: what happens.
    """

    def __init__(self, time: VirtualTime, steps: Iterable[Step]) -> None:
        super().__init__(time, steps)
        self.backup: Any = None
        self.server = ApiServer(time.now, _chance(time))
        self.network = Network(self.server, _chance(time), self.note)
        self.invariants = Invariants(self)
        self.cluster = Cluster(
            self.server,
            self.network,
            _chance(time),
            self.note,
            nodes=(*(time.chance.choice([2, 4]) for _ in range(time.chance.randint(1, 4))), 0),
            stopped=self.invariants.worker_stopped,
        )
        self.people = People(self.server, self.cluster)
        self.operators = [
            Operator(f"operator-{number}", self.network, self.note, self.violated)
            for number in range(time.chance.choice([1, 2, 2, 2, 3]))
        ]
        self.trainers: list[Trainer] = []
        self._make_pools(_chance(time))

    @property
    def samples(self) -> int:
        return sum(trainer.answered for trainer in self.trainers)

    async def live(self) -> None:
        """From the first pool to all being well again after the last step, or to the first violation."""
        asyncio.get_running_loop().set_exception_handler(self._raised)
        whole, broken = asyncio.create_task(self._live()), asyncio.create_task(self._is_broken.wait())
        await asyncio.wait({whole, broken}, return_when=asyncio.FIRST_COMPLETED)
        for task in (whole, broken):
            task.cancel()
        await asyncio.gather(whole, broken, return_exceptions=True)
        for operator in self.operators:
            await operator.stop()
        if whole.done() and not whole.cancelled():
            whole.result()

    async def _live(self) -> None:
        self.cluster.start()
        for trainer in self.trainers:
            trainer.start()
        for operator in self.operators:
            operator.start()
        self._every(BOOKMARK_SECONDS, self.server.bookmark)
        self.invariants.start()
        loop = asyncio.get_running_loop()
        last = 0.0
        for step in self.steps:
            loop.call_at(step.at, self._begin, step)
            last = max(last, step.at + (step.seconds if math.isfinite(step.seconds) else 0.0))
        await asyncio.sleep(max(last, 150.0))
        await self._settle()

    def _make_pools(self, chance: random.Random) -> None:
        for number in range(chance.choice([1, 1, 1, 2])):
            name = f"rm-{number}"
            self.people.make(NAMESPACE, name, chance)
            for job in range(chance.choice([1, 2])):
                trainer = Trainer(
                    f"job-{number}-{job}",
                    self.cluster,
                    (NAMESPACE, name),
                    _chance(self.time),
                    announces=chance.random() < 0.3,
                    broken=self.violated,
                )
                self.trainers.append(trainer)

    async def _settle(self) -> None:
        until = self.time.monotonic() + SETTLING_SECONDS
        problems: list[str] = []
        while self.time.monotonic() < until:
            await asyncio.sleep(10.0)
            problems = self.invariants.not_settled()
            if not problems:
                self.note("settled")
                return
        self.violated(f"not settled after {SETTLING_SECONDS:g} s: {'; '.join(problems)}")

    def _begin(self, step: Step) -> None:
        self.note("step", step.kind)
        self.invariants.disturbed(step.kind)
        undo = faults.begin(self, step)
        if undo is not None and math.isfinite(step.seconds):
            asyncio.get_running_loop().call_later(step.seconds, self._end, step, undo)

    def _end(self, step: Step, undo: Any) -> None:
        self.note("end of", step.kind)
        self.invariants.disturbed(step.kind)
        undo()

    def _every(self, seconds: float, call: Any) -> None:
        def again() -> None:
            call()
            asyncio.get_running_loop().call_later(seconds, again)

        asyncio.get_running_loop().call_later(seconds, again)


def run(seed: int, steps: tuple[Step, ...] | None = None) -> Outcome:
    """Run the seed, with its own steps or with these."""
    with VirtualTime(seed=seed, packages=PACKAGES) as time:
        planned = faults.plan(_chance(time), seconds=EVENTFUL_SECONDS, count=time.chance.randint(2, STEPS))
        world = World(time, planned if steps is None else steps)
        logger = logging.getLogger("rewardpool_operator")
        heard = _Heard(world)
        level, propagates = logger.level, logger.propagate
        logger.addHandler(heard)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            time.run(world.live())
        except (DeadlockError, LivelockError) as error:
            world.violated(f"{type(error).__name__}: {error}")
        finally:
            logger.removeHandler(heard)
            logger.setLevel(level)
            logger.propagate = propagates
        return world.outcome(seed)


class _Heard(logging.Handler):
    """The operators' log is a part of the history; what says that the operator has a defect is a violation."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note(record.levelname.lower(), record.getMessage())
        if record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            self._world.violated(f"the operator's log: {record.getMessage()}: {error!r}")


def _chance(time: VirtualTime) -> random.Random:
    """Of one part of the world, so that what another part draws changes nothing in it."""
    return random.Random(time.chance.getrandbits(64))
