"""The arguments of a call, and what it becomes: what counts as a score, and what is said where there is none.

Imported in the processes that run functions too, so it imports nothing heavy.
"""

import errno
import inspect
import os
import site
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rewardpool_runtime.json_values import NotJsonError, described, finite, json_value, shown

if TYPE_CHECKING:
    from rewardpool_api.contract import Fault

MAX_MESSAGE: Final = 2000  # characters
MAX_TRACEBACK: Final = 16_000
SHOWN_FRAMES: Final = 4
LEFT_OUT: Final = "left_out"
"""Beside a score: the names of what the function returned and JSON cannot hold, each with the reason."""
NO_FURTHER: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class FunctionArguments:
    """The arguments of one call, named as verl's reward functions name them."""

    data_source: str
    solution_str: str
    ground_truth: Any = None
    extra_info: dict[str, Any] | None = None

    def with_further(self, further: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments of the call; `further` ones win, as verl's `reward_kwargs` do."""
        return {**vars(self), **further}


@dataclass(frozen=True)
class FunctionScore:
    """A score, and whatever else the function returned beside it."""

    value: float
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """The function gave no score.

    Attributes:
        message: Why; of an exception, its type first.
        fault: `verifier`; `policy` where it used more processor time than it may; `infra` where the machine is the
            cause, and another one may score the sample.
        traceback: Of an exception, whole, for a log.
    """

    message: str
    fault: "Fault" = "verifier"
    traceback: str = field(default="", compare=False)


Outcome = FunctionScore | Failed


def called(function: Callable[..., Any], arguments: Mapping[str, Any], memory: str = "") -> Outcome | None:
    """Call a function, and return its outcome; None where what it returned is to be awaited, which is not done."""
    try:
        result = function(**arguments)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()  # else it would warn that nobody awaited it
            return None
        return read_result(result)
    except BaseException as error:  # of the user's code, where nothing else interrupts or cancels
        return failed(error, memory=memory)


def read_result(result: Any) -> Outcome:
    """Turn what a function returned into a score, or into why there is none.

    A score is a finite real number or a truth value, of Python, numpy or torch, or a mapping with one under `score`.
    What else the mapping has is passed on as JSON has it; a value that JSON cannot hold never costs the score: it is
    left out, and `left_out` says why.
    """
    info: dict[str, Any] = {}
    if isinstance(result, Mapping):
        if "score" not in result:
            return Failed(f"the function returned a mapping without `score`; it has {sorted(map(str, result))!r:.300}")
        info, result = _beside_score(result), result["score"]
    number = _number(result)
    if number is None:
        what = "None" if result is None else f"{shown(result)} ({described(result)})"
        return Failed(f"the function returned {what}, not a number, a truth value, or a mapping with one under `score`")
    value = finite(number)
    return (
        Failed(f"the function returned {shown(number)}, no finite number")
        if value is None
        else FunctionScore(value, info)
    )


def _number(result: Any) -> Real | None:
    if isinstance(result, Real):
        return result
    if getattr(result, "ndim", None) == 0 and hasattr(result, "item"):  # one value of numpy's or torch's
        result = result.item()
    return result if isinstance(result, Real) else None


def _beside_score(result: Mapping[Any, Any]) -> dict[str, Any]:
    info: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name, value in result.items():
        if name == "score":
            continue
        try:
            info.update(json_value({name: value}, "the result"))
        except NotJsonError as error:
            left_out[str(name)] = str(error)
    return {**info, LEFT_OUT: left_out} if left_out else info


def failed(error: BaseException, *, memory: str = "") -> Failed:
    """Return what an exception of the user's code becomes: its type and text, and where in that code it was raised.

    Args:
        error: What was raised.
        memory: The limit that a MemoryError has met, in words.
    """
    where = " > ".join(f"{os.path.basename(one.filename)}:{one.lineno} {one.name}" for one in user_frames(error))
    message = error_text(error)[:MAX_MESSAGE] + _limit_of(error, memory) + (f" ({where})" if where else "")
    return Failed(message, _fault(error), traceback=_whole(error))


def _fault(error: BaseException) -> "Fault":
    """Return the fault of an exception: of the machine where it says so, as that of a sandbox does."""
    try:
        fault = getattr(error, "fault", None)
    except BaseException:  # the user's code too
        fault = None
    return "infra" if isinstance(fault, str) and fault == "infra" else "verifier"


def error_text(error: BaseException) -> str:
    """Return the type and text of what the user's code raised."""
    try:
        text = str(error)
    except BaseException:  # which is the user's code too
        text = "(its text cannot be read)"
    return f"{type(error).__name__}: {text}"


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the last few places of the user's own code that an exception passed, the last one last."""
    try:
        frames = traceback.extract_tb(error.__traceback__)
    except Exception:  # of a traceback that code of the user's made
        return []
    return [frame for frame in frames if _is_users(frame.filename)][-SHOWN_FRAMES:]


def _is_users(file: str) -> bool:
    return not file.startswith(_others_folders()) and not file.startswith("<frozen ")


@cache
def _others_folders() -> tuple[str, ...]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return tuple(f"{path}{os.sep}" for path in {*paths, *site.getsitepackages(), own})


def _whole(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    except BaseException:  # its text is the user's code
        return ""


def _limit_of(error: BaseException, memory: str) -> str:
    number = getattr(error, "errno", None)
    if isinstance(error, MemoryError) and memory:
        return f" ({memory})"
    if isinstance(error, OSError) and number == errno.EFBIG:
        return " (a file may have 1 GiB)"
    if isinstance(error, OSError) and number == errno.EMFILE:
        return " (a process may have so many files open as `ulimit -n` says)"
    return ""


def to_wire(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON values."""
    if isinstance(outcome, FunctionScore):
        return {"score": outcome.value, "info": outcome.info}
    return {"failed": outcome.message, "fault": outcome.fault, "traceback": outcome.traceback}


def from_wire(value: Any) -> Outcome:
    """Return an outcome from a frame, which the user's code may have written."""
    match value:
        case {"score": float() | int() as score, "info": dict() as info} if (number := finite(score)) is not None:
            return FunctionScore(number, info)
        case {
            "failed": str() as message,
            "fault": "verifier" | "policy" | "infra" as fault,
            "traceback": str() as whole,
        }:
            return Failed(message, fault, whole)
    return Failed("the function wrote something else than a result to the descriptor of its results")


def is_async(function: Any) -> bool:
    """Return whether a function's definition says that its calls are coroutines."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 - the method is what is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
