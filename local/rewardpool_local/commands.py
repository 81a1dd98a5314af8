"""Commands for a pool on one machine: bring it up, change it, take it down, forget it.

A pool that runs belongs to its supervisor, so each of these is a message to it (a new `wanted.json`, a signal) or, when
there is none, the start of one.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from rewardpool_api import RewardPool, RewardPoolStatus, dump_manifest, names
from rewardpool_api.reasons import NEVER_STARTS, NOTHING_WANTED, ConditionReason
from rewardpool_api.times import rfc3339
from rewardpool_local.folder import STARTING, PoolFolder, annotated, asked_for, folder_of, stopped
from rewardpool_local.function_code import FunctionCode
from rewardpool_local.gpus import VISIBLE
from rewardpool_local.machine import (
    NotStartableError,
    check,
    check_gpus,
    check_runtime,
    check_variables,
    folders_of,
    server_python,
    with_code,
)
from rewardpool_local.process import importing_safely, kill_all
from rewardpool_local.supervisor import Supervisor, SupervisorSettings, kill_leftovers

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.3
STOP_SECONDS = 30.0
_FAILED = (ConditionReason.DEADLINE_EXCEEDED, ConditionReason.ROLLED_BACK, *NEVER_STARTS)
_OF_REVISION = (names.ANNOTATION_CODE, names.ANNOTATION_FOLDERS, names.ANNOTATION_RESTARTED_AT)


class NotRunningError(RuntimeError):
    """The pool does not run."""


@dataclass(frozen=True)
class Up:
    """A declared pool, and the process that brings it up."""

    folder: PoolFolder
    wanted: RewardPool
    background: subprocess.Popen[bytes] | None = None
    """The supervisor that was started for it; None when one ran already."""

    def has_ended(self) -> bool:
        if self.background is not None:
            return self.background.poll() is not None
        return not self.folder.is_supervised()


def prepare(pool: RewardPool, project: Path, *, port: int | None, environ: Mapping[str, str]) -> PoolFolder:
    """Check what the pool needs and end what a killed supervisor left of it.

    Args:
        project: the folder that it is in.
        port: of the router; None for a free one.

    Raises:
        NotStartableError: it cannot run here.
        AlreadyRunningError: another process started it just now.
    """
    check(pool, port=port, environ=environ)
    pool, code = with_code(pool, project, environ)
    folder = folder_of(pool.key, environ)
    folder.create()
    with folder.supervised():
        killed = kill_leftovers(folder)
        if killed:
            log.warning("ended %d processes that a killed supervisor had left: %s", len(killed), _listed(killed))
        before = folder.read_pool()
        _declare(folder, _next_generation(pool, before), code)
        folder.write_pool(stopped(_next_generation(pool, before), reason=STARTING, message="it is being started"))
    return folder


def supervise(folder: PoolFolder, *, port: int | None, give_up_seconds: float | None, asked_at: float | None) -> bool:
    """Run the pool in this process until a signal stops it; returns False when no worker became ready.

    Raises:
        AlreadyRunningError: another process started it just now.
    """
    return asyncio.run(supervise_async(folder, port=port, give_up_seconds=give_up_seconds, asked_at=asked_at))


async def supervise_async(
    folder: PoolFolder, *, port: int | None, give_up_seconds: float | None, asked_at: float | None
) -> bool:
    """As `supervise`, beside other tasks of the same loop."""
    python = server_python(os.environ)
    settings = SupervisorSettings(python=python, port=port, give_up_seconds=give_up_seconds, asked_at=asked_at)
    with folder.supervised():
        wanted = folder.read_wanted()
        if wanted is None:
            raise NotStartableError(f"{folder.path} has no wanted.json: start the pool with `rewardpool up`")
        return await Supervisor(folder, wanted, settings, os.environ).run()


def start_in_background(
    folder: PoolFolder, *, port: int | None, give_up_seconds: float | None, asked_at: float | None
) -> Up:
    """Start a supervisor that outlives this process and its terminal."""
    wanted = folder.read_wanted()
    if wanted is None:
        raise NotStartableError(f"{folder.path} has no wanted.json: start the pool with `rewardpool up`")
    command = [sys.executable, "-m", "rewardpool_local", str(folder.path)]
    command += ["--port", str(port)] if port is not None else []
    command += ["--give-up-seconds", str(give_up_seconds)] if give_up_seconds is not None else []
    # The clock is the machine's, the same one in every process.
    command += ["--asked-at", str(asked_at)] if asked_at is not None else []
    with (folder.logs / "supervisor.log").open("wb") as output:
        process = subprocess.Popen(
            command,
            env=importing_safely(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Up(folder, wanted, process)


def hand_over(
    pool: RewardPool, project: Path, folder: PoolFolder, *, port: int | None = None, environ: Mapping[str, str]
) -> Up | None:
    """Give a changed manifest, or the changed code of its function, to the pool's running supervisor.

    Args:
        project: the folder that it is in.
        port: that its router shall have; None for the one that it has.

    Returns:
        None when nothing changed.

    Raises:
        NotStartableError: the change cannot be made while the pool runs, or the pool that runs is another project's.
    """
    running = folder.read_wanted()
    if running is not None:
        _check_project(running, project)
        restarted_at = running.metadata.annotations.get(names.ANNOTATION_RESTARTED_AT)
        pool = annotated(pool, {names.ANNOTATION_RESTARTED_AT: restarted_at})
    _check_port_of_running(folder, port)
    pool, code = with_code(pool, project, environ)
    if running is not None and asked_for(running) == asked_for(pool):
        return None
    if running is not None and running.spec.router.auth.mode != pool.spec.router.auth.mode:
        raise NotStartableError(
            "spec.router.auth.mode cannot change while the pool runs, since the workers that serve now would refuse"
            f" everybody: `rewardpool down {pool.key}` first"
        )
    check_variables(pool)
    check_runtime(pool)
    _check_gpus_of_running(pool, folder)
    _declare(folder, pool, code)
    return Up(folder, pool)


def restart(folder: PoolFolder, environ: Mapping[str, str]) -> Up:
    """Ask a running pool for new workers of the same manifest, with the code that its function has now.

    Raises:
        NotRunningError: it does not run.
        NotStartableError: its function is not there any more.
    """
    running = _running(folder)
    project, *_ = folders_of(running) or (Path.cwd(),)
    pool, code = with_code(running, project, environ)
    pool = annotated(pool, {names.ANNOTATION_RESTARTED_AT: rfc3339(datetime.now(UTC))})
    _declare(folder, pool, code)
    return Up(folder, pool)


def roll_back(folder: PoolFolder, revision: str) -> Up | None:
    """Ask a running pool for what an earlier revision was made of: its function's code, and those parts of its spec.

    Returns:
        None where that was declared last.

    Raises:
        NotRunningError: it does not run.
        NotStartableError: the revision is not kept any more, or there are too few GPUs for it.
    """
    running = _running(folder)
    # The lock: the code of a revision that is kept now is not removed before it is asked for.
    with folder.code.locked():
        revisions = folder.read_revisions()
        if revision not in revisions:
            kept = ", ".join(sorted(revisions)) or "none"
            raise NotStartableError(f"revision {revision} of {running.key} is not kept any more; there are: {kept}")
        earlier = revisions[revision]
        parts = {part: getattr(earlier.spec, part) for part in names.REVISION_PARTS}
        pool = running.model_copy(update={"spec": running.spec.model_copy(update=parts)})
        pool = annotated(pool, {name: earlier.metadata.annotations.get(name) for name in _OF_REVISION})
        pool = RewardPool.model_validate(dump_manifest(pool))
        if asked_for(pool) == asked_for(running):
            return None
        _check_gpus_of_running(pool, folder)
        folder.write_wanted(pool)
    return Up(folder, pool)


def scale(folder: PoolFolder, replicas: int) -> Up:
    """Ask a running pool for another number of replicas.

    Raises:
        NotRunningError: it does not run.
        NotStartableError: there are too few GPUs for so many.
        ValidationError: the manifest does not take a number of replicas.
    """
    manifest = dump_manifest(_running(folder))
    manifest["spec"]["replicas"] = replicas
    changed = RewardPool.model_validate(manifest)
    _check_gpus_of_running(changed, folder)
    folder.write_wanted(changed)
    return Up(folder, changed)


def down(folder: PoolFolder, *, on_progress: Callable[[str], None]) -> None:
    """Stop a pool: its requests in flight finish, nothing of it is left.

    Args:
        on_progress: gets a line about what is waited for.

    Raises:
        NotRunningError: it does not run, and nothing was left of it.
    """
    if not folder.is_supervised():
        with folder.supervised():
            killed = kill_leftovers(folder)
            pool = folder.read_pool_as_it_is()
            if pool is not None:
                folder.write_pool(stopped(pool, reason="Stopped", message="it was stopped"))
        if not killed:
            raise NotRunningError(f"{folder.pool_key} does not run")
        on_progress(f"ended {len(killed)} processes that a killed supervisor had left: {_listed(killed)}")
        return
    record = folder.read_supervisor()
    if record is None:
        raise NotRunningError(f"{folder.pool_key} is just being started or stopped; try again in a moment")
    pool = folder.read_pool()
    drain_seconds = pool.spec.worker.drain_seconds if pool else 0
    on_progress(f"{folder.pool_key} finishes what is in flight, for up to {drain_seconds} s")
    os.kill(record.pid, signal.SIGTERM)
    if not _wait_until(lambda: not folder.is_supervised(), drain_seconds + STOP_SECONDS):
        on_progress(f"its supervisor, process {record.pid}, does not end and is killed")
        kill_all([psutil.Process(record.pid)])
        with folder.supervised():
            kill_leftovers(folder)


def delete(folder: PoolFolder) -> None:
    """Remove all that is kept of a stopped pool: its status, keys, logs and files.

    Raises:
        AlreadyRunningError: it runs, or was started just now.
    """
    # Nobody starts it meanwhile; what a killed supervisor left would be found by nobody afterwards.
    with folder.supervised():
        killed = kill_leftovers(folder)
        if killed:
            log.warning("ended %d processes that a killed supervisor had left: %s", len(killed), _listed(killed))
        folder.remove()


def is_settled(up: Up) -> bool:
    """Return whether the pool is as declared: the wanted replicas serve, or none are, and nothing is changing."""
    status = _status_of(up)
    serving, changing = status.condition("Serving"), status.condition("Progressing")
    if serving is None or changing is None or changing.status == "True" or changing.reason in _FAILED:
        return False
    return serving.status == "True" or serving.reason in NOTHING_WANTED


def has_failed(up: Up) -> bool:
    """Return whether the pool stopped trying: its supervisor is gone, or the rollout failed."""
    changing = _status_of(up).condition("Progressing")
    return up.has_ended() or (changing is not None and changing.reason in _FAILED)


def failed_before(folder: PoolFolder) -> bool:
    """Return whether the pool has stopped trying what was declared last."""
    wanted = folder.read_wanted()
    return wanted is not None and has_failed(Up(folder, wanted))


def _status_of(up: Up) -> RewardPoolStatus:
    """Return the pool's status; an empty one as long as it is about another manifest than the declared one."""
    pool = up.folder.read_pool()
    if (
        pool is None
        or asked_for(pool) != asked_for(up.wanted)
        or pool.status.observed_generation != pool.metadata.generation
    ):
        return RewardPoolStatus()
    return pool.status


