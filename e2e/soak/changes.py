"""What a user does to a pool while things break; nothing of it is waited for."""

import json
import time
from collections.abc import Callable, Mapping

from faults.manifests import POOL
from rewardpool_api import names
from soak.stage import ROUTERS, WORKERS, Stage


def rollout(stage: Stage) -> None:
    """Other arguments for the workers."""
    stage.change({"engine": {"args": [f"--env=ROLL_{time.time_ns() // 10**9 % 64}"]}})


def rotate_the_key(stage: Stage) -> None:
    """Another key."""
    stage.kubectl("annotate", "rewardpool", POOL, f"{names.ANNOTATION_ROTATE_KEY}={time.time_ns()}", "--overwrite")


def scale(stage: Stage) -> None:
    """One worker and one router more than at the beginning, or as many again."""
    more = int(stage.pool()["spec"]["replicas"] == WORKERS)
    stage.change({"replicas": WORKERS + more, "router": {"replicas": ROUTERS + more}})


def roll_the_routers(stage: Stage) -> None:
    """Another pod template for the routers."""
    template = stage.pool()["spec"]["router"]["podTemplate"]
    annotations = {"soak/rolled": json.dumps(time.time_ns())}
    stage.change({"router": {"podTemplate": template | {"metadata": {"annotations": annotations}}}})


def upgrade_the_operator(stage: Stage) -> None:
    """Other operators, by `helm upgrade`."""
    stage.upgrade()


CHANGING: Mapping[str, Callable[[Stage], None]] = {
    "rollout": rollout,
    "key rotation": rotate_the_key,
    "scale": scale,
    "routers rolled": roll_the_routers,
    "operator upgrade": upgrade_the_operator,
}
"""By the name in a plan."""
