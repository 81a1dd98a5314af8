"""The two pools: as many workers as 256 callers need, and one that grows by what it is asked."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rewardpool_api import names
from training_step.protocol import Protocol

HERE: Final = Path(__file__).parent
START_SECONDS: Final = 120.0
NAMESPACE: Final = "default"
FIXED: Final = "fixed256"
ELASTIC: Final = "elastic"
POOLS: Final = (FIXED, ELASTIC)
PER_WORKER: Final = 64
"""Calls at a time that a worker takes, and what autoscaling aims at."""
LARGEST: Final = 16
"""Workers of the elastic pool at the most; a step of the published run does not need 1,024 calls at a time."""

Manifest = dict[str, Any]


def manifest(name: str, protocol: Protocol) -> Manifest:
    """The pool of that name."""
    spec: Manifest = {
        "model": {"source": "python://training_step.sleeper:compute_score", "type": "Function"},
        "engine": {"name": "python", "args": ["--concurrency", str(PER_WORKER)]},
        "worker": {"gpus": 0},
    }
    if name == FIXED:
        spec["replicas"] = max(1, -(-protocol.callers // PER_WORKER))
    else:
        policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": PER_WORKER}}
        spec["autoscaling"] = {"minReplicas": 1, "maxReplicas": LARGEST, "policy": policy}
    return {
        "apiVersion": "rewardpool.dev/v1alpha1",
        "kind": "RewardPool",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def callers(name: str, protocol: Protocol) -> int:
    """Requests that the client has in flight at the most."""
    return protocol.callers if name == FIXED else PER_WORKER * LARGEST


@contextmanager
def running(name: str, protocol: Protocol, *, folder: Path) -> Iterator[str]:
    """Start the pool of that name, yield its `namespace/name`, and end it.

    Args:
        name: Of the pool.
        protocol: The run that it is for.
        folder: For what a pool of this machine keeps; it is the state folder of this process from then on.

    Raises:
        subprocess.CalledProcessError: The pool did not start; what it said is on stderr.
    """
    # A pool of that name in some cluster is not what is measured.
    os.environ |= {names.ENV_STATE_DIR: str(folder), "KUBECONFIG": str(folder / "none")}
    file = folder / f"{name}.json"
    file.write_text(json.dumps(manifest(name, protocol)))
    _command("up", "-f", str(file), "--detach", "--wait-seconds", f"{START_SECONDS:.0f}")
    try:
        yield f"{NAMESPACE}/{name}"
    finally:
        _command("down", name)


def _command(*arguments: str) -> None:
    """Run the project's command line in the folder where workers find the reward function."""
    program = Path(sys.executable).with_name("rewardpool")
    subprocess.run(
        [program, *arguments], cwd=HERE.parent, check=True, timeout=2 * START_SECONDS, stdin=subprocess.DEVNULL
    )
