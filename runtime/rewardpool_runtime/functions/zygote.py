"""The parent of a function's processes: imports the function once, then forks a process for each call, or for several.

It has one thread, no variable that was not given to it, no key and no sample: what a call is about reaches its process
after the fork. It answers its supervisor's requests by a socket, one after the other:

    {"load": SOURCE, "further": [names], "memory": bytes, …}             ->  {"loaded": {...}} or {"problem": text}
    {"fork": n, "end": [ids], "reap": [ids]} with 2n descriptors         ->  {"forked": [ids], "ended": {id: status}}

To end a process is to kill it; one that is reaped seems to have ended by itself, and gets a moment for that.

It ends when the supervisor closes the socket, and all processes that it started end with it.
"""

import base64
import contextlib
import ctypes
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from rewardpool_runtime.frames import receive, send
from rewardpool_runtime.functions import serving
from rewardpool_runtime.functions.limits import MAX_FILE_BYTES
from rewardpool_runtime.functions.load import FunctionLoadError, check_signature, load_function, unpickled
from rewardpool_runtime.functions.outcome import is_async
from rewardpool_runtime.guard import attempts
from rewardpool_runtime.guard.function import Boundary, enter, part
from rewardpool_runtime.process_stat import children

MAX_FORKS: Final = 64  # in one request: the descriptors of one message are limited
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
_SANDBOX: Final = "rewardpool.sandbox"
_EXIT_SECONDS: Final = 1.0
_END_SECONDS: Final = 10.0

_libc = ctypes.CDLL(None, use_errno=True)


