"""Checks of this machine for `rewardpool up`."""

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rewardpool._client.connections import open_files
from rewardpool.errors import SandboxError, SandboxUnavailableError
from rewardpool.sandbox.probe import reached
from rewardpool_api import names
from rewardpool_api.pool import RouterSpec
from rewardpool_cli.doctor.finding import Finding, Place, State
from rewardpool_cli.doctor.runner import Check
from rewardpool_local import machine
from rewardpool_local.folder import PoolFolder, StateUnreadableError, all_folders
from rewardpool_local.gpu_shares import owners_of
from rewardpool_local.gpus import VISIBLE, Gpu, GpusUnreadableError, choose_visible
from rewardpool_local.gpus import find as find_gpus
from rewardpool_local.process import marked
from rewardpool_operator.routers.programs import PROGRAMS
from rewardpool_runtime.guard.attempts import OF_POLICY_CODE
from rewardpool_runtime.guard.kernel import LEAST_LANDLOCK, landlock_version
from rewardpool_runtime.listeners import HOST, HeldPort
from rewardpool_runtime.state_files import state_dir
from rewardpool_worker.engines.engine import engine_for

PROGRAM_SECONDS: Final = 15.0  # interpreters and nvidia-smi start slowly where a disk or a driver is cold
FILE_SECONDS: Final = 5.0
SPARE_SECONDS: Final = 1.0
ENGINES: Final = ("vllm", "sglang", "transformers")
IN_FLIGHT: Final = 1024  # a burst of rollouts of one process


def checks(environ: Mapping[str, str]) -> list[Check]:
    """All of this machine, in the order of the screen."""
    programs, files = PROGRAM_SECONDS + SPARE_SECONDS, FILE_SECONDS

    def check(name: str, run: Callable[[], Sequence[Finding]], seconds: float, *, essential: bool = False) -> Check:
        return Check(place="machine", name=name, run=run, seconds=seconds, essential=essential)

    return [
        check("rewardpool", _look_at_program, files),
        check("server python", partial(_look_at_server, environ), programs, essential=True),
        check("GPUs", partial(_look_at_gpus, environ), programs),
        check("ports", _look_at_ports, files, essential=True),
        check("state folder", partial(_look_at_state_folder, environ), files, essential=True),
        check("local pools", partial(_look_at_pools, environ), files),
        check("open files", _look_at_open_files, files),
        check("sandbox", _look_at_sandbox, programs),
    ]


def kubectl_check(environ: Mapping[str, str]) -> Check:
    """The program that shows pools to people; the command line itself does without."""
    return Check(
        place="cluster", name="kubectl", run=partial(_check_kubectl, environ), seconds=FILE_SECONDS + SPARE_SECONDS
    )


def server_lines(python: str, seen: machine.Interpreter) -> list[Finding]:
    """The interpreter that has engines and routers, and what it has of them."""
    default = RouterSpec().flavor
    packages = {flavor: program.package for flavor, program in PROGRAMS.items()}
    has_router = any(package in seen.modules for package in packages.values())
    lines = [_line("server python", "ok", f"{python}, Python {seen.python}")]
    for flavor, package in packages.items():
        lines.append(
            _package_line(f"router {flavor}", python, [package], seen, essential=flavor == default and not has_router)
        )
    # Only models need engines, so none of them is essential.
    return lines + [_package_line(f"engine {engine}", python, engine_for(engine).packages, seen) for engine in ENGINES]


def _package_line(
    name: str, python: str, modules: Sequence[str], seen: machine.Interpreter, *, essential: bool = False
) -> Finding:
    missing = [module for module in modules if module not in seen.modules]
    if not missing:
        versions = ", ".join(f"{module} {seen.modules[module]}".strip() for module in modules)
        return _line(name, "ok", versions)
    found = f"{python} has no {' and no '.join(missing)}"
    return _line(name, "missing", found, machine.installation(python, missing), essential=essential)


