"""All hostile code on gVisor, without a cluster: `python -m sandboxed.alone`.

`run` starts it in a sandbox of runsc; there it prints what became of the code as JSON.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cluster import binaries
from cluster.processes import output_of
from cluster.progress import Say
from rewardpool.errors import SandboxError
from sandboxed import reward
from sandboxed.samples import SECRET, Answer, Asked, count, hostile

RUN_SECONDS = 600.0
ATTEMPTS = 6
"""Of one program."""


def run(*, say: Say) -> dict[str, Any]:
    """Return the tally of a run on gVisor's kernel; raises ClusterError where it does not end well."""
    runsc = binaries.ensure("runsc", say=say)["runsc"]
    # The host's files, read-only, and no network.
    command: list[str | Path] = [runsc, "--network=none", "--ignore-cgroups", "do"]
    environment = ["env", *(f"{name}={os.environ[name]}" for name in ("PATH", "PYTHONPATH") if name in os.environ)]
    said = output_of(*command, *environment, sys.executable, "-m", __name__, deadline_seconds=RUN_SECONDS)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def main() -> None:
    """Run all hostile code in this process's sandbox, and print the kernel and the tally."""
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        secret.write_text("secret")
        asked = hostile([SECRET, str(secret)])
        answers = [_answer(index, one) for index, one in enumerate(asked)]
    print(json.dumps({"kernel": Path("/proc/version").read_text().strip(), **count(asked, answers).report()}))


def _answer(index: int, asked: Asked) -> Answer:
    """Ask again where the machine is at fault, as a pool's client does."""
    for attempt in range(1, ATTEMPTS + 1):
        began = time.monotonic()
        try:
            info = reward.compute_score("", asked.code, None, asked.extra_info)
        except SandboxError as error:
            problem = str(error)
        else:
            seconds = time.monotonic() - began
            return Answer(index=index, began=0.0, seconds=seconds, attempts=attempt, score=info["score"], info=info)
    return Answer(index=index, began=0.0, seconds=0.0, attempts=ATTEMPTS, score=None, problem=problem)


if __name__ == "__main__":
    main()
