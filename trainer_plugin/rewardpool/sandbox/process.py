"""One process of the sandbox, as its supervisor sees it: questions, answers, and its limits meanwhile.

A program is ended for what it used: processor time, by the process's own clock, and time in which it slept though it
could have run. Elapsed time alone proves nothing on a busy machine: it ends with `SandboxError`, which is no verdict.
"""

import contextlib
import json
import math
import os
import random
import secrets
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Self

from rewardpool.errors import SandboxError, SandboxUnavailableError
from rewardpool.sandbox.parent import Zygote
from rewardpool.sandbox.verdict import Outcome
from rewardpool_runtime.frames import HEAD, packed
from rewardpool_runtime.process_stat import ASLEEP, ENDED, Stat, cpu_clock, parsed

# Between two checks of what a process uses; random, so that no code can sleep only between checks.
SAMPLE_SECONDS: Final = (0.01, 0.03)
# Beyond 20 times its processor seconds; a process that did not get them by then is starved.
STARVED_SECONDS: Final = 60.0
# Limit of all that a program returns.
MAX_ANSWER_BYTES: Final = 1024 * 1024
# A process that closed its socket has this time to begin to end. The kernel says so of one that ends before it closes
# its files; in a longer time one that goes on could use up its processor seconds, and how it ended would depend on the
# machine.
END_SECONDS: Final = 0.1
# A process that the kernel is ending: PF_EXITING of linux/sched.h.
_EXITING: Final = 0x4


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """Limits of a process.

    Attributes:
        cpu_seconds: Of processor time.
        idle_seconds: In which it could have run and waited instead.
        memory_bytes: Beyond what the zygote has.
        output_bytes: On standard output and error, together.
    """

    cpu_seconds: float
    idle_seconds: float
    memory_bytes: int
    output_bytes: int


class Ended(Exception):  # noqa: N818  # an outcome; whether it is an error is the caller's to say
    """The process gives no further answer.

    Attributes:
        exit_code: Of a process that ended by itself, or minus the number of its own signal; None for another end.
    """

    def __init__(self, outcome: Outcome, message: str, exit_code: int | None = None) -> None:
        super().__init__(outcome, message, exit_code)
        self.outcome: Outcome = outcome
        self.message = message
        self.exit_code = exit_code


class _Stream:
    """The end of a pipe that a process writes to."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.written = bytearray()

    def read(self, *, most: int) -> bool:
        """Read what is there, up to so many bytes; return False at the pipe's end."""
        with contextlib.suppress(BlockingIOError):
            while len(self.written) <= most:
                part = os.read(self.descriptor, 1 << 16)
                self.written += part
                if not part:
                    return False
        return True


class _ProcFile:
    """A file of /proc about a process, kept open; empty where the kernel has none, and once it has been reaped."""

    def __init__(self, pid: int, name: str) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def read(self) -> str:
        if self._descriptor is None:
            return ""
        try:
            return os.pread(self._descriptor, 4096, 0).decode(errors="replace")
        except OSError:
            return ""


