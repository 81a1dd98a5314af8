"""One machine: the real supervisor of a pool on virtual time, with real files, and processes that are simulated.

A process is what `programs.py` has, at a port of the simulated network, and is started and ended where the supervisor
would have the kernel do so. The faults are those of a machine: files that somebody removes or a newer version writes,
no more open files, a full disk, processes that are killed. Steps and outcomes are as of a cluster.
"""

import asyncio
import errno
import json
import logging
import math
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, Self

import pytest
from simulation.faults import Step, Undo, drawn
from simulation.network import Network, Session
from simulation.programs import ROUTER_CHECK_SECONDS, Router, Worker
from simulation.trainers import Trainer
from simulation.virtual_time import DeadlockError, LivelockError, VirtualTime
from simulation.world import Outcome, Scene

from rewardpool_api import RewardPool, dump_manifest, names
from rewardpool_local import folder as folder_module
from rewardpool_local import launching, process, router, supervised_process, supervisor
from rewardpool_local.folder import PoolFolder, asked_for
from rewardpool_local.process import ENV_PROCESS
from rewardpool_local.supervisor import Supervisor, SupervisorSettings
from rewardpool_runtime.listeners import HOST

EVENTFUL_SECONDS: Final = 300.0
SETTLING_SECONDS: Final = 300.0
STOP_SECONDS: Final = 120.0
LATE_SECONDS: Final = 5.0
"""From a process's end until the status does not call it ready any more."""
STEPS: Final = 10
KEY: Final = ("rl", "rm")
PACKAGES: Final = ("rewardpool_local", "rewardpool_operator", "rewardpool_control", "rewardpool_kube", "rewardpool_api")
FIRST_PORT: Final = 20_000


class MachineRouter(Router):
    """One whose metrics have a port of their own."""

    metrics_port = 0

    @property
    def _metrics_address(self) -> str:
        return f"{HOST}:{self.metrics_port}"


class Child:
    """In place of a process that asyncio started."""

    def __init__(self, machine: "Machine", pid: int, env: Mapping[str, str], program: Router | Worker) -> None:
        self.pid, self.env, self.program = pid, env, program
        self.name = env[ENV_PROCESS].split("/")[2]
        self.returncode: int | None = None
        self._machine = machine
        self._has_ended = asyncio.Event()

    async def wait(self) -> int:
        await self._has_ended.wait()
        return self.returncode or 0

    def terminate(self) -> None:
        """By the supervisor: a program ends once nothing is in flight, or so it says."""
        self._machine.stopped(self)
        self._machine.later(1.0, self.end, 0)

    def end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._machine.note(self.name, "ends with", code)
            self.program.die()
            self._has_ended.set()


class Port:
    """In place of a port that is held."""

    def __init__(self, number: int) -> None:
        self.number = number

    def lend(self) -> None: ...
    def reclaim(self) -> None: ...
    def release(self) -> None: ...


class MachineSession(Session):
    """A session that is opened and closed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class Supervised(Supervisor):
    """The supervisor without this process's signals."""

    def _on_signals(self) -> Any:
        return nullcontext()


