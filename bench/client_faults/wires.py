"""Wires that can be cut: all packets to and from a port are dropped, so nothing is refused and nothing arrives.

Only for a network namespace of one's own (`into_own_network`), which takes its firewall with it when it ends.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

COMMAND_SECONDS = 10.0


def into_own_network(module: str, arguments: Sequence[str]) -> None:
    """Become `python -m module --inside` in a new network namespace, which the kernel removes with its last process."""
    flags = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    command = ["unshare", *flags, "--", sys.executable, "-m", module, "--inside", *arguments]
    os.execvp(command[0], command)


def make_network() -> None:
    """Switch the namespace's loopback on."""
    _run("ip", "link", "set", "lo", "up")


@contextmanager
def cut(port: int) -> Iterator[None]:
    """Drop what goes to and comes from a TCP port, inside the block."""
    rules = [("INPUT", "--protocol", "tcp", end, str(port), "--jump", "DROP") for end in ("--dport", "--sport")]
    try:
        for rule in rules:
            _run("iptables", "--wait", "--append", *rule)
        yield
    finally:
        for rule in rules:
            _run("iptables", "--wait", "--delete", *rule)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")
