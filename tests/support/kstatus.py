"""What kstatus says of objects: the library by which Flux, Helm 4 and kpt see whether what they applied is in place."""

import json
import subprocess
from typing import Any

from cluster import binaries


def words_for(*objects: dict[str, Any]) -> list[str]:
    """Its word for each object, as the API server has it: Current, InProgress, Failed or Terminating."""
    program = binaries.ensure("kstatus")["kstatus"]
    text = "".join(map(json.dumps, objects))
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=30)
    return [line.split("\t")[2] for line in done.stdout.splitlines()]