class Machine(Scene):
    """A run that is under way.

    Args:
        time: its clock and chance.
        path: of the pool's folder.
        steps: what happens.
    """

    def __init__(self, time: VirtualTime, path: Path, steps: tuple[Step, ...]) -> None:
        super().__init__(time, steps)
        self.path = path
        self.chance = random.Random(time.chance.getrandbits(64))
        self.network = Network(None, random.Random(time.chance.getrandbits(64)), self.note)  # type: ignore[arg-type]
        self.folder = PoolFolder(path)
        self.children: dict[int, Child] = {}
        self.trouble: OSError | None = None
        """What every file that is read or written says."""
        self.may_read = True
        """In spite of that."""
        self.is_newer = False
        """The last manifest that was asked for is of a newer version."""
        self._is_ending = False
        self._marks, self._pids, self._ports = count(1), count(100), count(FIRST_PORT)
        self._wrong_since: float | None = None
        chance = random.Random(time.chance.getrandbits(64))
        self.wanted = self._manifest(replicas=chance.randint(1, 3), drain=chance.choice([2, 5, 30]))
        """What was asked for last, and is to be served."""
        self.trainer = Trainer("job", self, KEY, chance, announces=False, broken=self.violated)  # type: ignore[arg-type]

    @property
    def samples(self) -> int:
        return self.trainer.answered

    def note(self, *words: object) -> None:
        super().note(*(str(word).replace(str(self.path), "FOLDER") for word in words))

    async def live(self) -> None:
        """From `rewardpool up` to its end, or to the first violation."""
        asyncio.get_running_loop().set_exception_handler(self._raised)
        self.folder.create()
        self.ask_for(self.wanted)
        environ = {names.ENV_STATE_DIR: str(self.path.parents[1])}
        self.supervisor = Supervised(self.folder, self.wanted, SupervisorSettings(python="python3"), environ)
        task = asyncio.create_task(self.supervisor.run(), name="supervisor")
        task.add_done_callback(self._supervisor_ended)
        whole, broken = asyncio.create_task(self._live(task)), asyncio.create_task(self._is_broken.wait())
        await asyncio.wait({whole, broken}, return_when=asyncio.FIRST_COMPLETED)
        self._is_ending = True
        for one in (whole, broken, task):
            one.cancel()
        await asyncio.gather(whole, broken, task, return_exceptions=True)
        if whole.done() and not whole.cancelled():
            whole.result()

    async def _live(self, task: "asyncio.Task[bool]") -> None:
        self.trainer.start()
        self._every(ROUTER_CHECK_SECONDS, lambda: [one.look_at_workers() for one in self.exposed_routers(KEY)])
        self._every(1.0, self._check_status)
        last = 0.0
        for step in self.steps:
            asyncio.get_running_loop().call_at(step.at, self._begin, step)
            last = max(last, step.at + (step.seconds if math.isfinite(step.seconds) else 0.0))
        await asyncio.sleep(max(last, 60.0))
        until, problems = self.time.monotonic() + SETTLING_SECONDS, [""]
        while problems and self.time.monotonic() < until:
            await asyncio.sleep(5.0)
            problems = self.not_settled()
        if problems:
            self.violated(f"not settled after {SETTLING_SECONDS:g} s: {'; '.join(problems)}")
        self.note("settled, and is stopped")
        self._is_ending = True
        self.supervisor._on_stop_signal(signal.SIGTERM)
        await asyncio.wait({task}, timeout=STOP_SECONDS)
        left = [one.name for one in self.children.values() if one.returncode is None]
        if left or not task.done() or self.folder.read_supervisor() is not None:
            self.violated(f"{STOP_SECONDS:g} s after it was stopped there are {left}, and {task}")

    # What people and faults do.

    def ask_for(self, pool: RewardPool) -> None:
        """`rewardpool up`, of another process, which has files and room."""
        self.wanted, self.is_newer = pool, False
        self._write("wanted.json", json.dumps(dump_manifest(pool)))

    def ask_of_a_newer_version(self) -> None:
        self._keep_what_was_read()
        self.is_newer = True
        self._write("wanted.json", json.dumps({**dump_manifest(self.wanted), "spec": {"fromTheFuture": 1}}))

    def remove(self, name: str) -> None:
        if name == "wanted.json":
            self._keep_what_was_read()
            self.is_newer = False
        (self.path / name).unlink(missing_ok=True)

    def edited(self, **spec: Any) -> RewardPool:
        """What is wanted, with another mark or other fields."""
        engine = self.wanted.spec.engine.model_dump(mode="json", by_alias=True)
        return self._changed({"engine": {**engine, "env": [{"name": "MARK", "value": f"m{next(self._marks)}"}]}} | spec)

    def scaled(self, replicas: int) -> RewardPool:
        return self._changed({"replicas": replicas})

    def _changed(self, fields: Mapping[str, Any]) -> RewardPool:
        manifest = dump_manifest(self.wanted)
        return RewardPool.model_validate({**manifest, "spec": {**manifest["spec"], **fields}})

    def _manifest(self, *, replicas: int, drain: int) -> RewardPool:
        spec = {
            "model": {"source": "hf://org/model"},
            "engine": {"name": "vllm", "env": [{"name": "MARK", "value": f"m{next(self._marks)}"}]},
            "worker": {"gpus": 0, "drainSeconds": drain},
            "router": {"requestTimeoutSeconds": 60},
            "replicas": replicas,
        }
        return RewardPool.model_validate({"metadata": {"namespace": KEY[0], "name": KEY[1]}, "spec": spec})

    def _keep_what_was_read(self) -> None:
        """What the supervisor has not read, and never will, is not wanted any more."""
        if asked_for(self.supervisor._pool) != asked_for(self.wanted):
            self.wanted = self.supervisor._pool

    def _write(self, name: str, text: str) -> None:
        """A file as a whole; its time is that of the run, which may be the same to the clock of the disk."""
        new = self.path / f".{name}.new"
        new.write_text(text)
        at = int(self.time.now().timestamp() * 1e9)
        os.utime(new, ns=(at, at))
        new.replace(self.path / name)

    # In place of the kernel.

    async def start(self, *argv: str, env: Mapping[str, str], **_: Any) -> Child:
        """A process that was started."""
        self.check_files()
        name, port = env[ENV_PROCESS].split("/")[2], argv[len(argv) - argv[::-1].index("--port")]
        address = f"{HOST}:{port}"
        key = self.folder.key_file.read_text().strip()
        program: Router | Worker
        if name == router.NAME:
            program = MachineRouter(self.network, name, KEY, address, flavor="sglang-router")
            program.metrics_port = int(argv[argv.index("--prometheus-port") + 1])
            program.admin_key = self.folder.admin_key_file.read_text().strip()
            self.later(self.chance.uniform(0.2, 2.0), self._listen, program)
        else:
            program = Worker(self.network, name, KEY, "", address, lambda: frozenset({key}), self.chance)
            self.later(self.chance.uniform(3.0, 15.0), self._load, program)
        child = Child(self, next(self._pids), env, program)
        self.children[child.pid] = child
        self.note(name, "started as", child.pid)
        return child

    def _listen(self, program: Router) -> None:
        if not program.dead:
            program.listen()

    def _load(self, program: Worker) -> None:
        if not program.dead:
            program.loaded = True
            self.network.endpoints[program.address] = program

    def kill_group(self, pid: int, _: int) -> None:
        child = self.children[pid]
        if child.returncode is not None:
            raise ProcessLookupError(pid)
        self.stopped(child)
        child.end(-signal.SIGKILL)

    def listens(self, pid: int, port: int, *, known: set[int]) -> bool:
        return f"{HOST}:{port}" in self.network.endpoints and self.children[pid].returncode is None

    def port(self, number: int = 0) -> Port:
        return Port(number or next(self._ports))

    def check_files(self, *, reads: bool = False) -> None:
        """Raise what a call for a file comes to now."""
        if self.trouble is not None and not (reads and self.may_read):
            raise self.trouble

    # What must hold.

    def stopped(self, child: Child) -> None:
        """By the supervisor. No worker that serves is stopped while the router has it."""
        program = child.program
        if self._is_ending or child.returncode is not None or not isinstance(program, Worker) or not program.loaded:
            return
        if any(program.url in one.entries for one in self.exposed_routers(KEY)):
            self.violated(f"{child.name} was stopped while the router lists it")

    def exposed_routers(self, _: tuple[str, str]) -> list[Router]:
        found = (one.program for one in self.children.values() if one.returncode is None)
        return [one for one in found if isinstance(one, Router) and one.address in self.network.endpoints]

    def _supervisor_ended(self, task: "asyncio.Task[bool]") -> None:
        if not self._is_ending:
            self.violated(f"the supervisor ended: {None if task.cancelled() else task.exception()!r}")

    def _check_status(self) -> None:
        """No process that ended is called ready, where the status can be written."""
        pool = self.folder.read_pool() if self.trouble is None else None
        alive = {pid for pid, one in self.children.items() if one.returncode is None}
        workers = [] if pool is None else pool.status.workers
        dead = [one.name for one in workers if one.phase == "Ready" and one.pid not in alive]
        self._wrong_since = (self._wrong_since or self.time.monotonic()) if dead else None
        if self._wrong_since is not None and self.time.monotonic() - self._wrong_since > LATE_SECONDS:
            self.violated(f"the status calls {dead} ready, of which no process is left")

    def not_settled(self) -> list[str]:
        """What is not as it was asked for, and what the status does not say."""
        pool, wanted = self.folder.read_pool(), self.wanted.spec.replicas or 0
        if pool is None:
            return ["there is no pool.json"]
        mark = self.wanted.spec.engine.variables["MARK"]
        alive = [one for one in self.children.values() if one.returncode is None and isinstance(one.program, Worker)]
        right = {one.program.url for one in alive if one.env.get("MARK") == mark and one.program.loaded}  # type: ignore[union-attr]
        listed = {url for one in self.exposed_routers(KEY) for url in one.entries}
        degraded = pool.status.condition("Degraded")
        said = degraded.message if degraded is not None and degraded.status == "True" else ""
        found = []
        if listed != right or len(right) != wanted:
            found.append(f"{len(listed & right)} of {wanted} serve {mark}: {said}")
        if self.is_newer != ("cannot be read, the last one holds" in said):
            found.append(f"of the manifest that is wanted it says {said!r}")
        if pool.status.ready_replicas != wanted:
            found.append(f"the status says that {pool.status.ready_replicas} are ready")
        waiting = [since for since in self.trainer.waiting.values() if self.time.monotonic() - since > 120.0]
        return [*found, f"{len(waiting)} samples wait"] if waiting and wanted else found

    # Small things.

    def _begin(self, step: Step) -> None:
        self.note("step", step.kind)
        undo = FAULTS[step.kind](self, random.Random(step.seed))
        if undo is not None:
            self.later(step.seconds, self._end, step, undo)

    def _end(self, step: Step, undo: Callable[[], None]) -> None:
        self.note("end of", step.kind)
        undo()

    def later(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *arguments)

    def _every(self, seconds: float, call: Callable[[], Any]) -> None:
        def again() -> None:
            call()
            self.later(seconds, again)

        self.later(seconds, again)