class ForkedProcess:
    """A process that was forked for one program."""

    def __init__(self, zygote: Zygote, allowance: ProcessLimits, *, stdin: str = "", folder: str | None = None) -> None:
        """Fork it and have it give up what it does not need.

        Raises:
            SandboxError: It could not be forked.
            SandboxUnavailableError: The kernel refused a part of the guard.
        """
        self._zygote = zygote
        self._allowance = allowance
        self._incoming = bytearray()
        self._answered_bytes = 0
        self._idle_seconds = 0.0
        self._cpu_before = 0.0
        self._has_begun = False
        self._reaped: Mapping[str, Any] | None = None
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            try:
                self._sock, talk = socket.socketpair()
                undo.enter_context(self._sock)
                theirs.enter_context(talk)
                ends = []
                for _ in range(2):
                    ours, other = os.pipe()
                    undo.callback(os.close, ours)
                    theirs.callback(os.close, other)
                    ends.append((_Stream(ours), other))
            except OSError as error:
                raise SandboxError(f"a process of the sandbox cannot be made: {error}") from error
            (self._output, output), (self._errors, errors) = ends
            self.pid = zygote.fork(talk, output, errors)
            try:
                # An id may be another process's once the zygote has died; this is not.
                self._handle = os.pidfd_open(self.pid)
            except OSError as error:
                raise SandboxError(f"a process of the sandbox is gone: {error}") from error
            undo.callback(os.close, self._handle)
            # Before it gives up being dumped: then another user sees nothing of it where /proc has hidepid=2.
            self._stat_file = undo.enter_context(_ProcFile(self.pid, "stat"))
            self._schedstat_file = undo.enter_context(_ProcFile(self.pid, "schedstat"))
            self._files = undo.pop_all()
        self._sock.setblocking(False)
        setup = {
            "stdin": stdin,
            "folder": folder,
            "seed": secrets.randbits(32),
            "cpu_seconds": allowance.cpu_seconds,
            "memory_bytes": allowance.memory_bytes,
        }
        try:
            self._begin(setup)
        except Ended as ended:
            self.close()
            raise SandboxError(
                f"a process of the sandbox ended before it began: {ended.message}: {self.stderr.strip()[-500:]}"
            ) from ended
        except BaseException:
            self.close()
            raise

    def _begin(self, setup: Mapping[str, Any]) -> None:
        answer = self._answer_to(packed(setup))
        if answer != {"ready": True}:
            raise SandboxUnavailableError(str(answer.get("refused", answer)))
        self._cpu_before, self._idle_seconds, self._has_begun = cpu_clock(self.pid), 0.0, True

    def request(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer to a question: `value`, `raised`, `exited` or, of an assertion's process, `call`.

        Raises:
            Ended: The process gives none.
            SandboxError: It was starved, or killed from outside.
        """
        return self._answer_to(packed({"do": do, "arguments": arguments}))

    def answer(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Send what a `call` returned, and return the next answer; raises as `request`."""
        try:
            frame = packed(value)
        except (ValueError, RecursionError) as error:  # another process wrote it, and no writer of JSON did
            raise Ended("exited", f"wrote what cannot be sent on: {type(error).__name__}") from None
        return self._answer_to(frame)

    @property
    def stdout(self) -> str:
        return self._output.written[: self._allowance.output_bytes].decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self._errors.written[: self._allowance.output_bytes].decode(errors="replace")

    def close(self) -> float:
        """Kill it; return the processor seconds that it used."""
        with self._files:
            self._kill()
            cpu_seconds = 0.0
            with contextlib.suppress(SandboxError):  # the zygote died, and with it its children
                cpu_seconds = float(self._reap()["cpu_seconds"])
            for stream in (self._output, self._errors):
                stream.read(most=self._allowance.output_bytes)
            return cpu_seconds

    def _answer_to(self, question: bytes) -> dict[str, Any]:
        outgoing = memoryview(question)
        poll = select.poll()
        for stream in (self._output, self._errors):
            poll.register(stream.descriptor, select.POLLIN)
        began = sampled = time.monotonic()
        pause = _pause()
        while True:
            poll.register(self._sock, select.POLLIN | (select.POLLOUT if outgoing else 0))
            events = dict(poll.poll(pause * 1000))
            for stream in (self._output, self._errors):
                if events.get(stream.descriptor) and not self._read(stream):
                    poll.unregister(stream.descriptor)
            event = events.get(self._sock.fileno(), 0)
            if event & select.POLLOUT:
                with contextlib.suppress(BlockingIOError, BrokenPipeError):
                    outgoing = outgoing[self._sock.send(outgoing) :]
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR) and (answer := self._received()) is not None:
                return answer
            elapsed = time.monotonic() - sampled
            if elapsed >= pause:
                self._sample(elapsed, since=began)
                sampled, pause = sampled + elapsed, _pause()

    def _sample(self, elapsed: float, *, since: float) -> None:
        """Check its use, and raise where it used more than it may."""
        allowance = self._allowance
        state = self._stat().state
        if state in ASLEEP:
            # This process may itself have been stopped, or kept from running, since the last look.
            self._idle_seconds += min(elapsed, 2 * SAMPLE_SECONDS[1])
        elif state in ENDED and not select.select([self._sock], [], [], 0)[0]:
            # A process that was forked elsewhere may hold its socket open, and nothing more comes.
            self._ended_itself()
        used = cpu_clock(self.pid) - self._cpu_before
        # What the guard itself takes, more on a busy machine, is not the program's.
        if self._has_begun and used > allowance.cpu_seconds:
            self._end("cpu_exceeded", f"used its {allowance.cpu_seconds:g} s of processor time")
        if self._has_begun and self._idle_seconds > allowance.idle_seconds:
            self._end("idle_exceeded", f"slept for {allowance.idle_seconds:g} s")
        whole = time.monotonic() - since
        if whole > STARVED_SECONDS + 20 * allowance.cpu_seconds + allowance.idle_seconds:
            if state != "R" and used + self._waited() < whole / 2:
                self._end("idle_exceeded", f"neither ran nor waited for a processor for most of {whole:.0f} s")
            self._kill()
            raise SandboxError(
                f"starved: the machine gave it {used:.1f} of {allowance.cpu_seconds:g} s of processor time"
                f" within {whole:.0f} s"
            )

    def _received(self) -> dict[str, Any] | None:
        """Read what has arrived; return an answer that is whole."""
        try:
            part = self._sock.recv(1 << 18)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            part = b""
        if not part:
            self._ended_itself()
        self._incoming += part
        if len(self._incoming) < HEAD.size:
            return None
        (length,) = HEAD.unpack_from(self._incoming)
        if self._answered_bytes + length > MAX_ANSWER_BYTES:
            self._end("output_exceeded", f"returned more than {MAX_ANSWER_BYTES >> 10} KiB")
        if len(self._incoming) < HEAD.size + length:
            return None
        self._answered_bytes += length
        text = bytes(self._incoming[HEAD.size : HEAD.size + length])
        del self._incoming[: HEAD.size + length]
        return self._read_answer(text)

    def _read_answer(self, text: bytes) -> dict[str, Any]:
        answer: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(text, parse_constant=_refused_constant, parse_float=_finite)
        if not isinstance(answer, dict):
            self._end("exited", "wrote to the sandbox's own descriptors")
        checked: dict[str, Any] = answer
        return checked

    def _read(self, stream: _Stream) -> bool:
        is_open = stream.read(most=self._allowance.output_bytes)
        if len(self._output.written) + len(self._errors.written) > self._allowance.output_bytes:
            self._end("output_exceeded", f"wrote more than {self._allowance.output_bytes >> 10} KiB")
        return is_open

    def _ended_itself(self) -> NoReturn:
        """Learn how a process ended that closed its socket, and raise."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            now = self._stat()
            if now.state in ENDED or (time.monotonic() > deadline and not now.flags & _EXITING):
                break
            time.sleep(0.001)
        if not now.state or not self._zygote.usable:
            raise SandboxError("the sandbox's parent process ended, and its children with it")
        if now.state not in ENDED:
            self._end("exited", "closed the sandbox's own descriptors")
        ended = self._reap()
        status = int(ended["status"])
        if status >= 0:
            raise Ended("exited", f"ended by itself with exit code {status}", status)
        # The hard limit's signal is SIGKILL, for code that ignores the first.
        if -status == signal.SIGXCPU or ended["cpu_seconds"] > self._allowance.cpu_seconds + self._cpu_before:
            raise Ended("cpu_exceeded", f"used its {self._allowance.cpu_seconds:g} s of processor time")
        if -status == signal.SIGKILL:  # it cannot send that to itself
            raise SandboxError("killed from outside, as the kernel does where a container is out of memory")
        raise Ended("crashed", f"ended by {_name_of(-status)}", status)

    def _end(self, outcome: Outcome, message: str) -> NoReturn:
        self._kill()
        raise Ended(outcome, message)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _reap(self) -> Mapping[str, Any]:
        if self._reaped is None:
            self._reaped = self._zygote.reap(self.pid)
        return self._reaped

    def _waited(self) -> float:
        fields = self._schedstat_file.read().split()
        return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0

    def _stat(self) -> Stat:
        return parsed(self._stat_file.read())


def _pause() -> float:
    return random.uniform(*SAMPLE_SECONDS)  # noqa: S311  # the process sees neither the number nor its stream


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _refused_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")
