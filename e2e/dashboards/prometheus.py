"""A real Prometheus on this machine, as a process that is ended with the context."""

import json
import urllib.error
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster import direct
from cluster.processes import ClusterError, Daemon, free_port, kill, wait_until

LOOKBACK: Final = "11s"
"""For so long a value stands for those after it: two scrapes of a recording, which cannot say that a series ended."""
START_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 30.0
FOREVER: Final = "100y"
"""What it keeps: a recording is older than the two weeks that are its default."""


@dataclass(frozen=True)
class Series:
    """One line of a panel."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    """Times in seconds since 1970, and values; a value may be NaN."""


@dataclass(frozen=True)
class Prometheus:
    """A running one."""

    url: str

    def query_range(self, expression: str, *, start: float, end: float, step_seconds: float) -> list[Series]:
        """The series of an expression between two times in seconds since 1970.

        Raises:
            ClusterError: Prometheus refuses the expression; with its words.
        """
        asked = urllib.parse.urlencode({"query": expression, "start": start, "end": end, "step": step_seconds})
        try:
            said: dict[str, Any] = json.loads(_get(f"{self.url}/api/v1/query_range?{asked}", seconds=ANSWER_SECONDS))
        except urllib.error.HTTPError as error:
            raise ClusterError(f"Prometheus refuses {expression}: {error.read().decode()}") from None
        return [
            Series(labels=each["metric"], points=tuple((float(when), float(value)) for when, value in each["values"]))
            for each in said["data"]["result"]
        ]


@contextmanager
def prometheus(storage: Path, *, config: str = "{}", log: Path) -> Iterator[Prometheus]:
    """Run Prometheus on a folder of blocks, on loopback alone.

    Args:
        storage: its database; made where there is none.
        config: its configuration, as YAML.
        log: the file for what it prints; the configuration is kept beside it.

    Raises:
        ClusterError: it does not get ready within `START_SECONDS`.
    """
    path = log.with_suffix(".yaml")
    path.write_text(config)
    port = free_port()
    arguments = {
        "config.file": path,
        "storage.tsdb.path": storage,
        "storage.tsdb.retention.time": FOREVER,
        "query.lookback-delta": LOOKBACK,
        "web.listen-address": f"127.0.0.1:{port}",
    }
    daemon = Daemon("prometheus", ["prometheus", *(f"--{name}={value}" for name, value in arguments.items())], log=log)
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        wait_until(lambda: _is_ready(found), what="Prometheus", deadline_seconds=START_SECONDS, daemons=[daemon])
        yield found
    finally:
        kill([daemon])


def _is_ready(server: Prometheus) -> bool:
    try:
        return bool(_get(f"{server.url}/-/ready", seconds=1.0))
    except OSError:
        return False


def _get(url: str, *, seconds: float) -> bytes:
    with direct.opener().open(url, timeout=seconds) as answer:
        body: bytes = answer.read()
    return body