def _removed(machine: Machine, _: random.Random) -> Undo:
    machine.remove("wanted.json")
    return None


def _log_removed(machine: Machine, chance: random.Random) -> Undo:
    logs = sorted(path.name for path in machine.folder.logs.glob("*.log"))
    if logs:
        machine.remove(f"logs/{chance.choice(logs)}")
    return None


def _newer(machine: Machine, _: random.Random) -> Undo:
    machine.ask_of_a_newer_version()
    return None


def _troubled(number: int, *, may_read: bool) -> Callable[[Machine, random.Random], Undo]:
    def begin(machine: Machine, _: random.Random) -> Undo:
        machine.trouble, machine.may_read = OSError(number, os.strerror(number)), may_read

        def undo() -> None:
            machine.trouble = None

        return undo

    return begin


def _killed(kind: type) -> Callable[[Machine, random.Random], Undo]:
    def begin(machine: Machine, chance: random.Random) -> Undo:
        found = [one for one in machine.children.values() if one.returncode is None and isinstance(one.program, kind)]
        if found:
            chance.choice(found).end(-signal.SIGKILL)
        return None

    return begin


def _scale(machine: Machine, chance: random.Random) -> Undo:
    machine.ask_for(machine.scaled(chance.randint(1, 4)))
    return None


