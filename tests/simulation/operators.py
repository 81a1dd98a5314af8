"""Operators: the real manager and the real election of each, on a simulated network."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from simulation.network import Network, Session, kube_of

from rewardpool_operator.kubernetes.cache.reflector import EtcdRestoredError
from rewardpool_operator.kubernetes.leader import Acting, Leadership
from rewardpool_operator.kubernetes.manager import Manager
from rewardpool_operator.main import _first_of, _run

RESTART_SECONDS: Final = 2.0
LEASE: Final = ("rewardpool-system", "rewardpool-operator")
NAMED: Final = ("rl", *(f"team-{number}" for number in range(1, 15)))
"""Namespaces to serve by name: with eight watches each, more than a client has connections by default."""


class Operator:
    """A container that runs the operator, and starts it again when it ends.

    Args:
        name: of its pod.
        network: what it reaches others by.
        note: writes the history.
        broken: hears of an end that nothing excuses.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        note: Callable[..., None],
        broken: Callable[[str], None],
        *,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.manager: Manager | None = None
        self.leadership: Leadership | None = None
        self.namespaces = namespaces
        self.restarts = 0
        self.started_at = 0.0
        """When its process was last started."""
        self._network, self._note, self._broken = network, note, broken
        self._process: asyncio.Task[None] | None = None
        self._life: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._life = asyncio.create_task(self._live(), name=self.name)

    def kill(self) -> None:
        """The process ends without a word."""
        if self._process is not None:
            self._process.cancel()

    def serve(self, namespaces: tuple[str, ...]) -> None:
        """Serve these from now on, or all: its container is another one."""
        self.namespaces = namespaces
        self.kill()

    async def stop(self) -> None:
        if self._life is not None:
            self._life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._life

    @property
    def leads(self) -> bool:
        return self.leadership is not None and self.leadership.acting() is Acting.FULL

    async def _live(self) -> None:
        while True:
            self._process = asyncio.create_task(self._run(), name=f"{self.name} {self.restarts}")
            try:
                await asyncio.wait({self._process})
            finally:
                self._process.cancel()
            self._say_why(self._process)
            self.manager = self.leadership = None
            self.restarts += 1
            await asyncio.sleep(RESTART_SECONDS)

    async def _run(self) -> None:
        self.started_at = asyncio.get_running_loop().time()
        kube = kube_of(self._network, self.name)
        leadership = Leadership(kube, namespace=LEASE[0], name=LEASE[1], operator=self.name)
        session: Any = Session(self._network, self.name)
        manager = Manager(kube, session, image="rewardpool:1", namespaces=self.namespaces, acting=leadership.acting)
        self.manager, self.leadership = manager, leadership
        await _run(manager, leadership)

    def _say_why(self, process: "asyncio.Task[None]") -> None:
        if process.cancelled():
            self._note("operator", self.name, "killed")
            return
        error = process.exception()
        first = _first_of(error) if isinstance(error, BaseExceptionGroup) else error
        self._note("operator", self.name, f"ended: {first!r}")
        if not isinstance(first, EtcdRestoredError):
            self._broken(f"operator {self.name} ended: {first!r}")
