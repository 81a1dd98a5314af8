"""A function's process: serves calls by a socket, the next when the last one is answered, or async ones together.

A call is `{"id": n, "arguments": {...}}`, and its answer an outcome with that id. What the function prints goes to
another pipe, so that it is never taken for a result; of an async function, each line with its call's id as a frame.
"""

import contextlib
import functools
import inspect
import io
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from rewardpool_runtime.frames import Incoming, packed, receive
from rewardpool_runtime.functions.outcome import (
    LEFT_OUT,
    Failed,
    FunctionScore,
    Outcome,
    called,
    failed,
    read_result,
    to_wire,
)

Function = Callable[..., Any]


def serve(talk: int, function: Function | None, *, memory: str) -> None:
    """Answer calls until the supervisor closes the socket; the first frame says whether they are async."""
    sock = socket.socket(fileno=talk)
    _reseed()
    if function is None:
        return
    with contextlib.suppress(EOFError, ConnectionError):
        call = receive(sock.recv)
        if "async" in call:
            _serve_async(sock, function, memory)
        while True:
            sock.sendall(_frame(call["id"], _called(function, call["arguments"], memory)))
            call = receive(sock.recv)


def _called(function: Function, arguments: dict[str, Any], memory: str) -> dict[str, Any]:
    try:
        outcome = called(function, arguments, memory)
    finally:
        signal.alarm(0)  # none that the function set interrupts the next call, or this one's answer
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
    return {"is_async": True} if outcome is None else to_wire(outcome)


def _frame(number: int, answer: dict[str, Any]) -> bytes:
    try:
        return packed({"id": number, **answer})
    except BaseException as error:  # it is too large, or the function changed what writes it
        problem = f"{type(error).__name__}: {error}"
    if "score" in answer:
        answer = to_wire(FunctionScore(answer["score"], {LEFT_OUT: {"(all of it)": f"cannot be sent: {problem}"}}))
    else:
        answer = to_wire(Failed(f"what the function raised cannot be sent: {problem}"))
    return packed({"id": number, **answer})


def _reseed() -> None:
    """Give this process random numbers of its own; Python's own module does so by itself."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy.random.seed()


def _serve_async(sock: socket.socket, function: Function, memory: str) -> None:
    import asyncio
    import contextvars

    now = contextvars.ContextVar[int]("the call that runs", default=0)

    async def answer(number: int, arguments: dict[str, Any]) -> Outcome:
        now.set(number)
        try:
            result = function(**arguments)
            return read_result(await result if inspect.isawaitable(result) else result)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            return failed(error, memory=memory)

    async def serve_all() -> None:
        reader, writer = await asyncio.open_connection(sock=sock)
        calls: dict[int, asyncio.Task[Outcome]] = {}

        def write(frame: bytes) -> None:
            writer.write(frame)

        def done(number: int, task: "asyncio.Task[Outcome]") -> None:
            del calls[number]
            if not task.cancelled():
                write(_frame(number, to_wire(task.result())))

        for name in ("stdout", "stderr"):
            setattr(sys, name, _Lines(lambda line: write(packed({"id": now.get(), "printed": line}))))
        incoming = Incoming()
        while part := await reader.read(1 << 16):
            for request in incoming.add(part):
                if (task := calls.get(request["id"])) is not None:  # it is cancelled
                    task.cancel()
                if "arguments" in request:
                    calls[request["id"]] = task = asyncio.create_task(answer(request["id"], request["arguments"]))
                    task.add_done_callback(functools.partial(done, request["id"]))
                else:
                    write(packed({"id": request["id"], "cancelled": True}))

    asyncio.run(serve_all())
    raise EOFError


class _Lines(io.TextIOBase):
    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + str(text)).split("\n")
        for line in lines:
            self._write(line)
        return len(text)

    def writable(self) -> bool:
        return True
