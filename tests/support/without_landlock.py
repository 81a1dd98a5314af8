"""Runs a program on a kernel that seems to have no Landlock: `python -m support.without_landlock PROGRAM ARGUMENT…`."""

import os
import platform
import sys

from rewardpool_runtime.guard import kernel, syscalls

CALLS = (444, 445, 446)
"""Landlock's, on every kind of processor."""

if __name__ == "__main__":
    kernel.filter_calls(syscalls.filter_refusing(CALLS, platform.machine()))
    os.execvp(sys.argv[1], sys.argv[1:])