def gpus_line(gpus: Sequence[Gpu] | None, owners: Mapping[str, str]) -> Finding:
    """The GPUs that pools may have, and which of them no pool has.

    Args:
        gpus: None where there is no nvidia-smi.
        owners: the pools that have any, by the GPU's uuid.
    """
    if not gpus:
        found = "no nvidia-smi on the PATH" if gpus is None else f"nvidia-smi and {VISIBLE} leave none"
        remedy = "none is needed for functions and on CPUs; for a GPU install NVIDIA's driver"
        return _line("GPUs", "missing", found, remedy if gpus is None else f"{remedy}, and look at {VISIBLE}")
    free = [gpu.name for gpu in gpus if gpu.uuid not in owners]
    taken = [f"GPU {gpu.name} is {owners[gpu.uuid]}'s" for gpu in gpus if gpu.uuid in owners]
    found = "; ".join([f"{len(gpus)}, of which no pool has {', '.join(free) or 'none'}", *taken])
    if free:
        return _line("GPUs", "ok", found)
    stop = " · ".join(f"`rewardpool down {owner}`" for owner in sorted(set(owners.values())))
    return _line("GPUs", "warning", found, f"stop a pool that is not needed: {stop}")


def pools_lines(running: Sequence[str], left: Mapping[str, int], unreadable: Mapping[str, str]) -> list[Finding]:
    """The pools of this machine.

    Args:
        running: `namespace/name at URL` of those that run.
        left: processes that a killed supervisor left, by pool.
        unreadable: folders whose state cannot be read, with the reason.
    """
    if not left and not unreadable:
        return [_line("local pools", "ok", f"running: {', '.join(running) or 'none'}; nothing is left of others")]
    lines = [
        _line(
            "local pools",
            "warning",
            f"{pool} died and left {count} process{'es' * (count != 1)}",
            f"`rewardpool down {pool}` ends them, `rewardpool up` starts the pool again",
        )
        for pool, count in left.items()
    ]
    return lines + [
        _line("local pools", "warning", f"{path}: {why}", f"another version wrote it, or a full disk: remove {path}")
        for path, why in unreadable.items()
    ]


def open_files_line(soft: int, hard: int) -> Finding:
    """The limit of open files. Clients and routers raise the soft one themselves, so the hard one counts."""
    unlimited = resource.RLIM_INFINITY
    need = open_files.needed(IN_FLIGHT, hedge=True)
    found = f"{_limit(soft)}, and up to {_limit(hard)} for who asks"
    if hard == unlimited or hard >= need:
        return _line("open files", "ok", found)
    return _line(
        "open files",
        "warning",
        found,
        f"{IN_FLIGHT:,} requests in flight need {need:,}: `ulimit -Hn {need}` as root, or LimitNOFILE= of the service",
    )


def sandbox_line(reached: Sequence[str], landlock: int) -> Finding:
    """Return what code in a sandbox reaches here.

    Args:
        landlock: version of the kernel's.
    """
    if reached:
        found = f"code that a policy wrote reaches {', '.join(reached)}"
        return _line("sandbox", "failed", found, "run no such code here, and report the kernel with this line")
    tried = ", ".join(OF_POLICY_CODE)
    guard = f"Landlock {landlock}" if landlock >= LEAST_LANDLOCK else "user and mount namespaces"
    return _line("sandbox", "ok", f"{guard} and seccomp; tried and refused: {tried}")


def _limit(number: int) -> str:
    return "no limit" if number == resource.RLIM_INFINITY else f"{number:,}"


