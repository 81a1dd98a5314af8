"""Errors of a command: one message, and the exit code that goes with it."""

from typing import Final

import typer

FAILED: Final = 1
REFUSED: Final = 2  # nothing was changed


class CommandError(Exception):
    """Error that keeps a command from succeeding, with a remedy."""

    exit_code = FAILED


class RefusedError(CommandError):
    """The command cannot be done as given; nothing was changed."""

    exit_code = REFUSED


def exit_unless(succeeded: bool) -> None:
    """End the command as one that failed, unless it did not."""
    if not succeeded:
        raise typer.Exit(FAILED)
