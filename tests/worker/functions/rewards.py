"""A user's reward functions, well behaved and not. What they do is in the sample's `solution_str`."""

import asyncio
import ctypes
import os
import time
from pathlib import Path
from typing import Any

from rewardpool.errors import SandboxError


def length(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    return float(len(solution_str))


async def length_async(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    await asyncio.sleep(0.01)
    return float(len(solution_str))


def detailed(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
    return {"score": 1.0, "correct": solution_str == ground_truth, "from": data_source, "pid": os.getpid()}


def obedient(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> Any:
    """Does as the sample says."""
    match solution_str.split():
        case ["raise"]:
            raise KeyError("no such answer")
        case ["exit"]:
            raise SystemExit(3)
        case ["sleep", seconds]:
            time.sleep(float(seconds))
        case ["announce", path, seconds]:
            Path(path).touch()
            time.sleep(float(seconds))
        case ["crash"]:
            ctypes.string_at(0)
        case ["no-sandbox"]:
            raise SandboxError("starved")
        case ["die"]:
            os._exit(11)
        case ["die-once", path] if not Path(path).exists():
            Path(path).touch()
            os._exit(11)
        case ["pid"]:
            return {"score": 0.0, "pid": os.getpid()}
    return 1.0


def printing(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    print(solution_str)
    return 1.0


def environment(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
    return {"score": 1.0, **os.environ}


def counted(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    """Adds a line for this call to a file, and takes so many seconds."""
    path, seconds = solution_str.split()
    with Path(path).open("a") as calls:
        calls.write("call\n")
    time.sleep(float(seconds))
    return 1.0


async def obedient_async(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> Any:
    if solution_str == "raise":
        raise KeyError("no such answer")
    await asyncio.sleep(60 if solution_str == "hang" else 0)
    return 1.0


not_callable = 3


def needs_level(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any, level: int) -> float:
    return float(level)


class OwnError(BaseException):
    """No exception of Python's."""


class UnspeakableError(Exception):
    """One whose text raises."""

    def __str__(self):
        raise ValueError("no text")


def raises(solution_str, **_):
    errors = {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}
    errors |= {"CancelledError": asyncio.CancelledError, "OwnError": OwnError, "UnspeakableError": UnspeakableError}
    if solution_str in errors:
        raise errors[solution_str]("of the function")
    return 1.0


async def raises_async(solution_str, **_):
    if solution_str == "waits":
        await asyncio.Event().wait()
    return raises(solution_str)


class _Result:
    """A mapping's score that raises as it is read."""

    ndim = 0

    def __init__(self, name):
        self.name = name

    def item(self):
        return raises(self.name)


def raises_as_it_returns(solution_str, **_):
    return {"score": _Result(solution_str)}


def keyless(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
    with open(solution_str) as file:
        return float(len(file.read()))
