"""Output of commands, and the few things that all their screens share."""

import logging
import sys

from rich.console import Console
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler

from rewardpool_api import RewardPool

PLAIN_WIDTH = 160

out = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
err = Console(stderr=True, width=None if sys.stderr.isatty() else PLAIN_WIDTH, highlight=False)

# Every other phase is trouble.
PHASE_STYLES = {"Ready": "green", "Starting": "yellow", "Parked": "cyan", "Draining": "cyan", "Pending": "yellow"}


def log_to_screen() -> None:
    """Show what the supervisor of this process logs: with colours on a terminal, as plain lines elsewhere."""
    handler: logging.Handler
    if err.is_terminal:
        handler = RichHandler(
            console=err, show_path=False, show_level=False, highlighter=NullHighlighter(), log_time_format="%X"
        )
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def wanted_replicas(pool: RewardPool) -> int:
    """Return the number of workers that the pool should have."""
    return pool.status.scaling.desired if pool.status.scaling else pool.status.replicas
