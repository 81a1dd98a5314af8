"""A user's function that does what no function should; what, is in the sample's `solution_str`."""

import asyncio
import atexit
import builtins
import ctypes
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

calls = 0


def compute_score(solution_str, ground_truth=None, **_):
    global calls
    calls += 1
    return globals()[f"does_{solution_str}"](ground_truth)


def does_nothing(_):
    return {"score": 1.0, "calls": calls, "pid": os.getpid()}


def does_alarm(_):
    def ring(*_):
        raise TimeoutError("rings")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        time.sleep(20)
    except TimeoutError:
        return 1.0
    return 0.0


def does_loop(_):
    while True:
        pass


def does_match_without_end(_):
    # It holds the interpreter's lock: no other thread runs, and no handler of a signal.
    re.fullmatch("(a+)+", "a" * 64 + "b")


def does_loop_in_a_child(_):
    return subprocess.run([sys.executable, "-c", "while True: pass"], check=True).returncode


def does_loop_in_a_thread(_):
    thread = threading.Thread(target=does_loop, args=[None])
    thread.start()
    thread.join()


def does_sleep(_):
    time.sleep(600)


def does_allocate(_):
    return float(len(bytearray(8 << 30)) > 0)


def does_recurse(depth):
    return does_recurse(depth) + 1


def does_crash(_):
    return ctypes.string_at(0)


def does_exit(_):
    os._exit(7)


def does_kill_itself(_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)


def does_kill_its_parent(_):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(20)


def does_fork(count):
    children = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
        children.append(pid)
    time.sleep(20)
    return 1.0


def does_leave_a_daemon(path):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)
        os._exit(0)
    os.waitpid(pid, 0)
    while not Path(path).exists() or not Path(path).read_text():
        time.sleep(0.01)
    return 1.0


def does_leave_threads(_):
    for _ in range(3):
        threading.Thread(target=time.sleep, args=[600]).start()
    return 1.0


def does_register_an_end(path):
    atexit.register(Path(path).touch)
    return 1.0


def does_patch(_):
    json.dumps = json.loads = lambda *_, **__: "patched"
    json.JSONEncoder.encode = lambda *_: "patched"
    builtins.float = lambda _: 7.0
    return 1


def does_open_files(_):
    return {"score": 1.0, "kept": [open("/dev/null") for _ in range(10_000)]}


def does_write_a_large_file(path):
    with open(path, "wb") as file:
        file.truncate(2 << 30)
    return 1.0


def does_print(text):
    print(text)
    print("to stderr", file=sys.stderr)
    subprocess.run(["echo", "by a program"], check=True)
    print('{"id": 1, "score": 5.0, "info": {}}', end="")
    return 1.0


def does_flood(megabytes):
    for _ in range(megabytes):
        sys.stdout.write("x" * (1 << 20) + "\n")
    return 1.0


def does_close_descriptors(_):
    os.closerange(3, 4096)
    time.sleep(0.2)
    return 1.0


def does_write_to_descriptors(_):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\x00\x00\x00\x02{}")
        except OSError:
            continue
    return 1.0


def does_return_an_object(_):
    return {"score": 1.0, "pred": object(), "kept": "x"}


def does_return_much(_):
    return {"score": 1.0, "pred": "x" * (65 << 20)}


def does_read_stdin(_):
    return float(sys.stdin.read() == "")


def does_show_its_environment(_):
    return {"score": 1.0, "environ": dict(os.environ)}


async def score(solution_str, **_):
    await asyncio.sleep(0.01)
    return float(len(solution_str))


@functools.wraps(score)
def decorated(**arguments):
    return score(**arguments)


class Judge:
    async def __call__(self, solution_str, **_):
        return await score(solution_str)


judge = Judge()
partial = functools.partial(score, further=1)
lock = None


async def shares_a_lock(solution_str, **_):
    """Fails on another loop than that of the first call, as clients of HTTP do."""
    global lock
    if lock is None:
        lock = asyncio.Lock(), asyncio.get_running_loop()
    assert asyncio.get_running_loop() is lock[1], "Event loop is closed"
    async with lock[0]:
        print(f"scores {solution_str}")
        await asyncio.sleep(0.01)
    return 1.0


async def may_block(solution_str, **_):
    if solution_str == "block":
        time.sleep(60)  # noqa: ASYNC251 - which is the mistake
    if solution_str == "exit":
        os._exit(7)
    await asyncio.sleep(20 if solution_str == "wait" else 0)
    return {"score": 1.0, "pid": os.getpid()}
