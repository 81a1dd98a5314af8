"""What code in the sandbox cannot reach: every attempt ends in an exception of its own, and harms nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rewardpool.sandbox import Call, probe, run
from rewardpool.sandbox.parent import zygotes
from rewardpool_runtime.guard.attempts import OF_POLICY_CODE, name_of

BY_LIBC = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
"""

FILES = {
    "the secret": "open(SECRET).read()",
    "the secret, by another name": "open('/proc/self/root' + SECRET).read()",
    "the secret, in no mode": "os.open(SECRET, 3)",
    "the users": "open('/etc/passwd').read()",
    "the first process's environment": "open('/proc/1/environ').read()",
    "the parent's environment": "open(f'/proc/{os.getppid()}/environ').read()",
    "the parent's memory": "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "processes": "os.listdir('/proc')",
    "the root": "os.listdir('/')",
    "temporary files": "os.listdir('/tmp')",
}
WRITES = {
    "the working folder": "open('x', 'w').write('x')",
    "the temporary folder": "open('/tmp/x', 'w')",
    "shared memory": "open('/dev/shm/x', 'w')",
    "a folder": "os.mkdir('/tmp/x')",
    "a link": "os.symlink('/etc/passwd', '/tmp/x')",
    "a deletion": "os.unlink(SECRET)",
    "a mode": "os.chmod(SECRET, 0o777)",
    "a truncation": "os.truncate(SECRET, 0)",
    "a file in memory": "os.memfd_create('x')",
    "its standard input": "os.write(0, b'x' * 100)",
}
PROCESSES = {
    "fork": "os.fork()",
    "spawn": "__import__('subprocess').run(['true'])",
    "exec": "os.execv('/bin/true', ['true'])",
    "a thread": "__import__('threading').Thread(target=print).start()",
    "a kill of the parent": "os.kill(os.getppid(), 9)",
    "a kill of all": "os.kill(-1, 9)",
    "a kill of its group": "os.kill(0, 9)",
    "a kill of itself": "os.kill(os.getpid(), 9)",
    "the parent's limits": "__import__('resource').prlimit(os.getppid(), 7, (3, 3))",
    "its own limits": "__import__('resource').setrlimit(0, (100, 100))",
    "the parent's priority": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "the parent's processors": "os.sched_setaffinity(os.getppid(), {0})",
    "a trace of the parent": "checked(libc.ptrace(16, os.getppid(), 0, 0))",
    "reading the parent's memory": "checked(libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0))",
    "signals by a descriptor": "__import__('fcntl').fcntl(0, 8, os.getppid())",
    "a namespace": "checked(libc.unshare(0x10000000))",
    "another user": "os.setuid(65534)",
}
NETWORK = {
    "TCP": "__import__('socket').socket()",
    "UDP": "__import__('socket').socket(2, 2)",
    "a Unix socket": "__import__('socket').socket(1, 1)",
    "netlink": "__import__('socket').socket(16, 3)",
    "a pair": "__import__('socket').socketpair()",
    "io_uring": "checked(libc.syscall(425, 1, ctypes.create_string_buffer(120)))",
}


@pytest.mark.parametrize(
    "attempt", (FILES | WRITES | PROCESSES | NETWORK).values(), ids=(FILES | WRITES | PROCESSES | NETWORK)
)
def test_code_cannot_reach(attempt: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the answer")
    code = f"{BY_LIBC}\nSECRET = {str(secret)!r}\ndef attempt():\n    return str({attempt})\n"
    parent = zygotes.get(())
    verdict = run(code, calls=[Call(function="attempt", expected="")])
    assert (verdict.outcome, verdict.passed) == ("raised", 0), verdict
    assert verdict.message.startswith(("OSError", "PermissionError", "FileNotFoundError", "RuntimeError", "ValueError"))
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
