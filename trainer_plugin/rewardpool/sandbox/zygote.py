"""The parent of the sandbox's processes: imports what is preloaded once, then forks a process for each program.

It has one thread, an environment without secrets, and no sample: a program's input reaches its process after the fork.
It ends when its supervisor closes the socket, and its children end with it.
"""

import contextlib
import gc
import importlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from rewardpool.sandbox import program
from rewardpool_runtime.frames import receive, send
from rewardpool_runtime.guard.policy_code import readable_folders


def _preloaded(modules: list[str]) -> str | None:
    """Import modules; return what went wrong, in words."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a module raises
            return f"{name} cannot be imported: {type(error).__name__}: {error}"
        if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
            return f"{name} starts {threads - 1} threads at its import, and a process of several cannot be forked"
    readable_folders()  # what takes time and is the same for all children
    gc.collect()
    gc.freeze()  # children write to fewer pages of the parent's
    return None


def _serve_one(sock: socket.socket) -> None:
    """Answer one request: `preload` once, then `fork` with three descriptors, and `reap`. Raises EOFError."""
    first, descriptors, _, _ = socket.recv_fds(sock, 1, 3)
    if not first:
        raise EOFError
    request = receive(sock.recv)
    try:
        if "preload" in request:
            answer: dict[str, Any] = {"problem": _preloaded(request["preload"])}
        else:
            answer = _reaped(request["reap"]) if "reap" in request else _forked(sock, descriptors)
    except (OSError, ValueError) as error:  # no process may be made now, or a descriptor did not arrive
        answer = {"error": f"{type(error).__name__}: {error}"}
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    send(sock.fileno(), answer)


def _reaped(pid: int) -> dict[str, Any]:
    _, status, used = os.wait4(pid, 0)
    return {"status": os.waitstatus_to_exitcode(status), "cpu_seconds": used.ru_utime + used.ru_stime}


def _forked(sock: socket.socket, descriptors: list[int]) -> dict[str, Any]:
    talk, output, errors = descriptors
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        sock.close()
        program.become(talk, output, errors, parent=parent)
    return {"pid": pid}


def start(descriptor: int) -> None:
    """Run the zygote, in an interpreter that was started for it, until the supervisor closes the socket."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as it may be inherited, no child could be reaped
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's, which ends this one
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sock = socket.socket(fileno=descriptor)
    with contextlib.suppress(EOFError):
        while True:
            _serve_one(sock)
    sys.exit(0)
