"""What code may use, and whose fault it is that it ended."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.hostile_code import ENDS, RESULTS

from rewardpool.errors import SandboxError, SandboxUnavailableError
from rewardpool.sandbox import Call, Outcome, Verdict, parent, process, run
from rewardpool.sandbox.parent import zygotes


@pytest.mark.parametrize(("code", "outcome"), ENDS.values(), ids=ENDS)
def test_code_ends_by_its_own_fault(code: str, outcome: Outcome) -> None:
    calls = [Call(function="f", expected=1)]
    verdict = run(code, calls=calls, cpu_seconds=0.5, idle_seconds=0.5, memory_mib=64, output_kib=8)
    assert (verdict.outcome, verdict.passed, verdict.total) == (outcome, 0, 1), verdict
    assert verdict.message


@pytest.mark.parametrize("code", RESULTS.values(), ids=RESULTS)
def test_a_result_is_not_right_by_what_it_is_made_of(code: str) -> None:
    verdict = run(code, calls=[Call(function="f", expected=1)], memory_mib=512)
    assert verdict.passed == 0, verdict


def test_the_guard_itself_uses_nothing_of_the_program_s_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "cpu_clock", lambda pid: 1.0)
    monkeypatch.setattr(process, "SAMPLE_SECONDS", (0.0, 0.0))
    assert run("def f(): return 1", calls=[Call(function="f", expected=1)], cpu_seconds=0.1).passed == 1


def test_a_right_answer_passes_on_a_busy_machine() -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        code = "import time\ndef f():\n while time.process_time() < 0.4: pass\n return 1"
        verdict = run(code, calls=[Call(function="f", expected=1)], cpu_seconds=0.6)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert verdict.outcome == "passed", verdict


def test_a_hostile_neighbour_changes_no_verdict() -> None:
    right = Call(function="f", expected=499_500)

    def good(_: int) -> Verdict:
        return run("def f(): return sum(range(1000))", calls=[right])

    def bad(number: int) -> Verdict:
        return run(list(ENDS.values())[number][0], calls=[right], cpu_seconds=0.2, idle_seconds=0.2, memory_mib=64)

    with ThreadPoolExecutor(6) as pool:
        bads = [pool.submit(bad, number) for number in range(len(ENDS))]
        goods = list(pool.map(good, range(30)))
        assert {verdict.outcome for verdict in goods} == {"passed"}
        assert {one.result().passed for one in bads} == {0}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_process_that_is_killed_from_outside_is_no_verdict() -> None:
    parent = zygotes.get(("abc",)).pid
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run("while True: pass", cpu_seconds=30, preload=("abc",))
        except SandboxError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not (found := children(parent)):
        time.sleep(0.01)
    os.kill(found[0], signal.SIGKILL)
    thread.join()
    assert "killed from outside" in str(failures[0])


def test_a_run_whose_parent_process_dies_is_no_verdict_and_the_next_one_has_another() -> None:
    parent = zygotes.get(("this",)).pid
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(run, "while True: pass", cpu_seconds=30, preload=("this",)) for _ in range(3)]
        while len(children(parent)) < 3:
            time.sleep(0.01)
        os.kill(parent, signal.SIGKILL)
        assert {type(one.exception()) for one in running} == {SandboxError}
    assert run("pass", preload=("this",)).outcome == "passed"


def test_a_parent_process_whose_caller_was_interrupted_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    zygote = zygotes.get(())

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parent, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run("pass")
    assert run("pass").outcome == "passed"
    assert zygotes.get(()) is not zygote


def test_a_run_leaves_no_process_and_no_file() -> None:
    run("pass")
    before = os.listdir("/proc/self/fd")
    run("import time; time.sleep(60)", idle_seconds=0.1, files={"a": ""})
    assert (children(zygotes.get(()).pid), len(os.listdir("/proc/self/fd"))) == ([], len(before))
    assert not list(Path(tempfile.gettempdir()).glob("rewardpool-sandbox-*"))


def test_a_module_that_cannot_be_preloaded_is_named() -> None:
    with pytest.raises(
        SandboxUnavailableError, match="preload: no_such_module cannot be imported: ModuleNotFoundError"
    ):
        run("pass", preload=("no_such_module",))


def test_a_forked_process_has_a_parent_of_its_own() -> None:
    run("pass")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if run("pass").outcome == "passed" else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert run("pass").outcome == "passed"


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_a_supervisor_without_standard_streams_has_sandboxes(closed: tuple[int, ...], tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = f"""
import os, sys
for number in {closed}: os.close(number)
from rewardpool.sandbox import run
verdict = run("import sys; print(input()); print('note', file=sys.stderr)", stdin="text")
open({str(said)!r}, "w").write(repr((verdict.outcome, verdict.stdout, verdict.stderr)))
"""
    subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert said.read_text() == "('passed', 'text\\n', 'note\\n')"


HIDDEN = "mount -t proc -o hidepid=2 proc /proc && exec"
WITHOUT_RIGHTS = "setpriv --bounding-set=-all --inh-caps=-all --regid=65534 --clear-groups --no-new-privs"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts /proc in a namespace of its own, which root may")
def test_idle_time_is_seen_where_proc_hides_processes() -> None:
    code = "from rewardpool.sandbox import run; print(run('import time; time.sleep(60)', idle_seconds=0.1).outcome)"
    command = ["unshare", "--mount", "sh", "-c", f'{HIDDEN} {WITHOUT_RIGHTS} "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.stderr.startswith(("unshare:", "mount:")):
        pytest.skip(done.stderr)  # a container without the right to mount
    assert done.stdout == "idle_exceeded\n", done.stderr


def test_files_that_cannot_be_written_are_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full")
    with pytest.raises(SandboxError, match=r"files: .* cannot be written"):
        run("pass", files={"a": "text"})


def test_a_process_that_may_not_have_the_memory_itself_has_no_sandbox_with_it() -> None:
    code = """
import resource
from rewardpool.sandbox import run
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
print(run("pass", memory_mib=64).outcome)
run("pass", memory_mib=2048)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "passed\n"
    assert "SandboxUnavailableError: " in done.stderr
    assert "2048 MiB of memory are more than the limit of this process leaves" in done.stderr
