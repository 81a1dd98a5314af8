"""One of a function's processes, as its supervisor sees it: calls go in, outcomes and what was printed come out."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from rewardpool_runtime.frames import Incoming, packed
from rewardpool_runtime.functions.limits import LOOK_SECONDS, MAX_OUTPUT_BYTES, CallLimits, Usage, exceeded
from rewardpool_runtime.functions.outcome import Outcome, from_wire
from rewardpool_runtime.process_stat import used

Printed = Callable[[str, str], None]
"""Is called with a call's label and a line that its function printed."""


class ProcessEndedError(Exception):
    """The process closed its socket, with a call in it."""


class IsAsyncError(Exception):
    """The function returned something to be awaited, which another kind of process does."""


class ProcessCall:
    """One call in a process.

    Attributes:
        done: Its outcome; or ProcessEndedError, or IsAsyncError.
        is_answered: Whether the process itself gave one.
    """

    def __init__(self, number: int, label: str) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.label = label
        self.began = loop.time()
        self.done: asyncio.Future[Outcome] = loop.create_future()
        self.is_answered = False
        self.printed = 0
        self.rest = b""
        self.looked_at = self.began
        self.cpu_before = 0.0
        self.idle = 0.0

    def settle(self, outcome: Outcome | Exception) -> None:
        """Set what became of it, unless that is known."""
        if self.done.done():
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
            self.done.exception()  # its caller may be gone
        else:
            self.done.set_result(outcome)


