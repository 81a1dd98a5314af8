"""A registry of images and charts on this machine: crane's, an OCI registry without TLS and without users."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import binaries
from cluster.processes import Daemon, free_port, kill, wait_until
from cluster.progress import Say

START_SECONDS = 30.0


@dataclass(frozen=True)
class Registry:
    """A registry that runs."""

    address: str
    """Host and port, the beginning of the names of what is in it."""
    crane: Path

    def answers(self) -> bool:
        """Whether it answers by now."""
        command: list[str | Path] = [self.crane, "catalog", "--insecure", self.address]
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0


@contextmanager
def serve(folder: Path, *, host: str = "127.0.0.1", say: Say) -> Iterator[Registry]:
    """A registry as long as the context is open; what it has is in `folder`, which this makes."""
    folder.mkdir(parents=True)
    blobs = folder / "blobs"
    blobs.mkdir()
    registry = Registry(f"{host}:{free_port(host)}", binaries.ensure("crane", say=say)["crane"])
    options = ["--address", registry.address, "--disk", str(blobs)]
    daemon = Daemon("registry", [registry.crane, "registry", "serve", *options], log=folder / "log")
    try:
        wait_until(registry.answers, what="the registry", deadline_seconds=START_SECONDS, daemons=[daemon])
        yield registry
    finally:
        kill([daemon])
