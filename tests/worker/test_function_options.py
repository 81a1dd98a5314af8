"""The function server's command line, as the engine's arguments of a manifest reach it."""

import subprocess
import sys
from pathlib import Path

import pytest

from rewardpool_api import names
from rewardpool_worker.diagnosis import diagnose
from rewardpool_worker.engine_side.middleware.settings import Settings
from rewardpool_worker.function_server import parser

NEEDED = ["--function", "rewards:score"]


def test_what_is_left_out_is_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(names.ENV_KEY_FILE, raising=False)
    monkeypatch.delenv(names.ENV_MAX_BODY_BYTES, raising=False)
    given = parser().parse_args(NEEDED)
    assert (given.concurrency, given.key_file, given.max_body_bytes) == (None, None, Settings.max_body_bytes)
    monkeypatch.setenv(names.ENV_KEY_FILE, "/keys/key")
    monkeypatch.setenv(names.ENV_MAX_BODY_BYTES, "2000")
    given = parser().parse_args(NEEDED)
    assert (given.key_file, given.max_body_bytes) == (Path("/keys/key"), 2000)
    assert parser().parse_args([*NEEDED, "--max-body-bytes", "9"]).max_body_bytes == 9


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [*NEEDED, "--concurrency", "0"],
        [*NEEDED, "--concurrency", "1.5"],
        [*NEEDED, "--port", "70000"],
        [*NEEDED, "--cpu-seconds", "nan"],
        [*NEEDED, "--calls-per-process", "-1"],
        [*NEEDED, "--no-such-option"],
        [*NEEDED, "--conc", "4"],
    ],
)
def test_nonsense_ends_the_start(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parser().parse_args(arguments)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_an_argument_that_it_does_not_know_is_told_as_such() -> None:
    command = [sys.executable, "-m", "rewardpool_worker.function_server", *NEEDED, "--no-such-option"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert diagnose(exit_code=ended.returncode, log=ended.stderr).reason == "BadArguments"


def test_a_functions_worker_starts_without_pydantic() -> None:
    """Its import takes a fifth of a second, which every start would wait for."""
    code = "import sys, rewardpool_worker.function_server; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