class _Parent:
    def __init__(self, sock: socket.socket, supervisor: int) -> None:
        self._sock = sock
        self._supervisor = supervisor
        self._has_boundary = False
        self._pids: set[int] = set()
        self._servers: set[int] = set()
        """Threads and loops that the function's module started when it was imported; all calls use them."""
        self._load: Callable[[], serving.Function] | None = None
        self._function: serving.Function | None = None
        self._memory, self._memory_setting = 0, ""
        self._id = os.getpid()

    def serve(self) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                first, descriptors, _, _ = socket.recv_fds(self._sock, 1, 2 * MAX_FORKS)
                if not first:
                    break
                try:
                    answer = self._answer(receive(self._sock.recv), descriptors)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
                send(self._sock.fileno(), answer)
        self.end()

    def _answer(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        if "load" in request:
            return self._loaded(request)
        ended = {str(pid): self._ended(pid) for pid in request["end"]}
        ended |= {str(pid): self._ended(pid, itself=True) for pid in request["reap"]}
        if ended:
            self._end_strays()
        forked: list[int] = []
        problem = ""
        try:
            for number in range(request["fork"]):
                forked.append(self._forked(descriptors, number))  # noqa: PERF401 - those before one that fails count
        except (OSError, ValueError) as error:  # no process may be made now, or descriptors did not arrive
            problem = f"{type(error).__name__}: {error}"
        return {"ended": ended, "forked": forked, "problem": problem}

    def _loaded(self, request: dict[str, Any]) -> dict[str, Any]:
        source = request["load"]

        def load() -> serving.Function:
            if "pickled" in source:
                function = unpickled(source["name"], base64.b64decode(source["pickled"]))
            else:
                function = load_function(source["reference"])
            check_signature(function, name=source["name"], further=request["further"])
            return function

        self._load, self._memory, self._memory_setting = load, request["memory"], request["memory_setting"]
        found: dict[str, Any] = {"reached": self._enter(request["boundary"])}
        if not request["here"]:
            return {"loaded": found}
        try:
            self._function = load()
            found |= {
                "is_async": is_async(self._function),
                "threads": _threads(),
                "uses_sandbox": _SANDBOX in sys.modules,
            }
        except FunctionLoadError as error:
            return {"problem": str(error)}
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # whatever the module made of them
                stream.flush()  # else each child would print it
                getattr(stream, "reconfigure", dict)(line_buffering=True, errors="backslashreplace")
        self._servers = set(children(self._id))
        gc.collect()
        gc.freeze()  # children write to fewer pages of the parent's
        _prepare(self._memory)
        return {"loaded": found}

    def _enter(self, given: dict[str, Any] | None) -> list[str]:
        """Enter a boundary, before anything of the user's runs; return what is reached though it should not be."""
        if given is None:
            return []
        boundary = Boundary.read(given)
        enter(boundary)
        self._has_boundary = True
        try:
            return attempts.reached(boundary, server=self._supervisor)
        except OSError as error:
            return [f"what the function reaches cannot be tried: {error}"]

    def _forked(self, descriptors: list[int], number: int) -> int:
        talk, output = descriptors[2 * number : 2 * number + 2]
        pid = os.fork()
        if pid == 0:
            try:
                self._sock.close()
                for other in descriptors:
                    if other not in (talk, output):
                        os.close(other)
                self._become(talk, output)
            except BaseException as error:
                with contextlib.suppress(BaseException):
                    os.write(2, f"the function's process failed: {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(1)  # nothing of this program goes on here
        self._pids.add(pid)
        return pid

    def _become(self, talk: int, output: int) -> None:
        self._end_with_parent()
        os.setsid()
        if self._has_boundary:
            part()
        _libc.prctl(_CHILD_SUBREAPER, ctypes.c_ulong(1))  # what its call starts stays below it
        for standard in (1, 2):
            os.dup2(output, standard)
        os.close(output)
        os.set_inheritable(talk, False)
        if self._function is None and self._load is not None:
            self._import_here(talk)
        serving.serve(talk, self._function, memory=self._memory_in_words())

    def _end_with_parent(self) -> None:
        _libc.prctl(_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != self._id:  # it ended before that, and no signal comes
            os._exit(1)

    def _import_here(self, talk: int) -> None:
        try:
            self._function = self._load() if self._load is not None else None
        except FunctionLoadError as error:
            send(talk, {"problem": str(error)})
            os._exit(1)
        _prepare(self._memory)
        self._end_with_parent()
        send(talk, {"ready": True})

    def _memory_in_words(self) -> str:
        return f"its limit is {self._memory >> 20} MiB, by {self._memory_setting}" if self._memory else ""

    def _ended(self, pid: int, *, itself: bool = False) -> int | None:
        """End a process with its group; what else it started is a stray then.

        Returns:
            Its exit code, or minus a signal's number; None where it did not end by itself, and was to.
        """
        if pid not in self._pids:
            return None
        status = self._status(pid, seconds=_EXIT_SECONDS) if itself else None
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # at once for all of a group, so that none of it can fork meanwhile
            with contextlib.suppress(ProcessLookupError):  # it has no session of its own yet
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._pids.discard(pid)
        return status

    def _status(self, pid: int, *, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                return None
            time.sleep(0.001)

    def _end_strays(self) -> None:
        """End what ended processes left behind: children of this one that neither it nor its module started."""
        deadline = time.monotonic() + _END_SECONDS
        while strays := [pid for pid in children(self._id) if pid not in self._pids | self._servers]:
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
            for pid in strays:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0 if time.monotonic() < deadline else os.WNOHANG)
            if time.monotonic() > deadline:
                break

    def end(self) -> None:
        for pid in list(self._pids):
            self._ended(pid)
        self._servers.clear()
        self._end_strays()


def _prepare(memory: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(0)
    if memory:
        _set_limit(resource.RLIMIT_AS, _mapped() + memory)
    _set_limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _set_limit(resource.RLIMIT_CORE, 0)
    # From now on the socket's end tells that the supervisor is gone, and everything is ended in order.
    _libc.prctl(_PDEATHSIG, ctypes.c_ulong(0))


def _set_limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (most, most))


def _mapped() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _threads() -> list[str]:
    count = len(os.listdir("/proc/self/task")) - 1
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return (names + ["of a library"] * count)[:count]


def main(descriptor: int, supervisor: int) -> None:
    """Be the parent, in an interpreter that was started for it."""
    _libc.prctl(_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
    if os.getppid() != supervisor:
        sys.exit("the supervisor is gone")
    _libc.prctl(_CHILD_SUBREAPER, ctypes.c_ulong(1))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _Parent(socket.socket(fileno=descriptor), supervisor).serve()
    os._exit(0)  # no `atexit` of the user's module
