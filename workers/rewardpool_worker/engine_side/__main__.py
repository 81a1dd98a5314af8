"""The program that the zip is: `python rewardpool_worker.zip PROGRAM ARGUMENTS…`."""

import sys
from importlib import import_module

PROGRAMS = ("vllm_launcher", "sglang_launcher", "transformers_server", "download.program", "transformers_reference")
"""Modules of `rewardpool_worker.engine_side`, whose `main` takes the arguments and returns the exit code."""


def main(argv: list[str]) -> int:
    """Run a program; returns the exit code."""
    name = argv[0] if argv else ""
    if name not in PROGRAMS:
        print(f"the first argument must be one of {', '.join(PROGRAMS)}, not {name!r}", file=sys.stderr)
        return 2
    exit_code: int = import_module(f"rewardpool_worker.engine_side.{name}").main(argv[1:])
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