def _running(folder: PoolFolder) -> RewardPool:
    wanted = folder.read_wanted()
    if wanted is None or not folder.is_supervised():
        raise NotRunningError(f"{folder.pool_key} does not run; start it with `rewardpool up`")
    return wanted


def _declare(folder: PoolFolder, pool: RewardPool, code: FunctionCode | None) -> None:
    with folder.code.locked():
        if code is not None:
            folder.code.keep(code, folders_of(pool))
        folder.write_wanted(pool)


def other_project(pool: RewardPool | None, project: Path) -> Path | None:
    """Return the folder of the pool's manifest; None where that is this one, or is not known."""
    folders = folders_of(pool) if pool is not None else ()
    return folders[0] if folders and folders[0] != project else None


def _check_project(running: RewardPool, project: Path) -> None:
    if (other := other_project(running, project)) is not None:
        raise NotStartableError(
            f"metadata.name: {running.key} runs already for the manifest in {other}, and this one is in {project}:"
            f" give this pool another name or namespace, or stop the other by `rewardpool down {running.key}` first"
        )


def _check_port_of_running(folder: PoolFolder, port: int | None) -> None:
    pool = folder.read_pool()
    url = pool.status.url if pool is not None else None
    if port is not None and url is not None and urlsplit(url).port != port:
        raise NotStartableError(
            f"--port {port} cannot be had while the pool runs: its router is at {url}, and trainers that use it know no"
            f" other address; `rewardpool down {folder.pool_key}` first"
        )


def _check_gpus_of_running(pool: RewardPool, folder: PoolFolder) -> None:
    """Check that the pool's supervisor finds GPUs for the change: it has another environment than this command."""
    environ = {name: value for name, value in os.environ.items() if name != VISIBLE}
    record = folder.read_supervisor()
    if record is not None and record.cuda_visible_devices is not None:
        environ[VISIBLE] = record.cuda_visible_devices
    check_gpus(pool, environ)


def _next_generation(pool: RewardPool, before: RewardPool | None) -> RewardPool:
    generation = 1
    if before is not None:
        generation = before.metadata.generation + (asked_for(before) != asked_for(pool))
    metadata = pool.metadata.model_copy(update={"generation": generation})
    return pool.model_copy(update={"metadata": metadata, "status": RewardPoolStatus()})


def _wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _listed(pids: list[int]) -> str:
    return ", ".join(str(pid) for pid in pids)
