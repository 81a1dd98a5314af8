"""Command line of each engine: pure functions from a pool's spec to a command line.

The operator puts the result into a pod, the local mode into a process; neither knows an engine's flags. A new engine is
one module with a `launch` function and one line in `engine_for`'s table.
"""

from rewardpool_worker.engines.engine import Engine, engine_for
from rewardpool_worker.engines.launch import Launch, LaunchTarget

__all__ = ["Engine", "Launch", "LaunchTarget", "engine_for"]
