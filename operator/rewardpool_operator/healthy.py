"""The kubelet's probe, `python -m rewardpool_operator.healthy SOCKET`: it fails unless that operator is well.

It starts every few seconds, so it imports next to nothing.
"""

import json
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

SECONDS: Final = 3.0


def problem(path: str) -> str | None:
    """Return why the operator at this socket is not well; None where it is."""
    said = b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(path)
            connection.sendall(b"/healthz\n")
            while part := connection.recv(1 << 16):
                said += part
        health = json.loads(said.partition(b"\n")[2])
    except (OSError, ValueError) as error:
        return f"the operator does not answer: {error}"
    return None if health["ok"] is True else json.dumps(without_names(health))


def without_names(health: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may be said to anybody: of what names pools and namespaces, how many there are."""
    return {name: len(value) if isinstance(value, Mapping) else value for name, value in health.items()}


if __name__ == "__main__":
    sys.exit(problem(sys.argv[1]))
