"""From `module:function`, or a pickled one, to what is called; what cannot be is refused before the first sample."""

import importlib
import inspect
import os
import pickle
from collections.abc import Callable, Iterable
from typing import Any, Final

from rewardpool_runtime.functions.outcome import FunctionArguments, error_text, user_frames

NO_FUNCTION: Final = "the module {} has no function {}"
OTHER_PARAMETERS: Final = "it cannot be called with"


class FunctionLoadError(Exception):
    """There is no such function, or it cannot be called; the text has the user's line, or says what is missing."""


def load_function(reference: str) -> Callable[..., Any]:
    """Import `module:function`, where a dot leads into a class or object of the module.

    Raises:
        FunctionLoadError: The module cannot be imported, or has no such function.
    """
    module_name, _, name = reference.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except BaseException as error:  # a module runs any code while it is imported
        raise _unloadable(reference, _place(error) + error_text(error)) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise _unloadable(reference, NO_FUNCTION.format(module_name, name))
        found = getattr(found, part)
    return _callable(reference, found)


def unpickled(name: str, content: bytes) -> Callable[..., Any]:
    """Return the function that the job pickled; raises FunctionLoadError."""
    try:
        function = pickle.loads(content)  # noqa: S301 - the job is who starts this process
    except BaseException as error:
        raise _unloadable(name, _place(error) + error_text(error)) from error
    return _callable(name, function)


def _callable(name: str, found: Any) -> Callable[..., Any]:
    if not callable(found):
        raise _unloadable(name, f"it is a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def check_signature(function: Callable[..., Any], *, name: str, further: Iterable[str] = ()) -> None:
    """Refuse a function that cannot be called with the arguments of a sample, before there is one.

    Args:
        function: The user's, loaded.
        further: Names of arguments that are given besides those of a sample.

    Raises:
        FunctionLoadError: Its parameters are others.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # of some functions that are not written in Python
        return
    given = [*FunctionArguments.__dataclass_fields__, *further]
    try:
        signature.bind(**dict.fromkeys(given))
    except TypeError as error:
        problem = f"{OTHER_PARAMETERS} {', '.join(dict.fromkeys(given))} by name ({error}); its parameters are"
        raise _unloadable(name, f"{problem} {signature}") from None


def _unloadable(name: str, problem: str) -> FunctionLoadError:
    # In one line: a log's reader finds it by that.
    return FunctionLoadError(f"cannot load the function {name}: {' '.join(problem.split())}")


def _place(error: BaseException) -> str:
    """Return file and line of the user's code at fault, as `checker.py:3: `; empty where it is none of theirs."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}:{error.lineno}: "
    frames = user_frames(error)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
