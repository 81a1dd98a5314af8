"""What a user and a mount namespace keep from a process where the kernel has no Landlock."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.skips import NO_NAMESPACES

from rewardpool_runtime.guard import view

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not view.is_possible(), reason=NO_NAMESPACES)


def without_landlock(program: str, *arguments: str) -> Any:
    """Return what a program prints as JSON where there is no Landlock."""
    paths = [str(TESTS), str(TESTS / "worker" / "functions"), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "support.without_landlock", sys.executable, "-c", program, *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_hostile_code_is_refused_all_that_landlock_refuses(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the answer")
    program = """
import json, sys
from support.hostile_code import FILES, NETWORK, PROCESSES, REFUSALS, WRITES, reaching
from rewardpool.sandbox import Call, run
from rewardpool_runtime.guard import kernel
assert kernel.landlock_version() == 0
found = {}
for name, attempt in (FILES | WRITES | PROCESSES | NETWORK).items():
    verdict = run(reaching(attempt, secret=sys.argv[1]), calls=[Call(function="attempt", expected="")])
    if verdict.outcome != "raised" or not verdict.message.startswith(REFUSALS):
        found[name] = str(verdict)
print(json.dumps(found))
"""
    assert without_landlock(program, str(tmp_path / "secret")) == {}
    assert (tmp_path / "secret").read_text() == "the answer"


def test_code_finds_its_own_files_and_imports_installed_packages() -> None:
    program = r"""
import json
from rewardpool.sandbox import Call, run
code = "import numpy, os\ndef read(): return [open('a.txt').read(), os.listdir('.')]"
calls = [Call(function="read", expected=["text", ["a.txt"]])]
verdict = run(code, calls=calls, files={"a.txt": "text"}, memory_mib=1024)
print(json.dumps([verdict.outcome, verdict.message]))
"""
    assert without_landlock(program) == ["passed", ""]


def test_a_function_reaches_nothing_but_signals(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    key = tmp_path / "keys" / "key"
    key.write_text("the key")
    program = """
import asyncio, json, os, sys
import reaching
from rewardpool_runtime.functions.limits import CallLimits
from rewardpool_runtime.functions.outcome import FunctionArguments, FunctionScore
from rewardpool_runtime.functions.parent import environment
from rewardpool_runtime.functions.runner import ProcessRunner
from rewardpool_runtime.functions.source import FunctionSource
from rewardpool_runtime.guard.function import Boundary

async def main(key):
    boundary = Boundary(key_file=key, hidden=os.path.dirname(key), network=False)
    limits = CallLimits(concurrency=2, cpu_seconds=60, idle_seconds=60)
    source = FunctionSource.from_function("reaching:compute_score")
    runner = ProcessRunner(source, limits=limits, env=environment((), os.environ), boundary=boundary)
    await runner.start()
    found = []
    for what in reaching.ATTEMPTS | reaching.NETWORK | reaching.NEEDED:
        sample = FunctionArguments(data_source="test", solution_str=what, ground_truth=key)
        if isinstance(await runner.run(sample), FunctionScore):
            found.append(what)
    await runner.close()
    print(json.dumps({"reached": list(runner.reached), "found": found, "needed": list(reaching.NEEDED)}))

asyncio.run(main(sys.argv[1]))
"""
    seen = without_landlock(program, str(key))
    assert seen["reached"] == []
    assert [what for what in seen["found"] if not what.startswith("a signal to ")] == seen["needed"]
    assert key.read_text() == "the key"


def test_what_is_shown_of_a_hidden_folder_is_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "module.py").write_text("VALUE = 1")
    (tmp_path / "key").write_text("the key")
    program = """
import json, os, sys
from rewardpool_runtime.guard.function import Boundary, enter
folder = sys.argv[1]
enter(Boundary(hidden=folder, shown=[folder + "/code", folder + "/code/module.py"]))
print(json.dumps([os.listdir(folder), open(folder + "/code/module.py").read()]))
"""
    assert without_landlock(program, str(tmp_path)) == [["code"], "VALUE = 1"]


def test_a_hidden_folder_stays_hidden_from_whoever_makes_namespaces(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the key")
    program = """
import ctypes, json, os, sys
from rewardpool_runtime.guard import view
from rewardpool_runtime.guard.function import Boundary, enter, part
folder = sys.argv[1]
enter(Boundary(hidden=folder))
part()
view._enter_namespaces(view._NEW_USER | view._NEW_MOUNTS)
ended = ctypes.CDLL(None).umount2(folder.encode(), 2)
print(json.dumps([ended, os.listdir(folder)]))
"""
    assert without_landlock(program, str(tmp_path)) == [-1, []]


@pytest.mark.skipif(os.geteuid() != 0, reason="no other user has capabilities again in what it executes")
def test_a_hidden_folder_stays_hidden_from_what_root_executes(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the key")
    # Not as above: a filter of calls, as that has, keeps root from capabilities by itself.
    program = """
import subprocess, sys
from rewardpool_runtime.guard import kernel
from rewardpool_runtime.guard.function import Boundary, enter
kernel.landlock_version = lambda: 0
enter(Boundary(hidden=sys.argv[1]))
uncover = "import ctypes, os, sys; print(ctypes.CDLL(None).umount2(sys.argv[1].encode(), 2), os.listdir(sys.argv[1]))"
subprocess.run([sys.executable, "-c", uncover, sys.argv[1]], check=True)
"""
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout == "-1 []\n"


def test_what_code_may_read_is_found_where_a_file_system_would_be_mounted(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("VALUE = 1")
    program = """
import json, os, sys
from rewardpool_runtime.guard import view
view._PLACES = (os.path.dirname(sys.argv[1]), *view._PLACES)
view.show_only([sys.argv[1]], [])
print(json.dumps(os.listdir(sys.argv[1])))
"""
    assert without_landlock(program, str(tmp_path)) == ["module.py"]


def test_code_runs_where_the_folder_of_its_parent_may_not_be_read(tmp_path: Path) -> None:
    program = """
import json, os, sys
from rewardpool_runtime.guard.policy_code import Limits, restrict
os.chdir(sys.argv[1])
restrict(Limits(cpu_seconds=60, memory_bytes=64 << 20), parent=os.getppid())
print(json.dumps(os.getcwd()))
"""
    assert without_landlock(program, str(tmp_path)) == "/"
