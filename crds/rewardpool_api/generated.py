"""Files that are made from the code and kept in the repository: written, or checked for being fresh."""

import argparse
import sys
from pathlib import Path


def write_or_check(text: str, *, description: str | None, target: str) -> int:
    """The command line of a program that makes one file: `[--check] FILE`.

    Args:
        text: what the file shall be, byte for byte.
        description: of the program, for its help.
        target: of make, which writes the file anew.

    Returns:
        The exit status: 1 when `--check` finds the file stale.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="do not write; fail when the file is stale")
    arguments = parser.parse_args()
    if arguments.check:
        fresh = arguments.file.exists() and arguments.file.read_text() == text
        if not fresh:
            sys.stderr.write(f"{arguments.file} is stale: run `make {target}`\n")
        return 0 if fresh else 1
    arguments.file.write_text(text)
    return 0
