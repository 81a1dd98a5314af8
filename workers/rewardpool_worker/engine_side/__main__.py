"""The program that the zip is: `python rewardpool_worker.zip PROGRAM ARGUMENTS…`.

PROGRAM is a module of `rewardpool_worker.engine_side` with a function `main`, which takes the arguments and returns the
exit code.
"""

import sys
from importlib import import_module

_PACKAGE = "rewardpool_worker.engine_side"


def main(argv: list[str]) -> int:
    """Run a program; returns the exit code."""
    name = argv[0] if argv else ""
    path = f"{_PACKAGE}.{name}"
    module = None
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        if not f"{path}.".startswith(f"{error.name}."):  # a program lacks a module of its own
            raise
    program = getattr(module, "main", None)
    if program is None:
        print(f"the first argument must be a module of {_PACKAGE} with a function main, not {name!r}", file=sys.stderr)
        return 2
    exit_code: int = program(argv[1:])
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
