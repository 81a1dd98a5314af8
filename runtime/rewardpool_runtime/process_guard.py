"""Becomes the program in its arguments, bound to the supervisor's life.

    python process_guard.py SUPERVISOR_PID PROGRAM …

The kernel sends SIGTERM to the program when the supervisor is gone, however that ended; strictly, when the thread that
started the program is, so that has to be one that lives as long. The signal is asked for between fork and exec; doing
it in this process, and not in the forked supervisor, keeps code out of the moment in which locks that other threads of
the supervisor held stay locked forever. Standard library only, run with `-I -S` to start in 10 ms.
"""

import ctypes
import os
import signal
import sys

GUARD = os.path.abspath(__file__)
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(supervisor_pid: int, argv: list[str]) -> None:
    """Replace this process."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have died before the line above, and then no signal comes.
    if os.getppid() != supervisor_pid:
        sys.exit("the supervisor is gone")
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"cannot run {argv[0]}: {error}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
