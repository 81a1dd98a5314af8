"""A reward pool of this machine for one bench alone, by the project's own command line."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rewardpool_api import names

START_SECONDS: Final = 120.0
FUNCTIONS: Final = Path(__file__).parent
"""Where workers find reward functions, as `python://package.module:function`."""


@contextmanager
def local_pool(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Start a pool in a state folder of its own, yield its `namespace/name`, and end it.

    This process, and those that it starts, find the pool by its name from then on, and no other one.

    Raises:
        subprocess.CalledProcessError: The pool did not start; what it said is on stderr.
    """
    name = manifest["metadata"]["name"]
    with tempfile.TemporaryDirectory(prefix="rewardpool-bench-") as folder:
        # A pool of that name in some cluster is not what is measured.
        os.environ |= {names.ENV_STATE_DIR: folder, "KUBECONFIG": f"{folder}/none"}
        file = Path(folder, "pool.json")
        file.write_text(json.dumps(manifest))
        _command("up", "-f", str(file), "--detach", "--wait-seconds", f"{START_SECONDS:.0f}")
        try:
            yield f"{manifest['metadata'].get('namespace', 'default')}/{name}"
        finally:
            _command("down", name)


def _command(*arguments: str) -> None:
    program = Path(sys.executable).with_name("rewardpool")
    subprocess.run(
        [program, *arguments], cwd=FUNCTIONS, check=True, timeout=2 * START_SECONDS, stdin=subprocess.DEVNULL
    )
