"""A function whose module starts a program when it is imported, which each call talks to."""

import subprocess
from typing import Any

server = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def compute_score(solution_str: str, **_: Any) -> dict[str, Any]:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(solution_str + "\n")
    return {"score": float(server.stdout.readline()), "server": server.pid}
