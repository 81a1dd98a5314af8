"""Attempts at what processes should not reach: only they show what a kernel, a runtime or a pod's profile lacks."""

import contextlib
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from rewardpool_runtime.guard import function, policy_code
from rewardpool_runtime.guard.function import Boundary

OF_POLICY_CODE: Final = {
    "a file": "def file(folder): return open(folder + '/secret').read()",
    "writing": "def writing(folder): return open(folder + '/written', 'w').write('x')",
    "a socket": "def socket(_): return __import__('socket').socket().fileno()",
    "a Unix socket": "def unix_socket(_): return __import__('socket').socket(1).fileno()",
    "another process's environment": "def environ(_): return len(open(f'/proc/{os.getppid()}/environ').read())",
    "a process of its own": (
        "def fork(_):\n    pid = os.fork()\n    return os._exit(0) if pid == 0 else os.waitpid(pid, 0)[0]"
    ),
}
"""Attempts of code that a policy wrote: functions of a folder with a secret, which return something on success."""

_DEADLINE_SECONDS: Final = 10.0
_PREFIX: Final = "rewardpool-probe-"
_LIMITS: Final = policy_code.Limits(cpu_seconds=5.0, memory_bytes=64 << 20)
Attempts = Mapping[str, Callable[[], object]]


def name_of(attempt: str) -> str:
    """Return the name of an attempt's function."""
    return attempt.removeprefix("def ").partition("(")[0]


def reached(boundary: Boundary, *, server: int) -> list[str]:
    """Return in words what a function's process reaches though it should not, and what code in a sandbox would.

    For a process of one thread that has entered the boundary. Nothing is harmed by it.

    Args:
        boundary: What the processes are kept from.
        server: Id of the process that has the key.

    Raises:
        OSError: It cannot be tried: no process or no folder may be made.
    """
    with _neighbour() as neighbour:
        found = _tried_in_a_process(lambda: _reached_by_function(boundary, server, neighbour), "the function")
    parent = os.getpid()
    with _folder() as folder:
        found += _tried_in_a_process(lambda: _reached_by_policy_code(folder, parent), "code in a sandbox")
    lacks = policy_code.missing()
    return [f"this machine lacks {lacks}", *found] if found and lacks is not None else found


def _reached_by_function(boundary: Boundary, server: int, neighbour: int) -> list[str]:
    function.part()
    attempts: dict[str, Callable[[], object]] = {
        "the server's environment": lambda: Path(f"/proc/{server}/environ").read_bytes(),
        "the server's memory": lambda: os.close(os.open(f"/proc/{server}/mem", os.O_RDONLY)),
        "another call's environment": lambda: Path(f"/proc/{neighbour}/environ").read_bytes(),
        "another call's memory": lambda: os.close(os.open(f"/proc/{neighbour}/mem", os.O_RDONLY)),
    }
    if boundary.key_file:
        attempts |= {"the pool's key": lambda: Path(boundary.key_file).read_bytes()}
    if not boundary.network:
        attempts |= {"a socket": lambda: __import__("socket").socket().fileno()}
    return _succeeded(attempts)


def _reached_by_policy_code(folder: str, parent: int) -> list[str]:
    policy_code.restrict(_LIMITS, parent=parent)
    names: dict[str, Callable[[str], object]] = {}
    exec("\n".join(["import os", *OF_POLICY_CODE.values()]), names)  # noqa: S102 - these lines of our own
    return _succeeded({what: _bound(names[name_of(attempt)], folder) for what, attempt in OF_POLICY_CODE.items()})


def _bound(attempt: Callable[[str], object], folder: str) -> Callable[[], object]:
    return lambda: attempt(folder)


def _succeeded(attempts: Attempts) -> list[str]:
    found = []
    for what, attempt in attempts.items():
        with contextlib.suppress(Exception):  # refused, in whatever way
            attempt()
            found.append(what)
    return found


@contextlib.contextmanager
def _neighbour() -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            function.part()
            time.sleep(_DEADLINE_SECONDS)
        os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _tried_in_a_process(attempts: Callable[[], list[str]], whose: str) -> list[str]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.write(write, json.dumps(_reached_or_error(attempts)).encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], _DEADLINE_SECONDS)
        answer = os.read(read, select.PIPE_BUF) if ready else b""
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not answer:
        return [f"{whose} was not found to reach nothing: the process that tries it gave no answer"]
    found = json.loads(answer)
    return [f"{whose}: {found}"] if isinstance(found, str) else [f"{whose} reaches {what}" for what in found]


def _reached_or_error(attempts: Callable[[], list[str]]) -> list[str] | str:
    try:
        return attempts()
    except (OSError, SystemExit) as error:
        return str(error)


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """A folder with a secret; where no other can be written, in shared memory."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX))
        except OSError:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX, dir="/dev/shm"))
        with open(os.path.join(folder, "secret"), "w") as file:
            file.write("secret")
        yield folder
