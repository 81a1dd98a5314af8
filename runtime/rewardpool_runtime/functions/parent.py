"""The parent of a function's processes, as its supervisor sees it: started, asked to fork and to end, and closed."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rewardpool_runtime.descriptors import open_standard_streams
from rewardpool_runtime.frames import Incoming, packed
from rewardpool_runtime.functions.limits import ALL, CallLimits
from rewardpool_runtime.functions.load import FunctionLoadError
from rewardpool_runtime.functions.zygote import MAX_FORKS
from rewardpool_runtime.guard.function import Boundary

log = logging.getLogger("rewardpool.functions")

BOOT: Final = """
import sys
_, descriptor, supervisor, *sys.path[:] = sys.argv
del sys.argv[1:]
from rewardpool_runtime.functions import zygote
zygote.main(int(descriptor), int(supervisor))
"""
# None of these has a secret.
BASE_VARIABLES: Final = (
    *("PATH", "HOME", "LOGNAME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
# A process of several threads cannot be forked, and calls share the processors.
ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
OWN_VARIABLES: Final = "REWARDPOOL_"
START_SECONDS: Final = 300.0
ANSWER_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 5.0


class ParentEndedError(Exception):
    """The parent is gone, and its processes with it; another one can be started."""


class ParentAnswer(NamedTuple):
    """Answer of the parent."""

    forked: Sequence[int]
    ended: Mapping[int, int | None]
    """By id: exit code, or minus a signal's number; None of what was killed."""
    problem: str


class Loaded(NamedTuple):
    """Kind of function that the parent found."""

    is_async: bool
    threads: Sequence[str]
    """Names of those that its module started when it was imported; a process that has any cannot be forked."""
    uses_sandbox: bool
    reached: Sequence[str]


def environment(given: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a function's processes.

    Args:
        given: Names of variables that they get beside the base; `ALL` for each one.
    """
    names = environ if ALL in given else (*BASE_VARIABLES, *given)
    found = {name: environ[name] for name in names if name in environ and not name.startswith(OWN_VARIABLES)}
    return {"LANG": "C.UTF-8", **dict.fromkeys(ONE_THREAD, "1"), **found}


class Parent:
    """A started parent; used on one event loop."""

    def __init__(self, *, env: Mapping[str, str], folders: Sequence[str] = ()) -> None:
        """Start it, with these folders of modules before this process's; raises OSError."""
        self._asking = asyncio.Lock()
        self._incoming = Incoming()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self.ended = asyncio.get_running_loop().create_future()
        open_standard_streams()
        self._sock, theirs = socket.socketpair()
        flags = ["-I", *(["-B"] if sys.dont_write_bytecode else [])]
        path = [*folders, *(entry or os.getcwd() for entry in sys.path)]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, *flags, "-c", BOOT, str(theirs.fileno()), str(os.getpid()), *path],
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except BaseException:
                self._sock.close()
                raise
        self._sock.setblocking(False)
        asyncio.get_running_loop().add_reader(self._sock, self._readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def load(
        self,
        source: Mapping[str, str],
        *,
        further: Sequence[str],
        limits: CallLimits,
        boundary: Boundary | None = None,
        here: bool = True,
    ) -> Loaded:
        """Load the function in the parent, or where that is not to be done `here`, in each of its processes.

        Raises:
            FunctionLoadError: There is no such function, or it cannot be called.
            ParentEndedError: It ended meanwhile.
        """
        memory = {"memory": limits.memory_mib << 20, "memory_setting": limits.setting("memory_mib")}
        request = {"load": source, "further": list(further), "here": here, **memory}
        # The parent enters the boundary before it loads the function, and its processes inherit it.
        request["boundary"] = boundary.to_wire() if boundary is not None else None
        try:
            answer = await self._request(request, seconds=START_SECONDS)
        except ParentEndedError as error:
            raise FunctionLoadError(f"cannot load the function {source['name']}: {error}, as it imported it") from None
        if "problem" in answer:
            raise FunctionLoadError(str(answer["problem"]))
        found = answer["loaded"]
        return Loaded(
            is_async=bool(found.get("is_async")),
            threads=found.get("threads", ()),
            uses_sandbox=bool(found.get("uses_sandbox")),
            reached=found["reached"],
        )

    async def tend(self, pairs: Sequence[tuple[int, int]], *, end: Sequence[int], reap: Sequence[int]) -> ParentAnswer:
        """End processes, and fork one for each pair of descriptors: to talk by, and for what is printed.

        Raises:
            ParentEndedError: It has ended.
        """
        descriptors = [one for pair in pairs for one in pair]
        request = {"fork": len(pairs), "end": list(end), "reap": list(reap)}
        answer = await self._request(request, descriptors=descriptors, seconds=ANSWER_SECONDS)
        ended = {int(pid): status for pid, status in answer["ended"].items()}
        return ParentAnswer(answer["forked"], ended, answer["problem"])

    async def _request(self, request: Any, *, descriptors: Sequence[int] = (), seconds: float) -> Any:
        async with self._asking:
            if self.ended.done():
                raise ParentEndedError(self._how())
            try:
                # A socket's buffer holds far more than one request, and there is one at a time.
                socket.send_fds(self._sock, [b"\0"], descriptors[: 2 * MAX_FORKS])
                await asyncio.get_running_loop().sock_sendall(self._sock, packed(request))
                async with asyncio.timeout(seconds):
                    answer = await self._answers.get()
            except TimeoutError:
                self.kill()
                raise ParentEndedError(f"its parent process did not answer within {seconds:g} s") from None
            except OSError as error:
                self.kill()
                raise ParentEndedError(f"its parent process cannot be asked: {error}") from None
            except BaseException:  # what is answered later would be taken for the next request's answer
                self.kill()
                raise
            if answer is None:
                raise ParentEndedError(self._how())
            return answer

    def _readable(self) -> None:
        try:
            part = self._sock.recv(1 << 16)
            for value in self._incoming.add(part):
                self._answers.put_nowait(value)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            part = b""
        if not part:
            self._gone()

    def _gone(self) -> None:
        if not self.ended.done():
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self.ended.set_result(None)
            self._answers.put_nowait(None)

    def kill(self) -> None:
        self._process.kill()
        self._gone()

    async def close(self) -> None:
        """End it, and by that its processes; returns when it has ended."""
        self._gone()
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.005)
        self._process.kill()
        self._process.wait()

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        return f"its parent process {ending(self._process.returncode)}"


def ending(status: int | None) -> str:
    """Return in words how a process ended: by its exit code, or minus a signal's number."""
    if status is None:
        return "closed the descriptor of its results"
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-status}"
