"""LocalMachine: the real command line on a state folder of the test's own, with reward functions as engines.

Leaving `local_machine` ends every process that the pools started, and fails the test when one was left after all pools
were down.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.fleet import eventually, server_python
from support.patience import PATIENCE
from support.stand_in_nvidia_smi import stand_in_nvidia_smi

from rewardpool_api import RewardPool, names
from rewardpool_local.folder import PoolFolder, folder_of
from rewardpool_local.process import ENV_PROCESS

POOL = "rl/length"
UP_SECONDS = 40 * PATIENCE
COMMAND_SECONDS = UP_SECONDS + 20

FUNCTIONS = """
import asyncio, os, subprocess, time

time.sleep(float(os.environ.get("START_SECONDS", "0")))
if "LEAVE_A_CHILD" in os.environ:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
if "EXIT_AT_ONCE" in os.environ:
    raise RuntimeError("the weights are gone")

async def length(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(extra_info.get("seconds", 0.02))
    return len(solution_str)
"""


class LocalMachine:
    """A machine for one test, seen by one of its pools."""

    def __init__(self, folder: Path, *, pool: str = POOL) -> None:
        self.home = folder
        self.pool_key = pool
        (folder / "functions.py").write_text(FUNCTIONS)
        self.environ = {
            **os.environ,
            names.ENV_STATE_DIR: str(folder / "state"),
            names.ENV_SERVER_PYTHON: server_python(),
        }
        self._commands: list[subprocess.Popen[str]] = []

    def manifest(self, **spec: Any) -> Path:
        """A manifest of a pool of a reward function; `spec` is merged over it."""
        body = {
            "model": {"source": "python://functions:length"},
            "worker": {"gpus": 0, "drainSeconds": 10},
            **spec,
        }
        namespace, _, name = self.pool_key.partition("/")
        text = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": body,
        }
        path = self.home / "pool.yaml"
        path.write_text(json.dumps(text))  # JSON is YAML
        return path

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start `rewardpool` with these arguments."""
        command = [str(Path(sys.executable).with_name("rewardpool")), *map(str, arguments)]
        process = subprocess.Popen(
            command, cwd=self.home, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._commands.append(process)
        return process

    async def run(self, *arguments: str | Path) -> tuple[int, str]:
        """Run `rewardpool` with these arguments; returns its exit code and all it printed."""
        return await finish(self.start(*arguments))

    async def up(self, **spec: Any) -> str:
        """Bring the pool up in the background; returns what was printed."""
        code, said = await self.run("up", "-f", self.manifest(**spec), "--detach", "--wait-seconds", str(UP_SECONDS))
        assert code == 0, said
        return said

    def give_gpus(self, number: int) -> None:
        """Have a stand-in for nvidia-smi on the path, which says that there are so many GPUs."""
        programs = self.home / "programs"
        stand_in_nvidia_smi(programs, [f"{index}, GPU-{index}" for index in range(number)])
        self.environ["PATH"] = f"{programs}{os.pathsep}{self.environ['PATH']}"

    def gpus(self) -> list[str]:
        """CUDA_VISIBLE_DEVICES of each worker's process, of all pools of this machine."""
        workers = [process.environ() for process in self.processes()]
        marks = {environ[ENV_PROCESS]: environ.get("CUDA_VISIBLE_DEVICES", "") for environ in workers}
        return [marks[mark] for mark in marks if "/worker" in mark]

    @property
    def folder(self) -> PoolFolder:
        return folder_of(self.pool_key, self.environ)

    def pool(self) -> RewardPool:
        """The object as `rewardpool status` sees it."""
        pool = self.folder.read_pool_as_it_is()
        assert pool is not None
        return pool

    def supervisor(self) -> psutil.Process:
        record = self.folder.read_supervisor()
        assert record is not None
        return psutil.Process(record.pid)

    def processes(self) -> list[psutil.Process]:
        """Everything that pools of this machine started, wherever it went."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def router(self) -> psutil.Process:
        """The router's process."""
        (found,) = [process for process in self.processes() if "/router/" in process.environ()[ENV_PROCESS]]
        return found

    def worker(self) -> psutil.Process:
        """The process of one of its workers."""
        return next(process for process in self.processes() if "/worker" in process.environ()[ENV_PROCESS])

    async def serves(self, replicas: int) -> None:
        """Wait until exactly so many replicas serve, and nothing else is there."""

        async def so_many() -> bool:
            if self.folder.read_pool() is None:
                return False
            status = self.pool().status
            phases = [worker.phase for worker in status.workers]
            return status.ready_replicas == replicas and phases == ["Ready"] * replicas

        await eventually(so_many, what=f"{replicas} replicas serve", seconds=40)

    def clean_up(self) -> list[str]:
        """End all that is left; returns the command lines of what the pools should have ended themselves."""
        for command in self._commands:
            if command.poll() is None:
                command.send_signal(signal.SIGTERM)
                command.wait(COMMAND_SECONDS)
        if self.folder.is_supervised():
            supervisor = self.supervisor()
            supervisor.terminate()
            psutil.wait_procs([supervisor], timeout=COMMAND_SECONDS)
        left = self.processes()
        lines = [" ".join(process.cmdline()) for process in left]
        for process in left:
            process.kill()
        return lines

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            environ = process.environ()
        except psutil.Error:
            return False
        admin_key, key = environ.get(names.ENV_ADMIN_KEY_FILE, ""), environ.get(names.ENV_KEY_FILE, "")
        return ENV_PROCESS in environ and str(self.home) in admin_key + key


async def finish(command: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a command; returns its exit code and all it printed."""
    said, _ = await asyncio.to_thread(command.communicate, timeout=COMMAND_SECONDS)
    return command.returncode, said


@contextmanager
def local_machine(folder: Path, **options: Any) -> Iterator[LocalMachine]:
    """A machine in a folder, cleaned up at the end; fails when its pools left a process behind.

    Args:
        folder: Of the machine alone.
        options: Of LocalMachine.
    """
    here = LocalMachine(folder, **options)
    left: list[str] = []
    try:
        yield here
    finally:
        left = here.clean_up()
    assert left == [], "the pools left processes behind"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LocalMachine]:
    """A machine in the test's folder."""
    with local_machine(tmp_path) as here:
        yield here


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMachine]:
    """A machine for those tests of a module that leave its pool serving: for the next one `up` has less to do."""
    with local_machine(tmp_path_factory.mktemp("machine")) as here:
        yield here
