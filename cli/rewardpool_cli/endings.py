"""Failure of a command: the message for an error, and the exit code."""

import os

from pydantic import ValidationError

from rewardpool.errors import ConfigError, RewardPoolError
from rewardpool_api import ManifestError
from rewardpool_cli.errors import FAILED, REFUSED, CommandError
from rewardpool_local.commands import NotRunningError
from rewardpool_local.folder import AlreadyRunningError, StateUnreadableError
from rewardpool_local.machine import NotStartableError


def message_and_code(error: Exception) -> tuple[str, int]:
    """Return the message for a user, and the exit code; an error that is not a user's is raised again."""
    match error:
        case CommandError():
            return str(error), error.exit_code
        case ManifestError() | NotStartableError() | ConfigError():
            return str(error), REFUSED
        case ValidationError():
            problems = error.errors(include_url=False)
            return "\n".join(problem["msg"].removeprefix("Value error, ") for problem in problems), REFUSED
        case AlreadyRunningError() | NotRunningError() | StateUnreadableError() | RewardPoolError():
            return str(error), FAILED
        case OSError():
            return _in_words(error), FAILED
        case ModuleNotFoundError():
            return f"{error}; the operator needs `pip install kopf`", FAILED
        case _:
            raise error


def _in_words(error: OSError) -> str:
    """Return the system's message, without its number, behind the path that it is about."""
    said = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)
    return said if error.filename is None else f"{error.filename}: {said}"
