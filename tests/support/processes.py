"""A real process for a test: started with a log, waited for with a deadline, and ended with its children."""

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from pathlib import Path
from typing import Any, Self

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.patience import PATIENCE


class RealProcess:
    """A context manager around one process in a session of its own; on leaving, that whole session is killed."""

    def __init__(self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path) -> None:
        self.log = log
        self._argv, self._env, self._cwd = argv, {**os.environ, **(env or {})}, cwd
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._argv, env=self._env, cwd=self._cwd, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # all of it ended by itself
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def exit_code(self, *, seconds: float) -> int:
        """Wait for its end; fails the test when that takes longer than PATIENCE allows."""
        limit = seconds * PATIENCE
        try:
            return self._process.wait(limit)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self._argv[0]} still runs after {limit:g} s:\n{self.tail()}")

    def until(self, holds: Callable[[], bool], *, seconds: float, what: str, every: float = 0.05) -> None:
        """Look every so many seconds whether something holds, until it does.

        Fails when that takes longer than PATIENCE allows, or the process ends before.
        """
        limit = seconds * PATIENCE
        deadline = time.monotonic() + limit
        while not holds():
            if self._process.poll() is not None:
                pytest.fail(f"it ended with {self._process.returncode} before {what}:\n{self.tail()}")
            if time.monotonic() > deadline:
                pytest.fail(f"not within {limit:g} s: {what}:\n{self.tail()}")
            time.sleep(every)

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])


def http(
    method: str, url: str, content: Any = None, *, key: str | None = None, seconds: float = 30
) -> tuple[int, dict[str, str], Any]:
    """Ask once; returns status, headers in lower case and the body, as JSON where it is. Status 0: no connection."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    data = content if isinstance(content, bytes) else None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, _lower(answer.headers), _body(answer.read())
    except urllib.error.HTTPError as answer:
        return answer.code, _lower(answer.headers), _body(answer.read())
    except OSError:
        return 0, {}, None


def scrape(url: str) -> dict[str, float]:
    """What a server tells Prometheus, without a key: values by their series, `name` or `name{label="value"}`."""
    status, headers, text = http("GET", f"{url}/metrics")
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/plain"), text
    told: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            told[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return told


def _lower(headers: "Message[str, str]") -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _body(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")
