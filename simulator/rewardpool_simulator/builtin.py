"""The traces that come with the package, a file each in `traces/`, where every figure has its reason."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from rewardpool_simulator.trace import Trace, TraceError, parse_trace

NAMES: Final = ("sync-grpo", "one-step-off", "fully-async", "several-jobs", "long-tailed-judge", "spot-loss")


def text_of(name: str) -> str:
    """The file of a trace that comes with the package."""
    return (files(__package__) / "traces" / f"{name}.yaml").read_text("utf-8")


def load_trace(name: str) -> Trace:
    """A trace that comes with the package, or that of a file.

    Raises:
        TraceError: there is no such trace, or it makes no sense.
        OSError: the file cannot be read.
    """
    if name in NAMES:
        return parse_trace(text_of(name), name=name)
    path = Path(name)
    if not path.exists():
        raise TraceError(f"{name} is neither a file nor one of {', '.join(NAMES)}")
    return parse_trace(path.read_text("utf-8"), name=name)
