"""The start and the end of a vLLM that is a job's child; what needs no model is shown with programs that are none."""

import signal
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from support.processes import RealProcess

from rewardpool.errors import ConfigError, RolloutError
from rewardpool_train.actor.rollout.vllm_server import running_vllm


def start(python: str, folder: Path, *, deadline_seconds: float = 60.0) -> None:
    with running_vllm(
        folder, python=python, arguments=[], log_file=folder / "vllm.log", deadline_seconds=deadline_seconds
    ):
        pytest.fail("it started")


def stand_in(folder: Path) -> Path:
    """A program that never answers, in the place of an interpreter with vLLM."""
    program = folder / "StandInPython"
    says_its_pid = f"open({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))"
    program.write_text(f"#!{sys.executable}\nimport os, time\n{says_its_pid}\ntime.sleep(600)\n")
    program.chmod(0o755)
    return program


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rollout.vllm.python: /no/python not found"):
        start("/no/python", tmp_path)


def test_a_server_that_ends_at_its_start_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(RolloutError, match="No module named 'vllm'"):
        start(sys.executable, tmp_path)


def test_a_server_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    with pytest.raises(RolloutError, match=r"did not answer within 0\.2 s"):
        start(str(stand_in(tmp_path)), tmp_path, deadline_seconds=0.2)
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(one.info["cmdline"])]


def test_the_server_ends_when_the_job_is_killed(tmp_path: Path) -> None:
    job = textwrap.dedent(f"""
        from pathlib import Path
        from rewardpool_train.actor.rollout.vllm_server import running_vllm
        folder = Path({str(tmp_path)!r})
        with running_vllm(folder, python={str(stand_in(tmp_path))!r}, arguments=[], log_file=folder / "vllm.log",
                          deadline_seconds=600):
            pass
    """)
    with RealProcess([sys.executable, "-c", job], log=tmp_path / "job.log", cwd=tmp_path) as process:
        pid_file = tmp_path / "pid"
        process.until(lambda: pid_file.exists() and pid_file.read_text() != "", seconds=60, what="the server runs")
        server = psutil.Process(int(pid_file.read_text()))
        process.signal(signal.SIGKILL)
        server.wait(10)  # raises when it still runs then
