"""What a function's processes reach of the pool's key, of the server and of each other."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rewardpool_runtime.functions.limits import CallLimits
from rewardpool_runtime.functions.outcome import FunctionArguments, FunctionScore
from rewardpool_runtime.functions.parent import environment
from rewardpool_runtime.functions.runner import ProcessRunner
from rewardpool_runtime.functions.source import FunctionSource
from rewardpool_runtime.guard.function import Boundary

FUNCTIONS = Path(__file__).parents[1] / "worker" / "functions"
KEY = "the pool's key"


@pytest.fixture
def key() -> Iterator[Path]:
    """A key in a folder that is beside the one for temporary files, as in a pod."""
    folder = Path(f"/var/tmp/rewardpool-test-{os.getpid()}")
    folder.mkdir()
    (folder / "key").write_text(KEY)
    yield folder / "key"
    assert (folder / "key").read_text() == KEY
    (folder / "key").unlink()
    folder.rmdir()


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The user's module."""
    monkeypatch.syspath_prepend(FUNCTIONS)
    return importlib.import_module("reaching")


async def succeeded(attempts: Mapping[str, Any], key: Path, boundary: Boundary | None) -> list[str]:
    """Return which attempts succeed, each in a call of its own."""
    limits = CallLimits(concurrency=2, cpu_seconds=60, idle_seconds=60)
    env = environment((), os.environ)
    runner = ProcessRunner(
        FunctionSource.from_function("reaching:compute_score"), limits=limits, env=env, boundary=boundary
    )
    try:
        await runner.start()
        found = []
        for what in attempts:
            sample = FunctionArguments(data_source="test", solution_str=what, ground_truth=str(key))
            if isinstance(await runner.run(sample), FunctionScore):
                found.append(what)
        return found
    finally:
        await runner.close()


async def test_a_function_reaches_neither_key_nor_server_nor_neighbour(key: Path, attempts: Any) -> None:
    boundary = Boundary(key_file=str(key), hidden=str(key.parent))
    assert await succeeded(attempts.ATTEMPTS, key, boundary) == []


async def test_a_function_without_network_makes_no_socket(key: Path, attempts: Any) -> None:
    assert await succeeded(attempts.NETWORK, key, Boundary()) == [*attempts.NETWORK]
    assert await succeeded(attempts.NETWORK, key, Boundary(network=False)) == []


async def test_a_function_keeps_what_functions_need(key: Path, attempts: Any) -> None:
    boundary = Boundary(key_file=str(key), hidden=str(key.parent), network=False)
    assert await succeeded(attempts.NEEDED, key, boundary) == [*attempts.NEEDED]


async def test_code_beneath_the_hidden_folder_is_loaded_where_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "hidden_rewards.py").write_text("def compute_score(**_):\n    return 1\n")
    (tmp_path / "key").write_text(KEY)
    monkeypatch.syspath_prepend(tmp_path / "code")
    boundary = Boundary(key_file=str(tmp_path / "key"), hidden=str(tmp_path), shown=sys.path)
    runner = ProcessRunner(
        FunctionSource.from_function("hidden_rewards:compute_score"), limits=CallLimits(), env={}, boundary=boundary
    )
    try:
        await runner.start()
        assert list(runner.reached) == []
        assert isinstance(await runner.run(FunctionArguments(data_source="", solution_str="")), FunctionScore)
    finally:
        await runner.close()


def test_what_a_machine_lacks_is_found_by_trying(key: Path) -> None:
    """In a process that has entered no boundary, as on a machine that has none."""
    program = f"""
import json, os, subprocess, sys
from rewardpool_runtime.guard.attempts import reached
from rewardpool_runtime.guard.function import Boundary, enter
if sys.argv[1] == "inside":
    enter(Boundary(key_file={str(key)!r}, hidden={str(key.parent)!r}, network=False))
print(json.dumps(reached(Boundary(key_file={str(key)!r}, network=False), server=os.getppid())))
"""

    def reached(where: str) -> Any:
        ran = subprocess.run([sys.executable, "-c", program, where], capture_output=True, text=True, check=True)
        return json.loads(ran.stdout)

    assert reached("inside") == []
    assert {"the function reaches the pool's key", "the function reaches a socket"} <= set(reached("outside"))
