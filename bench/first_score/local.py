"""function_local, parked_local: a function pool on one machine goes to zero, is asked, and goes to zero again."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from local_pool import local_pool

from first_score.alone import FUNCTION, function_start
from first_score.asking import ask, body_of, until
from first_score.figures import entry
from rewardpool_api import names

NAME: Final = "first"
TEXT: Final = "four"
SETTLE_SECONDS: Final = 1.0
"""At zero before it is asked."""


def manifest(*, parked: int = 0) -> dict[str, Any]:
    """A pool that is at zero a second after its last request."""
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 8}}
    scaling: dict[str, Any] = {"minReplicas": 0, "maxReplicas": 1, "policy": policy, "cooldownSeconds": 1}
    scaling["scaleDown"] = {"stabilizationWindowSeconds": 0}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": NAME},
        "spec": {
            "model": {"source": f"python://{FUNCTION}"},
            "autoscaling": scaling | ({"parked": parked} if parked else {}),
            "worker": {"drainSeconds": 5},
        },
    }


def measure(*, rounds: int, parked: int = 0, say: Callable[[str], None]) -> dict[str, Any]:
    """The entry of so many rounds."""
    title = "parked_local" if parked else "function_local"
    seconds: list[float] = []
    firsts: list[Mapping[str, Any]] = []
    alone: list[float] = []
    with local_pool(manifest(parked=parked)):
        file = Path(os.environ[names.ENV_STATE_DIR], "default", NAME, names.STATE_FILE)
        for number in range(rounds):
            if not parked:
                alone.append(function_start())
            until(lambda: _is_at_zero(_status(file), parked), what="the pool is at zero")
            time.sleep(SETTLE_SECONDS)
            status = _status(file)
            key = Path(status["auth"]["keyFile"]).read_text().strip()
            waited, score = ask(status["url"], key=key, body=body_of(NAME, TEXT))
            if score != len(TEXT):
                raise RuntimeError(f"the score of {TEXT!r} is {score}, not {len(TEXT)}")
            until(lambda: is_told(_status(file), firsts), what="the status has the first score", seconds=30)
            seconds.append(waited)
            firsts.append(_status(file)["firstScore"])
            say(f"{title} {number + 1}/{rounds}: {waited:.2f} s, {firsts[-1]['parts']}")
    return entry(seconds, firsts, alone)


def is_told(status: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the status has a first score that is over, and another one than the last that is known."""
    first = status.get("firstScore")
    if first is None or first.get("waitsFor") is not None:
        return False
    return not known or first["since"] != known[-1]["since"]


def _status(file: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(file.read_text())["status"]
    return status


def _is_at_zero(status: Mapping[str, Any], parked: int) -> bool:
    counts = (status["scaling"]["desired"], status["replicas"], status.get("drainingReplicas", 0))
    return counts == (0, 0, 0) and status.get("parkedReplicas", 0) == parked
