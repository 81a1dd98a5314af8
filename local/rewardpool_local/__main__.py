"""The supervisor as a program of its own, as `rewardpool up --detach` starts it; its log is its standard output."""

import argparse
import logging
import sys
from pathlib import Path

from rewardpool_local.commands import supervise
from rewardpool_local.folder import PoolFolder
from rewardpool_local.supervisor import StoppedEarlyError


def main() -> int:
    """Supervise the pool of a folder; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m rewardpool_local", description=__doc__)
    parser.add_argument("folder", type=Path, help="state folder of the pool")
    parser.add_argument("--port", type=int, help="port of the router; by default a free one")
    parser.add_argument("--give-up-seconds", type=float, help="stop when no worker was ready for this long")
    parser.add_argument("--asked-at", type=float, help="monotonic time from which on that counts; by default now")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    folder = PoolFolder(options.folder)
    try:
        succeeded = supervise(
            folder, port=options.port, give_up_seconds=options.give_up_seconds, asked_at=options.asked_at
        )
    except StoppedEarlyError as error:
        return error.exit_code
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
