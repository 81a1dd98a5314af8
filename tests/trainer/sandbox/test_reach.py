"""What code in the sandbox cannot reach: every attempt ends in an exception of its own, and harms nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.hostile_code import FILES, NETWORK, PROCESSES, REFUSALS, WRITES, reaching

from rewardpool.sandbox import Call, probe, run
from rewardpool.sandbox.parent import zygotes
from rewardpool_runtime.guard import kernel
from rewardpool_runtime.guard.attempts import OF_POLICY_CODE, name_of


@pytest.mark.parametrize(
    "attempt", (FILES | WRITES | PROCESSES | NETWORK).values(), ids=(FILES | WRITES | PROCESSES | NETWORK)
)
def test_code_cannot_reach(attempt: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the answer")
    parent = zygotes.get(())
    verdict = run(reaching(attempt, secret=str(secret)), calls=[Call(function="attempt", expected="")])
    assert (verdict.outcome, verdict.passed) == ("raised", 0), verdict
    assert verdict.message.startswith(REFUSALS)
    assert (zygotes.get(()), secret.read_text()) == (parent, "the answer")
    assert os.stat(secret).st_mode & 0o777 != 0o777


def test_code_sees_no_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDPOOL_API_KEY", "secret")
    verdict = run("import os\ndef names(): return sorted(os.environ)", calls=[Call(function="names", expected=[])])
    assert {name.rpartition("_")[2] for name in verdict.values[0]} <= {"THREADS", "LANG", "CTYPE"}


def test_code_finds_no_expected_value_in_its_memory() -> None:
    code = """
import gc
def search():
    found = [one for one in gc.get_objects() if isinstance(one, (dict, list)) and "the-expected-value" in repr(one)]
    return "the-expected-" + "value" if found else "nothing"
"""
    verdict = run(code, calls=[Call(function="search", expected="the-expected-" + "value")])
    assert verdict.values == ["nothing"]


def test_code_reads_its_own_files_and_no_others() -> None:
    code = "import os\ndef read(): return [open('a.txt').read(), os.listdir('.')]"
    verdict = run(code, calls=[Call(function="read", expected=["text", ["a.txt"]])], files={"a.txt": "text"})
    assert verdict.outcome == "passed", verdict


def test_code_has_no_descriptor_but_its_streams_and_one_to_answer_by() -> None:
    code = """
import os
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
def count(): return sum(is_open(number) for number in range(3, 1000))
"""
    assert run(code, calls=[Call(function="count", expected=1)], preload=("numpy",)).outcome == "passed"


def test_the_probe_reaches_all_without_a_sandbox_and_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    calls = [f"assert {name_of(attempt)}({str(tmp_path)!r}) is not None" for attempt in OF_POLICY_CODE.values()]
    # In a child of this process, whose environment is then a process's of the same user.
    subprocess.run([sys.executable, "-c", "\n".join(["import os", *OF_POLICY_CODE.values(), *calls])], check=True)
    assert probe.reached() == []


@pytest.mark.parametrize("version", [0, 2])
def test_rights_on_files_that_the_kernel_cannot_refuse_are_an_error_with_a_name(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(kernel, "landlock_version", lambda: version)
    with pytest.raises(kernel.GuardError, match="Landlock"):
        kernel.file_rights()
