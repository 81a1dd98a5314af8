"""Name of the command line: its own, or kubectl's for its plugin."""

import sys
from pathlib import Path
from typing import Final

# kubectl finds a program of this name on the PATH and runs it for `kubectl rewardpool`.
PLUGIN: Final = "kubectl-rewardpool"


def is_plugin() -> bool:
    """Return whether kubectl runs this program."""
    return Path(sys.argv[0]).name == PLUGIN


def program() -> str:
    """Return the words that the user types before the command."""
    return "kubectl rewardpool" if is_plugin() else "rewardpool"
