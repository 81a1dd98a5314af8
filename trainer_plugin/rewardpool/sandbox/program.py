"""One process of the sandbox: it gives up what it does not need, then runs code and answers questions about it.

Everything that runs here after `restrict` may be hostile, and can write anything to the supervisor. So it gets a
question at a time, and never an expected value.
"""

import atexit
import builtins
import contextlib
import io
import linecache
import math
import os
import random
import signal
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from rewardpool_runtime.frames import packed, receive, send, write
from rewardpool_runtime.guard.policy_code import Limits, restrict

# The code's name in its tracebacks.
FILE: Final = "<response>"
MAX_TEXT: Final = 2_000  # characters of a message
# The last frames of a traceback that are kept.
MAX_FRAMES: Final = 20


def serve(talk: int, *, parent: int) -> None:
    """Read the set-up, give up what is not needed, and answer questions until the supervisor closes the socket."""
    read = partial(os.read, talk)
    setup = receive(read)
    folder = setup["folder"]
    try:
        _set_input(setup["stdin"])
        os.chdir(folder or "/")
        restrict(Limits.read(setup), parent=parent, also_readable=[folder] if folder else [])
    except Exception as error:
        send(talk, {"refused": f"{type(error).__name__}: {error}"})
        return
    send(talk, {"ready": True})
    if folder:
        sys.path.insert(0, folder)
    _seed_random_numbers(setup["seed"])
    program = _Program(ask=lambda question: _exchange(talk, question))
    while True:
        try:
            question = receive(read)
        except EOFError:
            return
        write(talk, _answered(program, question))


def _exchange(talk: int, question: Mapping[str, Any]) -> Any:
    send(talk, question)
    return receive(partial(os.read, talk))


def _answered(program: "_Program", question: Mapping[str, Any]) -> bytes:
    """Return the frame of an answer: `value`, or what was `raised`."""
    try:
        return packed({"value": getattr(program, question["do"])(**question["arguments"])})
    except SystemExit as error:
        return packed({"exited": _exit_code(error)})
    except BaseException as error:  # KeyboardInterrupt and the policy's own among them
        return packed(_description(error))
    finally:
        _flush()


def _exit_code(error: SystemExit) -> int:
    """Return what the process would end with; Python writes a code that is a text to standard error."""
    if error.code is None or isinstance(error.code, int):
        return int(error.code or 0) & 0xFF
    print(str(error.code)[:MAX_TEXT], file=sys.stderr)
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the code closed or replaced it
            stream.flush()


