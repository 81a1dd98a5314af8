"""How a command that fails ends: what is said of an error, and the exit code."""

from pydantic import ValidationError

from rewardpool.errors import RewardPoolError
from rewardpool_api import ManifestError
from rewardpool_cli.errors import FAILED, REFUSED, CommandError
from rewardpool_local.commands import NotRunningError
from rewardpool_local.folder import AlreadyRunningError
from rewardpool_local.machine import NotStartableError


def message_and_code(error: Exception) -> tuple[str, int]:
    """What a user reads, and the exit code; an error that is none of a user's is raised again."""
    match error:
        case CommandError():
            return str(error), error.exit_code
        case ManifestError() | NotStartableError():
            return str(error), REFUSED
        case ValidationError():
            return "\n".join(problem["msg"] for problem in error.errors(include_url=False)), REFUSED
        case AlreadyRunningError() | NotRunningError() | RewardPoolError() | OSError():
            return str(error), FAILED
        case ModuleNotFoundError():
            return f"{error}; the operator needs `pip install 'rewardpool[operator]'`", FAILED
        case _:
            raise error
