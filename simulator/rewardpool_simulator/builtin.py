"""The traces that come with the package, a file each in `traces/`, which gives the reason for every figure."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from rewardpool_simulator.trace import Trace, TraceError, parse_trace

NAMES: Final = ("sync-grpo", "one-step-off", "fully-async", "several-jobs", "long-tailed-judge", "spot-loss")


def trace_text(name: str) -> str:
    """Return the YAML of a trace that comes with the package."""
    return (files(__package__) / "traces" / f"{name}.yaml").read_text("utf-8")


def load_trace(name: str) -> Trace:
    """Return the trace of that name, or of the file at that path.

    Raises:
        TraceError: no such trace or file exists, or it is not valid.
        OSError: the file cannot be read.
    """
    if name in NAMES:
        return parse_trace(trace_text(name), name=name)
    path = Path(name)
    if not path.exists():
        raise TraceError(f"{name} is neither a file nor one of {', '.join(NAMES)}")
    return parse_trace(path.read_text("utf-8"), name=name)
