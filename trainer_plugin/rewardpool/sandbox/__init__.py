"""Run code that a policy wrote: no secret, network, file or process within its reach, and no verdict of its own.

from rewardpool.sandbox import Call, run

verdict = run(code, calls=[Call(function="add", args=[2, 3], expected=5)], cpu_seconds=1)

docs/sandbox.md has what it promises, and what it does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewardpool.sandbox.runner import Call as Call
    from rewardpool.sandbox.runner import run as run
    from rewardpool.sandbox.verdict import Outcome as Outcome
    from rewardpool.sandbox.verdict import Verdict as Verdict

_MODULES = {"Call": "runner", "Outcome": "verdict", "Verdict": "verdict", "run": "runner"}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    # The zygote imports modules of this folder and needs neither errors nor pydantic.
    if name in _MODULES:
        return getattr(import_module(f"rewardpool.sandbox.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
