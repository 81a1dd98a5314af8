"""Where a pool on one machine keeps its state: the folder that `rewardpool up` writes and discovery reads.

$REWARDPOOL_STATE_DIR/NAMESPACE/NAME/pool.json    the RewardPool object, with its status, as in a cluster
                                     key          the router's key, mode 0600
                                     logs/        what the processes print
"""

from collections.abc import Mapping
from pathlib import Path

from rewardpool_api import names


def state_dir(environ: Mapping[str, str]) -> Path:
    """The folder of all pools on this machine: $REWARDPOOL_STATE_DIR, by default `~/.local/state/rewardpool`."""
    given = environ.get(names.ENV_STATE_DIR)
    return Path(given) if given else Path.home() / ".local" / "state" / "rewardpool"


def pool_dir(environ: Mapping[str, str], namespace: str, name: str) -> Path:
    """The folder of one pool; it need not exist."""
    return state_dir(environ) / namespace / name