class FunctionProcess:
    """A process for calls; used on one event loop."""

    def __init__(self, printed: Printed) -> None:
        """Make its sockets; raises OSError. It is forked later, and ended by its parent."""
        self.pid = 0
        """Its id; 0 as long as it was not forked."""
        self.served = 0
        self.heard = 0
        self.has_ended = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answered = 0
        self._printed = printed
        self._incoming = Incoming()
        self._outgoing = bytearray()
        self._waits_to_write = False
        self._calls: dict[int, ProcessCall] = {}
        with contextlib.ExitStack() as undo:
            self._sock, talk = socket.socketpair()
            undo.enter_context(self._sock)
            undo.enter_context(talk)
            self._output, write = os.pipe()
            os.set_blocking(self._output, False)
            self._sock.setblocking(False)
            undo.pop_all()
        self.theirs = talk.detach(), write

    def forked(self, pid: int) -> None:
        """Read what comes of it from now on."""
        self.pid = pid
        self._close_theirs()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._sock, self._readable)
        loop.add_reader(self._output, self._read_output)

    @property
    def is_free(self) -> bool:
        """True if it has answered all its calls, and lives."""
        return not self.has_ended and self._answered == self.served

    def begin(self, arguments: Mapping[str, Any], *, label: str) -> ProcessCall:
        """Give it a call; raises ValueError, TypeError or RecursionError where arguments are no JSON."""
        call = ProcessCall(self.served + 1, label)
        frame = packed({"id": call.number, "arguments": arguments})
        self._calls[call.number] = call
        self.served += 1
        self._write(frame)
        if self.has_ended:
            call.settle(ProcessEndedError())
        return call

    def send(self, value: Mapping[str, Any]) -> None:
        self._write(packed(value))

    def _write(self, frame: bytes) -> None:
        if self.has_ended:
            return
        waits = bool(self._outgoing)
        self._outgoing += frame
        if not waits:
            self._writable()

    def _writable(self) -> None:
        try:
            del self._outgoing[: self._sock.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, as is read soon
            self._outgoing.clear()
        if self._outgoing and not self._waits_to_write:
            asyncio.get_running_loop().add_writer(self._sock, self._writable)
        elif self._waits_to_write and not self._outgoing:
            asyncio.get_running_loop().remove_writer(self._sock)
        self._waits_to_write = bool(self._outgoing)

    def check(self, limits: CallLimits, now: float) -> None:
        """Settle the call that is in it, where that used more than it may, or ended unseen."""
        for call in self._calls.values():
            if now - call.began < LOOK_SECONDS:
                continue
            usage = used(self.pid)
            if not usage.processes:  # what it started holds its socket open
                call.settle(ProcessEndedError())
            elif call.looked_at == call.began:
                call.cpu_before = usage.cpu_seconds if self.served > 1 else 0.0
            elif usage.is_asleep:
                # The supervisor may itself have been kept from looking.
                call.idle += min(now - call.looked_at, 2 * LOOK_SECONDS)
            call.looked_at = now
            cpu = usage.cpu_seconds - call.cpu_before
            spent = Usage(wall=now - call.began, cpu=cpu, idle=call.idle, processes=usage.processes)
            if (outcome := exceeded(spent, limits)) is not None:
                call.settle(outcome)

    def settle_all(self, outcome: Outcome | Exception) -> None:
        for call in self._calls.values():
            call.settle(outcome)

    def forget(self, call: ProcessCall) -> None:
        """Take out a call whose outcome is known or not wanted; what it printed is passed on."""
        if self._calls.pop(call.number, None) is None:
            return
        if not self._calls:
            self._read_output(call)
        if call.rest:
            self._printed(call.label, call.rest.decode(errors="replace"))
        if call.printed > MAX_OUTPUT_BYTES:
            self._printed(call.label, f"({call.printed - MAX_OUTPUT_BYTES} bytes more were printed and not kept)")

    def forget_calls(self) -> None:
        for call in list(self._calls.values()):
            self.forget(call)

    def close(self) -> None:
        self.settle_all(ProcessEndedError())
        self.forget_calls()
        self.has_ended = True
        if not self.ready.done():
            self.ready.cancel()
        if self._sock.fileno() < 0:
            return
        if self.pid:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._sock)
            loop.remove_writer(self._sock)
            loop.remove_reader(self._output)
        else:
            self._close_theirs()
        self._sock.close()
        os.close(self._output)

    def _close_theirs(self) -> None:
        for descriptor in self.theirs:
            os.close(descriptor)

    def _readable(self) -> None:
        try:
            part = self._sock.recv(1 << 18)
            frames = self._incoming.add(part)
        except BlockingIOError:
            return
        except (OSError, ValueError, RecursionError):  # it died; or wrote what is no frame
            part, frames = b"", []
        self.heard += len(frames)
        for frame in frames:
            self._handle(frame)
        if not part:
            self.has_ended = True
            asyncio.get_running_loop().remove_reader(self._sock)
            asyncio.get_running_loop().remove_writer(self._sock)
            self.settle_all(ProcessEndedError())
            if not self.ready.done():
                self.ready.set_exception(ProcessEndedError())
                self.ready.exception()

    def _handle(self, frame: Any) -> None:
        match frame:
            case {"ready": True} if not self.ready.done():
                self.ready.set_result(None)
            case {"problem": str() as problem} if not self.ready.done():
                self.ready.set_exception(ProcessEndedError(problem))
            case {"id": int() as number, "printed": str() as line}:
                if (call := self._calls.get(number)) is not None:
                    self._keep(call, f"{line}\n".encode(errors="replace"))
                else:
                    self._printed("", line)
            case {"id": int() as number, **rest} if number in self._calls and "cancelled" not in rest:
                call = self._calls[number]
                call.is_answered = True
                self._answered += 1
                call.settle(IsAsyncError() if rest.get("is_async") is True else from_wire(rest))

    def _read_output(self, call: ProcessCall | None = None) -> None:
        """Read what was printed; whose it is, is known where one call alone is in the process."""
        if call is None:
            call = next(iter(self._calls.values())) if len(self._calls) == 1 else None
        for _ in range(16):
            try:
                part = os.read(self._output, 1 << 16)
            except BlockingIOError:
                return
            if not part:
                asyncio.get_running_loop().remove_reader(self._output)
                return
            self._keep(call or ProcessCall(0, ""), part)

    def _keep(self, call: ProcessCall, part: bytes) -> None:
        left = max(0, MAX_OUTPUT_BYTES - call.printed)
        call.printed += len(part)
        *lines, call.rest = (call.rest + part[:left]).split(b"\n")
        for line in lines:
            self._printed(call.label, line.decode(errors="replace"))