def _edit(machine: Machine, chance: random.Random) -> Undo:
    machine.ask_for(machine.edited())
    return None


FAULTS: Final[Mapping[str, Callable[[Machine, random.Random], Undo]]] = {
    "machine: wanted.json removed": _removed,
    "machine: wanted.json of a newer version": _newer,
    "machine: log removed": _log_removed,
    "machine: too many open files": _troubled(errno.EMFILE, may_read=False),
    "machine: disk full": _troubled(errno.ENOSPC, may_read=True),
    "machine: worker killed": _killed(Worker),
    "machine: router killed": _killed(Router),
    "machine: scaled": _scale,
    "machine: edited": _edit,
}


@contextmanager
def _simulated(machine: Machine) -> Iterator[None]:
    """Have the machine in the place of the kernel and the network."""
    read, write = folder_module._read, folder_module.write_private

    def reads(*arguments: Any) -> Any:
        machine.check_files(reads=True)
        return read(*arguments)

    def writes(*arguments: Any) -> None:
        machine.check_files()
        write(*arguments)

    http = SimpleNamespace(
        TCPConnector=lambda **_: None, ClientSession=lambda **_: MachineSession(machine.network, "supervisor")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_module, "_read", reads)
        patch.setattr(folder_module, "write_private", writes)
        patch.setattr(asyncio, "create_subprocess_exec", machine.start)
        patch.setattr(os, "killpg", machine.kill_group)
        patch.setattr(process, "marked", lambda _: [])
        patch.setattr(supervised_process, "check_listens", machine.listens)
        patch.setattr(supervisor, "aiohttp", http)
        for module in (launching, router):
            patch.setattr(module, "HeldPort", machine.port)
        yield


class _Heard(logging.Handler):
    """The supervisor's log is a part of the history; a traceback in it is a defect."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def emit(self, record: logging.LogRecord) -> None:
        self._machine.note(record.levelname.lower(), record.getMessage().partition("\n")[0])
        if record.levelno >= logging.ERROR or record.exc_info:
            self._machine.violated(f"the supervisor's log: {record.getMessage()}")


@contextmanager
def _heard(machine: Machine, package: str) -> Iterator[None]:
    """Have what a package logs in the machine's history alone."""
    logger, heard = logging.getLogger(package), _Heard(machine)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(heard)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(heard)
        logger.setLevel(level)
        logger.propagate = propagates


def run(seed: int, steps: tuple[Step, ...] | None = None) -> Outcome:
    """Run the seed, with its own steps or with these."""
    with TemporaryDirectory() as path, VirtualTime(seed=seed, packages=PACKAGES) as time:
        chance = random.Random(time.chance.getrandbits(64))
        planned = drawn(chance, [*FAULTS], seconds=EVENTFUL_SECONDS, count=chance.randint(2, STEPS))
        machine = Machine(time, Path(path, *KEY), planned if steps is None else steps)
        try:
            with _simulated(machine), _heard(machine, "rewardpool_local"), _heard(machine, "rewardpool_operator"):
                time.run(machine.live())
        except (DeadlockError, LivelockError) as error:
            machine.violated(f"{type(error).__name__}: {error}")
        return machine.outcome(seed)
