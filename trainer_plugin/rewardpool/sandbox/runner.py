"""Run code that a policy wrote, and compare what it does with what was expected, outside of its reach.

    verdict = run(code, calls=[Call(function="add", args=[2, 3], expected=5)])
    score = verdict.score

The expected values never enter the process that runs the code, so that no code can find, patch or imitate them:
values come out as JSON and are compared here, and assertions run in a second process, where the code's functions are
calls to the first.
"""

import builtins
import contextlib
import json
import math
import symtable
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rewardpool.errors import SandboxError
from rewardpool.sandbox.parent import zygotes
from rewardpool.sandbox.process import Ended, ForkedProcess, ProcessLimits
from rewardpool.sandbox.verdict import Outcome, Verdict

MAX_CODE_BYTES: Final = 1024 * 1024
MAX_NUMBER: Final = 1_000_000
MAX_NAME_BYTES: Final = 255
MAX_MESSAGE: Final = 500  # characters


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of one of the code's functions.

    Attributes:
        function: Its name, or an expression for it such as `Solution().add`.
        args: As JSON's types; a tuple arrives as a list.
        expected: What it returns. Types count: True is not 1, and 1 is not 1.0; a tuple is a list.
        tolerance: By which a float may be off, relative to the larger of both and absolute.
    """

    function: str
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    expected: Any
    tolerance: float = 0.0


def run(
    code: str,
    *,
    stdin: str = "",
    tests: Sequence[tuple[str, str]] = (),
    calls: Sequence[Call] = (),
    asserts: Sequence[str] = (),
    functions: Sequence[str] = (),
    files: Mapping[str, str | bytes] | None = None,
    cpu_seconds: float = 2.0,
    idle_seconds: float = 2.0,
    memory_mib: int = 256,
    output_kib: int = 64,
    preload: Sequence[str] = (),
) -> Verdict:
    """Run Python code in a sandbox, and return what came of it. May be called by several threads.

    The code has no network, no other process, no thread, no file but Python's own, `files` and its standard streams,
    and none to write to. Its limits are those of one process: one for each test, one for all calls, two for the
    assertions.

    Args:
        stdin: Standard input, where there are no `tests`.
        tests: Standard input of a program, and its standard output; trailing white space of lines does not count.
        asserts: Statements of Python about functions of a module, such as `assert add(2, 3) == 5`. Arguments and
            results are copies, of Python's plain types.
        functions: Names of those functions; by default every name that the assertions use, that no one of them
            defines and that is not a builtin function's.
        files: Contents by name, which the code may read in its working folder, and import.
        cpu_seconds: Processor time, which on a busy machine takes longer.
        idle_seconds: In which the code could have run, and waited instead.
        memory_mib: Beyond an interpreter with what is preloaded.
        output_kib: On standard output and error, together.
        preload: Modules that are imported once for all runs, such as `numpy`.

    Raises:
        ValueError: An argument is wrong.
        SandboxError: The machine's fault: starved, out of memory, a process killed from outside. Try again.
        SandboxUnavailableError: This machine cannot make a sandbox; the message says what it lacks.
    """
    expected = _checked(
        tests, calls, asserts, functions, files or {}, cpu_seconds, idle_seconds, memory_mib, output_kib
    )
    called = list(functions) or _functions_of(asserts)
    total = len(tests) + len(calls) + len(asserts)
    allowance = ProcessLimits(
        cpu_seconds=cpu_seconds,
        idle_seconds=idle_seconds,
        memory_bytes=memory_mib << 20,
        output_bytes=output_kib << 10,
    )
    if len(code.encode(errors="surrogatepass")) > MAX_CODE_BYTES:
        message = f"the code has more than {MAX_CODE_BYTES} bytes"
        return Verdict(outcome="raised", passed=0, total=total, message=message, exit_code=1)
    with _folder(files or {}) as folder:
        work = _Run(code, allowance, folder=folder, preload=preload)
        for given, output in tests:
            work.test(given, output)
        if calls:
            work.calls(calls, expected, stdin)
        if asserts:
            work.asserts(asserts, called, stdin)
        if not total:
            work.program(stdin)
    return work.verdict(total)


class _Run:
    def __init__(self, code: str, allowance: ProcessLimits, *, folder: str | None, preload: Sequence[str]) -> None:
        self._code = code
        self._allowance = allowance
        self._folder = folder
        self._zygote = zygotes.get(preload)
        self._passed = 0
        self._outcome: Outcome = "passed"
        self._message = ""
        self._values: list[Any] = []
        self._written: list[str] = []
        self._errors: list[str] = []
        self._cpu_seconds = 0.0
        self._exit_code: int | None = None

    def verdict(self, total: int) -> Verdict:
        return Verdict(
            outcome=self._outcome,
            passed=self._passed,
            total=total,
            values=self._values,
            stdout="".join(self._written),
            stderr="".join(self._errors),
            cpu_seconds=self._cpu_seconds,
            message=_shown(self._message),
            exit_code=self._exit_code,
        )

    def program(self, stdin: str) -> str | None:
        """Run the code as a program; return its output, or None where it did not end well."""
        self._exit_code = None
        try:
            with self._process(stdin) as process:
                answer = process.request("run", code=self._code)
                self._exit_code = _exit_code(answer)
                if self._exit_code != 0:
                    _check_loaded(answer)
        except Ended as ended:
            if self._exit_code is None:
                self._exit_code = ended.exit_code
            if self._exit_code != 0:
                self._failed(ended.outcome, ended.message)
                return None
        return self._written[-1]

    def test(self, stdin: str, expected: str) -> None:
        output = self.program(stdin)
        if output is None:
            return
        if _lines(output) == _lines(expected):
            self._passed += 1
        else:
            self._failed("failed", f"wrote {output[:MAX_MESSAGE]!r} and not {expected[:MAX_MESSAGE]!r}")

    def calls(self, calls: Sequence[Call], expected: Sequence[Any], stdin: str) -> None:
        try:
            with self._process(stdin) as process:
                _check_loaded(process.request("load", code=self._code))
                for call, wanted in zip(calls, expected, strict=True):
                    answer = process.request("call", function=call.function, args=call.args, kwargs=call.kwargs)
                    self._values.append(answer.get("value"))
                    self._compare(call, answer, wanted)
        except Ended as ended:
            self._failed(ended.outcome, ended.message)
        self._values += [None] * (len(calls) - len(self._values))

    def _compare(self, call: Call, answer: Mapping[str, Any], wanted: Any) -> None:
        if "value" not in answer:
            self._failed(*_problem(answer))
        elif same(answer["value"], wanted, call.tolerance):
            self._passed += 1
        else:
            self._failed(
                "failed",
                f"{call.function} returned {answer['value']!r:.{MAX_MESSAGE}} and not {wanted!r:.{MAX_MESSAGE}}",
            )

    def asserts(self, asserts: Sequence[str], functions: Sequence[str], stdin: str) -> None:
        try:
            with self._process(stdin) as code, self._process("") as assertions:
                _check_loaded(code.request("load", code=self._code))
                for assertion in asserts:
                    answer = assertions.request("check", assertion=assertion, functions=functions)
                    while "call" in answer:
                        reply = code.request(
                            "call_tagged", function=answer["call"], args=answer["args"], kwargs=answer["kwargs"]
                        )
                        answer = assertions.answer(_relayed(reply))
                    if answer.get("value") is True:
                        self._passed += 1
                    elif answer.get("raised") == "AssertionError":
                        self._failed(
                            "failed", f"{assertion[:MAX_MESSAGE]} does not hold: {answer['text']}".rstrip(": ")
                        )
                    else:
                        self._failed(*_problem(answer))
        except Ended as ended:
            self._failed(ended.outcome, ended.message)

    @contextlib.contextmanager
    def _process(self, stdin: str) -> Iterator[ForkedProcess]:
        process = ForkedProcess(self._zygote, self._allowance, stdin=stdin, folder=self._folder)
        try:
            yield process
        finally:
            self._cpu_seconds += process.close()
            self._written.append(process.stdout)
            self._errors.append(process.stderr)

    def _failed(self, outcome: Outcome, message: str) -> None:
        """Keep the first failure."""
        if self._outcome == "passed":
            self._outcome, self._message = outcome, message


def same(value: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Return whether two values of JSON are equal, types included."""
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list):
        return len(value) == len(expected) and all(
            same(one, other, tolerance) for one, other in zip(value, expected, strict=True)
        )
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            same(value[key], other, tolerance) for key, other in expected.items()
        )
    if isinstance(expected, float) and tolerance:
        return math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance)
    return bool(value == expected)


