"""Starting a router: its flags as a table, and what the launcher refuses."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.fleet import free_port, server_python

from rewardpool_worker import router_launcher
from rewardpool_worker.diagnosis import diagnose
from rewardpool_worker.router_flags import router_flags


def flags(port: int = 8080) -> tuple[str, ...]:
    return router_flags(
        host="127.0.0.1",
        port=port,
        metrics_host="127.0.0.1",
        metrics_port=9090,
        request_timeout_seconds=300,
        shutdown_grace_seconds=60,
    )


def launch(*argv: str, python: str = sys.executable, **env: str) -> tuple[int, str]:
    command = [python, router_launcher.__file__, *argv]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--port", "8080"),
        ("--request-timeout-secs", "300"),
        ("--shutdown-grace-period-secs", "60"),
        # Least in flight, the only policy that also counts.
        ("--policy", "cache_aware"),
        ("--balance-abs-threshold", "0"),
        ("--balance-rel-threshold", "1.0"),
        ("--retry-max-retries", "20"),
    ],
)
def test_the_flags_that_survived_the_soak(flag: str, value: str) -> None:
    assert flags()[flags().index(flag) + 1] == value


@pytest.mark.parametrize("argument", ["--api-key=x", "--api-key", "--control-plane-api-keys"])
def test_a_key_on_the_command_line_is_refused(argument: str) -> None:
    code, said = launch(argument)
    assert code == 2
    assert "put the key into a file" in said


@pytest.mark.parametrize("variable", ["REWARDPOOL_KEY_FILE", "REWARDPOOL_ADMIN_KEY_FILE"])
def test_an_empty_or_missing_key_file_starts_no_open_router(variable: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    code, said = launch(**{variable: str(tmp_path / "empty")})
    assert (code, f"{variable} {tmp_path / 'empty'} is empty" in said) == (2, True)
    assert launch(**{variable: str(tmp_path / "missing")})[0] == 2


@pytest.mark.real
def test_a_port_in_use_is_diagnosed(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = launch(*flags(taken.getsockname()[1]), python=server_python())
    assert diagnose(exit_code=code, log=said).reason == "PortInUse"


@pytest.mark.real
def test_the_router_refuses_a_flag_it_does_not_know() -> None:
    code, said = launch("--no-such-flag", str(free_port()), python=server_python())
    assert diagnose(exit_code=code, log=said).reason == "BadArguments"