def _look_at_program() -> list[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    return [_line("rewardpool", "ok", f"{version('rewardpool')}, Python {python} ({sys.executable})")]


def _look_at_server(environ: Mapping[str, str]) -> list[Finding]:
    python = machine.server_python(environ)
    modules = [program.package for program in PROGRAMS.values()]
    modules += [package for engine in ENGINES for package in engine_for(engine).packages]
    try:
        seen = machine.interpreter(python, modules, environ, seconds=PROGRAM_SECONDS)
    except machine.NotStartableError as error:
        remedy = f"set {names.ENV_SERVER_PYTHON} to a Python that has the router, or unset it for {sys.executable}"
        return [_line("server python", "failed", str(error), remedy, essential=True)]
    return server_lines(python, seen)


def _look_at_gpus(environ: Mapping[str, str]) -> list[Finding]:
    try:
        found = find_gpus(environ, seconds=PROGRAM_SECONDS)
        visible = choose_visible(found, environ.get(VISIBLE))
    except GpusUnreadableError as error:
        return [_line("GPUs", "failed", str(error), "`nvidia-smi` by hand shows the same; pools of CPUs run without")]
    owners = owners_of(visible, environ, shared=False)
    return [gpus_line(visible if visible or found is not None else None, owners)]


def _look_at_ports() -> list[Finding]:
    try:
        HeldPort().release()
    except OSError as error:
        remedy = "routers and workers listen there: bring the loopback interface up (`ip link set lo up`)"
        return [_line("ports", "failed", f"no port of {HOST} can be had: {error}", remedy, essential=True)]
    return [_line("ports", "ok", f"{HOST} has free ones")]


def _look_at_state_folder(environ: Mapping[str, str]) -> list[Finding]:
    folder = state_dir(environ)
    # Where it is not made yet, `rewardpool up` makes it below what there is.
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"written")
    except OSError as error:
        remedy = f"make {folder} writable for you, or set {names.ENV_STATE_DIR} to another folder"
        return [_line("state folder", "failed", f"{there}: {error.strerror}", remedy, essential=True)]
    return [_line("state folder", "ok", f"{folder}{'' if there == folder else ' (made when a pool starts)'}")]


def _look_at_pools(environ: Mapping[str, str]) -> list[Finding]:
    running: list[str] = []
    left: dict[str, int] = {}
    unreadable: dict[str, str] = {}
    for folder in all_folders(environ):
        try:
            pool = folder.read_pool()
            if folder.is_supervised():
                running.append(f"{folder.pool_key} at {(pool.status.url if pool else None) or 'no URL yet'}")
            elif count := _left_processes(folder):
                left[folder.pool_key] = count
        except (OSError, StateUnreadableError, ValueError, TypeError) as error:
            unreadable[str(folder.path)] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return pools_lines(running, left, unreadable)


def _left_processes(folder: PoolFolder) -> int:
    record = folder.read_supervisor()
    return 0 if record is None else len(marked(f"/{record.run_id}/"))


def _look_at_open_files() -> list[Finding]:
    return [open_files_line(*resource.getrlimit(resource.RLIMIT_NOFILE))]


def _look_at_sandbox() -> list[Finding]:
    remedy = "functions that run no code of a policy's need none; for those that do see docs/sandbox.md, What does not"
    try:
        return [sandbox_line(reached(), landlock_version())]
    except SandboxUnavailableError as error:
        return [_line("sandbox", "missing", str(error), remedy)]
    except SandboxError as error:
        return [_line("sandbox", "failed", str(error), remedy)]


def _check_kubectl(environ: Mapping[str, str]) -> list[Finding]:
    program = shutil.which("kubectl", path=environ.get("PATH"))
    remedy = "install it (https://kubernetes.io/docs/tasks/tools/); `rewardpool` itself works without"
    if program is None:
        return [_line("kubectl", "missing", "not on the PATH", remedy, place="cluster")]
    try:
        said = subprocess.run(
            [program, "version", "--client", "--output=json"],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=FILE_SECONDS,
            check=True,
        )
        client = json.loads(said.stdout)["clientVersion"]["gitVersion"]
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return [_line("kubectl", "failed", f"{program}: {error}", remedy, place="cluster")]
    plugin = shutil.which("kubectl-rewardpool", path=environ.get("PATH"))
    if plugin is None:
        add = f"put {Path(sys.executable).parent} on the PATH for `kubectl rewardpool`; `rewardpool` works without"
        return [_line("kubectl", "warning", f"{client}, without the plugin kubectl-rewardpool", add, place="cluster")]
    return [_line("kubectl", "ok", f"{client}, with the plugin", place="cluster")]


def _line(
    name: str, state: State, found: str, remedy: str = "", *, essential: bool = False, place: Place = "machine"
) -> Finding:
    return Finding(place=place, name=name, state=state, found=found, remedy=remedy, essential=essential)
