"""One process and what it spawns, and a command that is kept running; real processes, no pool."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from support.fleet import eventually

from rewardpool_local import process as process_module
from rewardpool_local.process import Process, marked, tail
from rewardpool_local.supervised_process import LONGEST_PAUSE_SECONDS, Command, Run, SupervisedProcess, pause_seconds

SPAWNS_A_CHILD_OUTSIDE_ITS_GROUP = """
import subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("spawned", flush=True)
time.sleep(600)
"""
IGNORES_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"


async def start(code: str, tmp_path: Path) -> Process:
    mark = f"/test-{os.getpid()}-{tmp_path.name}/"
    argv = [sys.executable, "-c", code]
    return await Process.start(argv, env=dict(os.environ), mark=mark, log_file=tmp_path / "log")


async def printed(word: str, tmp_path: Path) -> None:
    async def in_log() -> bool:
        return word in tail(tmp_path / "log", 1000)

    await eventually(in_log, what=f"{word} is in the log")


async def test_a_child_that_left_the_group_ends_with_its_parent(tmp_path: Path) -> None:
    process = await start(SPAWNS_A_CHILD_OUTSIDE_ITS_GROUP, tmp_path)
    await printed("spawned", tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    assert await process.ended() == -signal.SIGKILL
    assert marked(f"/test-{os.getpid()}-{tmp_path.name}/") == []


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    process = await start(IGNORES_SIGTERM, tmp_path)
    await printed("up", tmp_path)
    await process.stop(grace_seconds=0.2)
    assert not psutil.pid_exists(process.pid)


async def test_a_program_that_cannot_run_says_so_in_its_log(tmp_path: Path) -> None:
    process = await Process.start(["/no/such/program"], env={}, mark="/test/", log_file=tmp_path / "log")
    assert await process.ended() == 1
    assert "cannot run /no/such/program" in tail(tmp_path / "log", 1000)


async def test_a_log_is_kept_short_and_the_one_before_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "MAX_LOG_BYTES", 100)
    process = await start("print('x' * 200); import time; time.sleep(600)", tmp_path)
    await printed("x" * 200, tmp_path)
    process.bound_log()
    assert (tmp_path / "log").stat().st_size == 0
    assert "x" * 200 in (tmp_path / "log.1").read_text()
    await process.kill()


async def test_a_command_that_ends_is_started_again_with_the_cause_on_record(tmp_path: Path) -> None:
    run = Run(id=f"kept-{os.getpid()}", pool="rl/rm", logs=tmp_path, changed=lambda: None)
    argv = (sys.executable, "-c", "raise RuntimeError('no luck')")
    kept = SupervisedProcess("worker-1", run=run, command=lambda: Command(argv=argv, env={}, url="http://here"))

    async def started_twice() -> bool:
        await kept.start_if_due()
        return kept.restarts == 1

    await eventually(started_twice, what="it was started again")
    assert kept.failure is not None
    assert "no luck" in kept.failure.message
    await kept.stop(grace_seconds=5)
    assert await kept.start_if_due() is False


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (4, 8), (7, 60), (500, 60)])
def test_pauses_grow_to_a_limit(failures: int, seconds: float) -> None:
    assert pause_seconds(failures, 0.5) == seconds


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_pauses_are_spread_by_a_quarter(jitter: float) -> None:
    assert pause_seconds(500, jitter) == LONGEST_PAUSE_SECONDS * (0.75 + jitter / 2)


async def test_what_the_user_set_for_a_trainer_is_no_setting_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDPOOL_KEY_FILE", "/the/users/key")
    run = Run(id=f"env-{os.getpid()}", pool="rl/rm", logs=tmp_path, changed=lambda: None)
    code = "import os; print(os.environ['REWARDPOOL_POOL'], os.environ.get('REWARDPOOL_KEY_FILE'))"
    kept = SupervisedProcess(
        "shows", run=run, command=lambda: Command(argv=(sys.executable, "-c", code), env={}, url="http://here")
    )
    await kept.start_if_due()

    async def shown() -> bool:
        return "rl/rm None" in tail(kept.log_file, 1000)

    await eventually(shown, what="the worker has the pool and no key file of the user's")
    await kept.kill()
