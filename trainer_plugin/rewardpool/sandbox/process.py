"""One process of the sandbox, as its supervisor sees it: questions, answers, and what it may use meanwhile.

A program is ended for what it used: processor time, read from the process's own clock, and time in which it was ready
to do nothing. Elapsed time alone proves nothing on a busy machine, so it ends with `SandboxError`, which is nobody's
verdict.
"""

import contextlib
import json
import os
import random
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from rewardpool.errors import SandboxError, SandboxUnavailableError
from rewardpool.sandbox.frames import HEAD, packed
from rewardpool.sandbox.parent import Zygote
from rewardpool.sandbox.verdict import Outcome

POLL_SECONDS: Final = 0.02
STARVED_SECONDS: Final = 60.0
"""Beyond 20 times its processor seconds; whoever did not get them by then is starved."""
MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Of one value that a program returns."""
END_SECONDS: Final = 1.0
"""For the kernel to end a process that closed its socket."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What a process may use.

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
        outcome: Of the program.
        message: Why, in words.
        exit_code: Of a process that ended by itself; None for another end.
    """

    def __init__(self, outcome: Outcome, message: str, exit_code: int | None = None) -> None:
        super().__init__(outcome, message, exit_code)
        self.outcome: Outcome = outcome
        self.message = message
        self.exit_code = exit_code


class Process:
    """A process that was forked for one program."""

    def __init__(self, zygote: Zygote, allowance: Allowance, *, stdin: str = "", folder: str | None = None) -> None:
        """Fork it and have it give up what it does not need.

        Raises:
            SandboxError: It could not be forked.
            SandboxUnavailableError: The kernel refused a part of the guard.
        """
        self._zygote = zygote
        self._allowance = allowance
        self._incoming = bytearray()
        self._written = bytearray()
        self._idle_seconds = 0.0
        self._reaped: Mapping[str, Any] | None = None
        self._sock, theirs = socket.socketpair()
        self._output, write_end = os.pipe()
        try:
            self.pid = zygote.fork(theirs, write_end)
        except SandboxError:
            self._close_files()
            raise
        finally:
            theirs.close()
            os.close(write_end)
        self._clock = (~self.pid << 3) | 2  # CPUCLOCK_SCHED of that process, as clock_getcpuclockid makes it
        os.set_blocking(self._output, False)
        self._sock.setblocking(False)
        self._cpu_before = 0.0
        setup = {
            "stdin": stdin,
            "folder": folder,
            "seed": random.getrandbits(32),
            "cpu_seconds": allowance.cpu_seconds,
            "memory_bytes": allowance.memory_bytes,
        }
        try:
            self._begin(setup)
        except Ended as ended:
            self.close()
            raise SandboxError(
                f"a process of the sandbox ended before it began: {ended.message}: {self.written.strip()[-500:]}"
            ) from ended
        except BaseException:
            self.close()
            raise

    def _begin(self, setup: Mapping[str, Any]) -> None:
        answer = self._answer_to(setup)
        if answer != {"ready": True}:
            raise SandboxUnavailableError(str(answer.get("refused", answer)))
        self._cpu_before = self._cpu()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer to a question: `value`, `raised` or, of an assertion's process, `call`.

        Raises:
            Ended: The process gives none.
            SandboxError: It was starved, or killed from outside.
        """
        return self._answer_to({"do": do, "arguments": arguments})

    def answer(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Send what a `call` came to, and return the next answer; raises as `ask`."""
        return self._answer_to(value)

    @property
    def written(self) -> str:
        """What it wrote to standard output and error so far."""
        return self._written[: self._allowance.output_bytes].decode(errors="replace")

    def close(self) -> float:
        """Kill it; return the processor seconds that it used."""
        try:
            self._kill()
            with contextlib.suppress(SandboxError):  # the zygote died, and with it its children
                return float(self._reap()["cpu_seconds"])
            return 0.0
        finally:
            self._drain()
            self._close_files()

    def _answer_to(self, question: Mapping[str, Any]) -> dict[str, Any]:
        outgoing = memoryview(packed(question))
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        began = before = time.monotonic()
        idle_before = False
        while True:
            poll.register(self._sock, select.POLLIN | (select.POLLOUT if outgoing else 0))
            events = dict(poll.poll(POLL_SECONDS * 1000))
            if events.get(self._output, 0):
                self._read_output(poll)
            if events.get(self._sock.fileno(), 0) & select.POLLOUT:
                with contextlib.suppress(BlockingIOError, BrokenPipeError):
                    outgoing = outgoing[self._sock.send(outgoing) :]
            if events.get(self._sock.fileno(), 0) & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._receive()
                if (answer := self._answer()) is not None:
                    return answer
            now = time.monotonic()
            idle = self._is_idle()
            if idle and idle_before:
                self._idle_seconds += now - before
            idle_before, before = idle, now
            self._judge(now - began)

    def _judge(self, elapsed: float) -> None:
        """Raise where it used more than it may."""
        allowance = self._allowance
        if self._cpu() - self._cpu_before > allowance.cpu_seconds:
            self._end("cpu_exceeded", f"used its {allowance.cpu_seconds:g} s of processor time")
        if self._idle_seconds > allowance.idle_seconds:
            self._end("idle_exceeded", f"did nothing for {allowance.idle_seconds:g} s")
        if elapsed > STARVED_SECONDS + 20 * allowance.cpu_seconds + allowance.idle_seconds:
            self._kill()
            raise SandboxError(
                f"starved: the machine gave it {self._cpu() - self._cpu_before:.1f} of {allowance.cpu_seconds:g} s of"
                f" processor time within {elapsed:.0f} s"
            )

    def _receive(self) -> None:
        try:
            part = self._sock.recv(1 << 18)
        except BlockingIOError:
            return
        except ConnectionResetError:
            part = b""
        if not part:
            self._ended_itself()
        self._incoming += part

    def _answer(self) -> dict[str, Any] | None:
        """Return an answer that has arrived whole, and nothing after it."""
        if len(self._incoming) < HEAD.size:
            return None
        (length,) = HEAD.unpack_from(self._incoming)
        if length > MAX_ANSWER_BYTES:
            self._end("output_exceeded", f"returned {length} bytes; at most {MAX_ANSWER_BYTES} are read")
        if len(self._incoming) < HEAD.size + length:
            return None
        text = bytes(self._incoming[HEAD.size : HEAD.size + length])
        del self._incoming[: HEAD.size + length]
        return self._read_answer(text)

    def _read_answer(self, text: bytes) -> dict[str, Any]:
        answer: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(text, parse_constant=_refuse_constant)
        if not isinstance(answer, dict):
            self._end("exited", "wrote to the sandbox's own descriptors")
        checked: dict[str, Any] = answer
        return checked

    def _read_output(self, poll: select.poll) -> None:
        try:
            part = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return
        if not part:
            poll.unregister(self._output)
        self._written += part
        if len(self._written) > self._allowance.output_bytes:
            self._end("output_exceeded", f"wrote more than {self._allowance.output_bytes >> 10} KiB")

    def _drain(self) -> None:
        """Read what is left in the pipe."""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._output, 1 << 16):
                self._written += part
                if len(self._written) > self._allowance.output_bytes:
                    return

    def _ended_itself(self) -> NoReturn:
        """Learn how a process ended that closed its socket, and raise."""
        deadline = time.monotonic() + END_SECONDS
        while self._state() not in ("Z", "") and time.monotonic() < deadline:
            time.sleep(0.001)
        if self._state() != "Z":
            self._end("exited", "closed the sandbox's own descriptors")
        status = int(self._reap()["status"])
        if status >= 0:
            raise Ended("exited", f"ended by itself with exit code {status}", status)
        name = signal.Signals(-status).name
        if -status == signal.SIGXCPU:
            raise Ended("cpu_exceeded", f"used its {self._allowance.cpu_seconds:g} s of processor time")
        if -status == signal.SIGKILL:  # it cannot send that to itself
            raise SandboxError("killed from outside, as the kernel does where a container is out of memory")
        raise Ended("crashed", f"ended by {name}")

    def _end(self, outcome: Outcome, message: str) -> NoReturn:
        self._kill()
        raise Ended(outcome, message)

    def _kill(self) -> None:
        # A process that is not reaped keeps its id.
        if self._reaped is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _reap(self) -> Mapping[str, Any]:
        if self._reaped is None:
            self._reaped = self._zygote.reap(self.pid)
        return self._reaped

    def _cpu(self) -> float:
        try:
            return time.clock_gettime(self._clock)
        except OSError:  # it has ended
            return 0.0

    def _is_idle(self) -> bool:
        return self._state() in ("S", "D", "T", "t")

    def _state(self) -> str:
        """Return the state's letter, as /proc has it; empty where there is no such process."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return ""
        return text.rpartition(")")[2].split()[0]

    def _close_files(self) -> None:
        self._sock.close()
        os.close(self._output)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON's")
