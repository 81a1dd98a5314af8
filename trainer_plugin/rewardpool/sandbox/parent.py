"""The supervisor's end of a zygote: starts it, has it fork, and learns how a process ended."""

import contextlib
import os
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rewardpool.errors import SandboxError, SandboxUnavailableError
from rewardpool_runtime import frames
from rewardpool_runtime.descriptors import open_standard_streams
from rewardpool_runtime.frames import packed, receive
from rewardpool_runtime.guard.policy_code import missing

BOOT: Final = """
import sys
sys.path[:0] = sys.argv[2:]
from rewardpool.sandbox import zygote
del sys.path[: len(sys.argv) - 2]
zygote.start(int(sys.argv[1]))
"""
# The whole environment: no key, token or address of the supervisor's.
ENVIRONMENT: Final = {
    # numpy's and others' threads: a process of several cannot be forked.
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "LANG": "C.UTF-8",
}
# Limit of an answer of the zygote's, which takes milliseconds where the machine is not busy.
ANSWER_SECONDS: Final = 60.0
# Limit of Python's start and the imports.
START_SECONDS: Final = 120.0


class Zygote:
    """A started zygote. Its methods may be called by several threads."""

    def __init__(self, preload: Sequence[str]) -> None:
        """Start it.

        Raises:
            SandboxUnavailableError: This machine lacks what the guard needs, or a module cannot be preloaded.
            SandboxError: It did not start.
        """
        if (lacks := missing()) is not None:
            raise SandboxUnavailableError(f"this machine lacks {lacks}")
        self._lock = threading.Lock()
        try:
            open_standard_streams()
            self._sock, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-c", BOOT, str(theirs.fileno()), *_import_folders()],
                    env=ENVIRONMENT,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            raise SandboxError(f"the sandbox's parent process cannot be started: {error}") from error
        try:
            problem = self._request({"preload": list(preload)}, seconds=START_SECONDS)["problem"]
        except BaseException:
            self.close()
            raise
        if problem is not None:
            self.close()
            raise SandboxUnavailableError(f"preload: {problem}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        """True if it lives and can be asked."""
        return self._sock.fileno() >= 0 and self._process.poll() is None

    def fork(self, talk: socket.socket, output: int, errors: int) -> int:
        """Return the id of a new process, which has a socket to talk by, and its standard output and error."""
        return int(self._request({"fork": True}, descriptors=[talk.fileno(), output, errors])["pid"])

    def reap(self, pid: int) -> Mapping[str, Any]:
        """Return `status` (an exit code, or minus a signal's number) and `cpu_seconds` of a process that was killed."""
        ended: Mapping[str, Any] = self._request({"reap": pid})
        return ended

    def close(self) -> None:
        self._sock.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
            return
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Let go of it in a forked process, whose parent goes on with it."""
        self._sock.close()
        self._process.returncode = 0  # else Popen warns that it still runs

    def _request(
        self,
        request: Mapping[str, Any],
        *,
        descriptors: Sequence[int] = (),
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        with self._lock:
            try:
                self._sock.settimeout(seconds)
                socket.send_fds(self._sock, [b"\0"], list(descriptors))
                self._sock.sendall(packed(request))
                answer = receive(self._sock.recv)
            except (OSError, EOFError) as error:
                self._sock.close()
                raise SandboxError(f"the sandbox's parent process did not answer: {error}") from error
            except BaseException:  # an interrupt: what is answered later would be taken for the next request's answer
                self._sock.close()
                raise
        if "error" in answer:
            raise SandboxError(f"the sandbox's parent process: {answer['error']}")
        return answer


def _import_folders() -> list[str]:
    """Return where this package and what it imports are, unless an isolated interpreter finds them without."""
    homes = dict.fromkeys(str(Path(file).parents[depth]) for file, depth in ((__file__, 2), (frames.__file__, 1)))
    return [home for home in homes if home not in site.getsitepackages()]


class _Zygotes:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_preload: dict[tuple[str, ...], Zygote] = {}

    def get(self, preload: Sequence[str]) -> Zygote:
        """Return one that can be asked; it is started where there is none."""
        key = tuple(preload)
        with self._lock:
            zygote = self._by_preload.get(key)
            if zygote is None or not zygote.usable:
                if zygote is not None:
                    zygote.close()
                zygote = self._by_preload[key] = Zygote(key)
            return zygote

    def forget(self) -> None:
        """Let go of all in a forked process; another thread may have held the lock at that moment."""
        self._lock = threading.Lock()
        while self._by_preload:
            self._by_preload.popitem()[1].forget()


zygotes: Final = _Zygotes()
os.register_at_fork(after_in_child=zygotes.forget)
