"""The workers of a pool on one machine: a process each, marked, probed, drained and stopped as the plan says."""

import asyncio
import hashlib
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from time import monotonic

import aiohttp

from rewardpool_api import RewardPool
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import WorkerProcess
from rewardpool_operator.local.folder import PoolFolder
from rewardpool_operator.local.kept import Command, Kept, Run
from rewardpool_operator.local.machine import HOST, free_port, function_path
from rewardpool_operator.plan import Plan
from rewardpool_operator.probe import probe_score, read_in_flight, turn
from rewardpool_operator.snapshot import Failure, Worker, WorkerSet
from rewardpool_worker.engines import Launch, Place, engine_for

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Between two looks at a worker."""
BUSY_SECONDS = 0.05
"""Until a worker that was at work is asked again to sleep."""
REFUSED_SECONDS = 1.0
"""Until an engine that did not sleep or wake is asked again."""
STOP_SECONDS = 5.0
"""For a worker that has nothing in flight to end by itself. vLLM takes longer on a busy machine, to no purpose."""


class Silence:
    """How long a worker that scored before has not answered the simplest question, by count and by time.

    Both, as a kubelet counts failed liveness probes: by time alone, a machine that slept would find all its workers
    silent for hours at the first look; by count alone, ten refusals in a row are over in seconds.
    """

    LOOKS = 10
    SECONDS = 60.0

    def __init__(self) -> None:
        self._looks = 0
        self._since = 0.0

    def note(self, *, answered: bool, now: float) -> bool:
        """Take in one look at `now` (monotonic seconds); returns whether the worker hangs."""
        if answered:
            self._looks = 0
            return False
        if self._looks == 0:
            self._since = now
        self._looks += 1
        return self._looks >= self.LOOKS and now - self._since >= self.SECONDS


def revision_of(pool: RewardPool) -> str:
    """Eight characters that stand for how workers are started; a spec that starts them alike has the same."""
    place = Place(served_name=pool.served_name, host=HOST, port=0, key_file=_key_of(pool, "key"), sleeps=True)
    start = engine_for(pool.spec.engine.name).launch(pool.spec, place)
    text = json.dumps([start.argv, sorted(start.env.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _key_of(pool: RewardPool, file: str) -> str | None:
    return file if pool.spec.router.auth.mode == "Generated" else None


class Replica:
    """One worker: its process, started again when it dies, and what it says of itself."""

    def __init__(self, name: str, pool: RewardPool, *, created: datetime, fleet: "Fleet") -> None:
        self.name = name
        self.revision = revision_of(pool)
        self.created = created
        self.draining_since: datetime | None = None
        self._pool = pool
        self._fleet = fleet
        self.kept = Kept(name, run=fleet.run, command=self._command)
        self._answered_pid: int | None = None
        self._in_flight: int | None = None
        self._max_model_len: int | None = None
        self._silence = Silence()
        self._asleep_pid: int | None = None
        self._turning: asyncio.Task[None] | None = None
        self._turn_at = 0.0
        self._looking = asyncio.create_task(self._look_forever())

    @property
    def answering(self) -> bool:
        """Whether a real score came back from the process it has."""
        return self.kept.running and self._answered_pid == self.kept.pid

    @property
    def asleep(self) -> bool:
        """Whether the engine of the process it has sleeps."""
        return self.kept.running and self._asleep_pid == self.kept.pid

    @property
    def phase(self) -> str:
        """What `rewardpool status` shows."""
        if self.draining_since is not None or self.kept.stopping:
            return "Draining"
        if not self.kept.running and self.kept.failure is not None:
            return "Waiting"
        if self.asleep:
            return "Asleep"
        return "Ready" if self.answering else "Starting"

    def observe(self) -> Worker:
        """What a snapshot says of it.

        Raises:
            Exception: what ended the task that looks at the worker, which is a fault of this program.
        """
        if self._looking.done():
            self._looking.result()
        return Worker(
            name=self.name,
            revision=self.revision,
            url=self.kept.url if self.kept.running else None,
            created=self.created,
            running=self.kept.running,
            answering=self.answering,
            asleep=self.asleep,
            draining_since=self.draining_since,
            deleting=self.kept.stopping,
            in_flight=self._in_flight if self.kept.running else None,
            failure=self.kept.failure,
            restarts=self.kept.restarts,
            max_model_len=self._max_model_len,
        )

    def describe(self) -> WorkerProcess:
        """What the status says of it."""
        return WorkerProcess(
            name=self.name,
            revision=self.revision,
            url=self.kept.url,
            pid=self.kept.pid,
            phase=self.phase,
            restarts=self.kept.restarts,
            in_flight=self._in_flight if self.answering else None,
        )

    async def start_if_due(self, *, may_start: bool) -> None:
        """Start its process unless it has one, is leaving, is pausing, or no process may start."""
        if self.draining_since is None and may_start:
            await self.kept.start_if_due()
        self.kept.bound_log()

    def turn(self, *, awake: bool) -> None:
        """Begin to wake the engine or to put it to sleep, unless that is under way or failed a moment ago."""
        if (self._turning is None or self._turning.done()) and monotonic() >= self._turn_at:
            self._turning = asyncio.create_task(self._turn(awake=awake))

    async def _turn(self, *, awake: bool) -> None:
        pid, began = self.kept.pid, monotonic()
        turned = await turn(self._fleet.session, self.kept.url, awake=awake, key=self._fleet.key)
        if self.kept.pid != pid:
            return
        if turned.ok:
            self._asleep_pid = None if awake else pid
            log.info("%s: %s after %.2f s", self.name, "wakes" if awake else "sleeps", monotonic() - began)
            self._fleet.run.changed()
        elif turned.weights_lost:
            await self.kept.start_again(Failure(reason=ConditionReason.WEIGHTS_LOST, message=turned.error))
        elif turned.busy:
            self._turn_at = monotonic() + BUSY_SECONDS
        else:
            log.warning("%s: does not %s: %s", self.name, "wake" if awake else "sleep", turned.error)
            self._turn_at = monotonic() + REFUSED_SECONDS

    async def stop(self) -> None:
        """End its process, and look no more."""
        await self.kept.stop(grace_seconds=STOP_SECONDS)
        self._looking.cancel()

    async def kill(self) -> None:
        """End its process at once, and look no more."""
        await self.kept.kill()
        self._looking.cancel()

    async def _look_forever(self) -> None:
        while True:
            pid = self.kept.pid
            if pid is not None:
                await self._look(pid)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, pid: int) -> None:
        session, url, key = self._fleet.session, self.kept.url, self._fleet.key
        if self._answered_pid == pid:
            self._in_flight = await read_in_flight(session, url, key=key)
            if self._silence.note(answered=self._in_flight is not None, now=monotonic()):
                hung = f"it runs and has not answered for {Silence.SECONDS:.0f} s"
                await self.kept.start_again(Failure(reason="Hung", message=hung))
            return
        served_name, model_type = self._pool.served_name, self._pool.spec.model.type
        result = await probe_score(session, url, key=key, served_name=served_name, model_type=model_type)
        if result.ok and self.kept.pid == pid:
            self._answered_pid, self._in_flight, self._max_model_len = pid, 0, result.max_model_len
            self._silence = Silence()
            self.kept.note_serving()
            log.info("%s: scores", self.name)
            self._fleet.run.changed()

    def _command(self) -> Command:
        port = free_port()
        launch = self._fleet.launch(self._pool, port)
        return Command(argv=launch.argv, env=launch.env, url=f"http://{HOST}:{port}")


class Fleet:
    """All workers, by revision."""

    def __init__(
        self,
        *,
        run: Run,
        folder: PoolFolder,
        session: aiohttp.ClientSession,
        python: str,
        key: str | None,
        environ: Mapping[str, str],
    ) -> None:
        """Start empty.

        Args:
            run: what the processes of the supervisor share.
            folder: has the mounted files and the key.
            session: carries probes.
            python: the interpreter that has the engine.
            key: the pool's key; None when it asks for none.
            environ: this process's environment.
        """
        self.run = run
        self.session = session
        self.key = key
        self._folder = folder
        self._python = python
        self._environ = environ
        self._replicas: dict[str, Replica] = {}
        self._sets: dict[str, WorkerSet] = {}
        self._pools: dict[str, RewardPool] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def observe(self) -> tuple[tuple[WorkerSet, ...], tuple[Worker, ...]]:
        """What a snapshot says of the workers."""
        return tuple(self._sets.values()), tuple(replica.observe() for replica in self._replicas.values())

    def describe(self) -> list[WorkerProcess]:
        """What the status says of them, in the order of their numbers."""
        return [replica.describe() for replica in sorted(self._replicas.values(), key=lambda replica: replica.name)]

    async def carry_out(self, plan: Plan, pool: RewardPool, now: datetime) -> None:
        """Mark, stop and start workers as planned. `pool` is what the plan's newest revision was rendered from."""
        self._pools[revision_of(pool)] = pool
        for name in plan.drain:
            self._replicas[name].draining_since = now
        for name in plan.keep:
            self._replicas[name].draining_since = None
        for name in plan.retire:
            self._retire(self._replicas[name])
        self._sets = {
            wanted.revision: replace(wanted, created=self._sets.get(wanted.revision, wanted).created or now)
            for wanted in plan.worker_sets
        }
        for wanted in self._sets.values():
            self._grow(wanted, now)
        for replica in self._replicas.values():
            await replica.start_if_due(may_start=not plan.hold_starts)
        for name in (*plan.sleep, *plan.wake):
            self._replicas[name].turn(awake=name in plan.wake)

    async def stop(self) -> None:
        """Stop all workers side by side; nothing is in flight any more."""
        await asyncio.gather(*(replica.stop() for replica in self._replicas.values()), *self._stopping)

    async def kill(self) -> None:
        """End all workers at once."""
        await asyncio.gather(*(replica.kill() for replica in self._replicas.values()), *self._stopping)

    def launch(self, pool: RewardPool, port: int) -> Launch:
        """How to start a worker of this pool on this port."""
        is_function = pool.spec.engine.name == "python"
        place = Place(
            python=(sys.executable if is_function else self._python,),
            served_name=pool.served_name,
            host=HOST,
            port=port,
            files_dir=str(self._folder.files),
            key_file=_key_of(pool, str(self._folder.key_file)),
            sleeps=True,
        )
        launch = engine_for(pool.spec.engine.name).launch(pool.spec, place)
        if not is_function:
            # An engine is three processes that import the same 4,000 modules: 8 s of a CPU each with byte code, 16 s
            # without. So it may keep byte code in its own installation where the user has switched that off.
            return replace(launch, env={"PYTHONDONTWRITEBYTECODE": "", **launch.env})
        path = function_path(pool.spec.engine.env, self._environ)
        return replace(launch, env={**launch.env, "PYTHONPATH": path})

    def _grow(self, wanted: WorkerSet, now: datetime) -> None:
        present = [
            replica
            for replica in self._replicas.values()
            if replica.revision == wanted.revision and not replica.kept.stopping
        ]
        for _ in range(wanted.replicas - len(present)):
            name = self._free_name()
            self._replicas[name] = Replica(name, self._pools[wanted.revision], created=now, fleet=self)

    def _free_name(self) -> str:
        # The smallest number, so that a pool that grows and shrinks for weeks does not leave a log for every start.
        number = 1
        while f"worker-{number}" in self._replicas:
            number += 1
        return f"worker-{number}"

    def _retire(self, replica: Replica) -> None:
        replica.kept.stopping = True
        task = asyncio.create_task(self._stop_and_forget(replica))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop_and_forget(self, replica: Replica) -> None:
        await replica.stop()
        del self._replicas[replica.name]
        log.info("%s: stopped", replica.name)
        self.run.changed()