def _description(error: BaseException) -> dict[str, Any]:
    name = next((kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"), "Exception")
    try:
        text = str(error)[:MAX_TEXT]
    except BaseException:  # its __str__ is the policy's
        text = ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    if isinstance(error, SyntaxError) and error.filename == FILE:
        lines = [error.lineno]
    return {"raised": name, "text": text, "line": lines[-1] if lines else None}


def _print_traceback(error: BaseException) -> None:
    """Write what Python would write to standard error, from the code's own frames on, and no more than its end."""
    with contextlib.suppress(BaseException):  # its __str__ is the policy's, and so is the stream
        frame = error.__traceback__
        while frame is not None and frame.tb_frame.f_code.co_filename != FILE:
            frame = frame.tb_next
        lines = traceback.format_exception(type(error), error, frame, limit=-MAX_FRAMES)
        sys.stderr.write("".join(lines)[-MAX_TEXT:])


class _Program:
    """The code's names, and what can be asked about them."""

    def __init__(self, *, ask: Callable[[Mapping[str, Any]], Any]) -> None:
        self._names: dict[str, Any] = {}
        self._ask = ask

    def _module(self, name: str) -> dict[str, Any]:
        """Return the names of a new module, which `sys.modules` has as any other."""
        module = sys.modules[name] = types.ModuleType(name)
        self._names = vars(module)
        self._names["__builtins__"] = builtins
        return self._names

    def load(self, code: str) -> None:
        exec(compile(code, FILE, "exec"), self._module("response"))  # noqa: S102  # what the sandbox is for

    def run(self, code: str) -> None:
        """Run the code as a program, to its very end."""
        linecache.cache[FILE] = (len(code), None, code.splitlines(keepends=True), FILE)
        try:
            exec(compile(code, FILE, "exec"), self._module("__main__"))  # noqa: S102  # as above
        except SystemExit:
            raise
        except BaseException as error:
            _print_traceback(error)
            raise
        finally:
            atexit._run_exitfuncs()
            self._names.clear()  # files that it left open are written

    def call(self, function: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return what a function of the code returns; its name may be an expression, such as `Solution().add`."""
        return eval(function, self._names)(*args, **kwargs)  # noqa: S307  # as the code itself

    def call_tagged(self, function: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Do the same for an assertion, whose values keep Python's types."""
        return tagged(self._names[function](*untagged(args), **untagged(kwargs)))

    def check(self, assertion: str, functions: list[str]) -> bool:
        """Run an assertion, for which the functions of another process are called by way of the supervisor."""
        if not self._names:
            self._module("assertions").update({name: self._elsewhere(name) for name in functions})
        exec(compile(assertion, "<assertion>", "exec"), self._names)  # noqa: S102  # of the reward function's author
        return True

    def _elsewhere(self, function: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = self._ask({"call": function, "args": tagged(list(args)), "kwargs": tagged(kwargs)})
            if "value" in answer:
                return untagged(answer["value"])
            kind = getattr(builtins, str(answer["raised"]), None)
            # StopIteration would end the loop that calls, as if there were nothing to compare.
            if not (isinstance(kind, type) and issubclass(kind, Exception)) or kind in (
                StopIteration,
                StopAsyncIteration,
            ):
                kind = RuntimeError
            try:
                error = kind(answer["text"])
            except TypeError:  # UnicodeDecodeError and such want more than a text
                error = RuntimeError(f"{answer['raised']}: {answer['text']}")
            raise error

        return call


def tagged(value: Any) -> Any:
    """Return a value as JSON that names the types which JSON lacks. Raises TypeError for an object of another type."""
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind in (list, tuple, set, frozenset):
        return {kind.__name__: [tagged(one) for one in value]}
    if kind is dict:
        return {"dict": [[tagged(key), tagged(one)] for key, one in value.items()]}
    if kind is float:
        return {"float": repr(value)}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bool | int | float | str | list | tuple | dict | set):  # as equality has it
        return tagged(next(base for base in kind.__mro__ if base in _PLAIN)(value))
    raise TypeError(f"an assertion cannot be given a {kind.__name__}")


_PLAIN: Final[tuple[type[Any], ...]] = (bool, int, float, str, list, tuple, dict, set)


def untagged(value: Any) -> Any:
    """Return what `tagged` was given."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "dict":
        return {untagged(key): untagged(one) for key, one in inner}
    if kind in ("list", "tuple", "set", "frozenset"):
        return getattr(builtins, kind)(untagged(one) for one in inner)
    if kind == "float":
        return float(inner)
    return bytes.fromhex(inner) if kind == "bytes" else complex(*inner)


def _set_input(text: str) -> None:
    """Make a text the standard input, also for what reads descriptor 0; a pipe would have to be fed."""
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode(errors="surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.close(descriptor)
    read = io.BufferedReader(io.FileIO(0, "rb", closefd=False))
    sys.stdin = io.TextIOWrapper(read, encoding="utf-8", errors="replace")
    sys.argv = ["main.py"]
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = io.FileIO(number, "wb", closefd=False)
        wrapped = io.TextIOWrapper(io.BufferedWriter(stream), encoding="utf-8", errors="backslashreplace")
        setattr(sys, name, wrapped)


def _seed_random_numbers(seed: int) -> None:
    """Seed anew what the parent's children would share."""
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)


def become(talk: int, output: int, errors: int, *, parent: int) -> None:
    """Become such a process, in a fresh fork, and end."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        os.closerange(3, talk)  # what a preloaded module has open
        os.closerange(talk + 1, 1 << 20)
        serve(talk, parent=parent)
        status = 0
    except BaseException:  # the sandbox's own fault: before code is loaded, or after the supervisor has gone
        traceback.print_exc()
        _flush()
    finally:
        os._exit(status)  # no handler of the parent's and none that the code left behind