def _check_loaded(answer: Mapping[str, Any]) -> None:
    """Raise Ended where the code did not run to its end."""
    if "value" not in answer:
        raise Ended(*_problem(answer))


def _exit_code(answer: Mapping[str, Any]) -> int:
    """Return the exit code of a program that ran to its end, as Python makes it of what was raised."""
    if "value" in answer:
        return 0
    code = answer.get("exited")
    return code if type(code) is int else 1


def _problem(answer: Mapping[str, Any]) -> tuple[Outcome, str]:
    if "exited" in answer:
        return "exited", f"called exit({str(answer['exited'])[:MAX_MESSAGE]})"
    name = str(answer.get("raised"))[:MAX_MESSAGE]
    if name == "MemoryError":
        return "memory_exceeded", "ran out of its memory"
    line = answer.get("line")
    where = f" in line {line}" if isinstance(line, int) else ""
    return "raised", f"{name}: {str(answer.get('text'))[:MAX_MESSAGE]}{where}"


def _relayed(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of the code's, as its assertions may see it."""
    if "value" in reply:
        return {"value": reply["value"]}
    if "exited" in reply:
        return {"raised": "RuntimeError", "text": "the code called exit()"}
    return {"raised": str(reply.get("raised")), "text": str(reply.get("text"))}


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _shown(text: str) -> str:
    """Return a text that can be printed and encoded, whatever code made it of."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _functions_of(asserts: Sequence[str]) -> list[str]:
    """Return the names that assertions use and neither they nor Python define: those of the code's functions.

    Raises:
        ValueError: There are none, and no assertion would be about the code.
    """
    # Decided here and not in the sandbox, where the code could add `abs` to them.
    tables = [symtable.symtable(assertion, "<assertion>", "exec") for assertion in asserts]
    own = {one.get_name() for table in tables for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    used = {name for table in tables for name in _globals_of(table)}
    found = sorted(used - own - {*dir(builtins)})
    if asserts and not found:
        raise ValueError(
            "asserts: they call no function of the code; name it in functions if Python has one of its name"
        )
    return found


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names of a module that its code refers to, in functions and comprehensions too."""
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_module or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals_of(inner)


def is_file_name(name: str) -> bool:
    """Return whether a file in a folder can have that name."""
    return name not in ("", ".", "..") and not {"/", "\0"} & {*name} and len(name.encode()) <= MAX_NAME_BYTES


@contextlib.contextmanager
def _folder(files: Mapping[str, str | bytes]) -> Iterator[str | None]:
    if not files:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rewardpool-sandbox-"))
            for name, content in files.items():
                Path(folder, name).write_bytes(content.encode() if isinstance(content, str) else content)
        except OSError as error:
            raise SandboxError(f"files: {', '.join(files)} cannot be written: {error}") from error
        yield folder


def _checked(
    tests: Sequence[tuple[str, str]],
    calls: Sequence[Call],
    asserts: Sequence[str],
    functions: Sequence[str],
    files: Mapping[str, str | bytes],
    *numbers: float,
) -> list[Any]:
    """Return what the calls are expected to return, as JSON has it; raise ValueError with all that is wrong."""
    problems = []
    names = ("cpu_seconds", "idle_seconds", "memory_mib", "output_kib")
    problems += [
        f"{name}: must be a positive number, not {number!r}"
        for name, number in zip(names, numbers, strict=True)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= MAX_NUMBER
    ]
    problems += [
        f"{name}: must be a whole number, not {number!r}"
        for name, number in zip(names[2:], numbers[2:], strict=True)
        if not isinstance(number, int)
    ]
    for index, test in enumerate(tests):
        if not (isinstance(test, tuple | list) and len(test) == 2 and all(isinstance(text, str) for text in test)):
            problems.append(f"tests[{index}]: must be a pair of texts: standard input, and the output to expect")
    problems += [
        f"asserts[{index}]: {problem}" for index, one in enumerate(asserts) if (problem := _not_python(one, "exec"))
    ]
    problems += [f"functions: {name!r} must be a name" for name in functions if not str.isidentifier(name)]
    problems += [
        f"files: {name!r} must be a name without a folder, and its value a text or bytes"
        for name, content in files.items()
        if not is_file_name(name) or not isinstance(content, str | bytes)
    ]
    expected = []
    for index, call in enumerate(calls):
        if problem := _not_python(call.function, "eval"):
            problems.append(f"calls[{index}].function: {problem}")
        if not isinstance(call.kwargs, dict) or isinstance(call.args, str):
            problems.append(f"calls[{index}]: args must be a list, and kwargs a mapping")
        if isinstance(call.tolerance, bool) or not isinstance(call.tolerance, int | float) or not call.tolerance >= 0:
            problems.append(f"calls[{index}].tolerance: must be a number of at least 0, not {call.tolerance!r}")
        for part in ("args", "kwargs", "expected"):
            try:
                text = json.dumps(getattr(call, part), allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                problems.append(f"calls[{index}].{part}: JSON cannot represent it: {error}")
            else:
                if part == "expected":
                    expected.append(json.loads(text))
    if problems:
        raise ValueError("\n".join(problems))
    return expected


def _not_python(text: object, mode: str) -> str:
    """Return why a text is not Python; empty where it is."""
    if not isinstance(text, str):
        return f"must be a text, not {text!r:.50}"
    try:
        compile(text, "<text>", mode)
    except (SyntaxError, ValueError) as error:
        return f"{text!r:.100} is no Python: {error}"
    return ""
