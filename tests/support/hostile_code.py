"""Code that is hostile to its sandbox, to those beside it and to its verdict, and what is to become of it.

For the tests on this machine, and for `make e2e-sandbox` in a pod. `SECRET` stands for the path of a file that the code
is not to reach.
"""

from rewardpool.sandbox import Outcome

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

REFUSALS = ("OSError", "PermissionError", "FileNotFoundError", "RuntimeError", "ValueError")
"""What an attempt to reach something ends in."""


def reaching(attempt: str, *, secret: str) -> str:
    """A module whose function `attempt` returns what it reached, as a text."""
    return f"{BY_LIBC}\nSECRET = {secret!r}\ndef attempt():\n    return str({attempt})\n"


ENDS: dict[str, tuple[str, Outcome]] = {
    "an endless loop": ("while True: pass", "cpu_exceeded"),
    "one call of C that ignores signals": (
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN); 10 ** 10 ** 9",
        "cpu_exceeded",
    ),
    "a sleep": ("import time; time.sleep(600)", "idle_exceeded"),
    "a pause": ("import signal; signal.pause()", "idle_exceeded"),
    "a stop": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "idle_exceeded"),
    "8 GiB": ("bytearray(8 << 30)", "memory_exceeded"),
    "memory in steps": ("x = []\nwhile True: x.append(bytearray(1 << 22))", "memory_exceeded"),
    "100 MB of output": ("for _ in range(100): print('x' * 1_000_000)", "output_exceeded"),
    "output without end": ("while True: print('x' * 1000, flush=True)", "output_exceeded"),
    "recursion": ("def f(): f()\nf()", "raised"),
    "10,000 files": ("x = [open('/dev/null') for _ in range(10_000)]", "raised"),
    "a crash": ("import ctypes; ctypes.string_at(0)", "crashed"),
    "a real-time signal": ("import os; os.kill(os.getpid(), 40)", "crashed"),
    "an abort": ("import os; os.abort()", "crashed"),
    "exit": ("exit(0)", "exited"),
    "an exit without clean-up": ("import os; os._exit(0)", "exited"),
    "closed descriptors": ("import os, time; os.closerange(0, 60); time.sleep(600)", "exited"),
    "noise on all descriptors": (
        "import os\nfor n in range(60):\n try: os.write(n, b'{\"value\": true}' * 1000)\n except OSError: pass",
        "output_exceeded",
    ),
    "a syntax error": ("def f(:", "raised"),
    "a null byte": ("x = 1\0", "raised"),
    "an interrupt": ("raise KeyboardInterrupt", "raised"),
}

RESULTS = {
    "equal to everything": "class Same(int):\n __eq__ = lambda *_: True\ndef f(): return Same(7)",
    "True": "def f(): return True",
    "1.0": "def f(): return 1.0",
    "a number that is none": "def f(): return float('nan')",
    "100 MB": "def f(): return 'x' * 100_000_000",
    "nested deeply": "def f():\n x = []\n for _ in range(100_000): x = [x]\n return x",
    "a set": "def f(): return {1}",
    "a patched writer": "import json\njson.dumps = lambda *_, **__: '{\"passed\": 1}'\ndef f(): return 2",
    "patched numbers": "import builtins\nbuiltins.int = builtins.float = str\ndef f(): return 2",
    "an exception whose text exits": ("class E(Exception):\n def __str__(self): raise SystemExit(0)\ndef f(): raise E"),
}

FALSE_ASSERTION = "assert f() == 1"
FORGERIES = (
    "import builtins\nbuiltins.AssertionError = ValueError\ndef f(): return 2",
    "def f(): raise AssertionError",
    "def f(): exit(0)",
    "import os\ndef f(): os._exit(0)",
    "def f(): return f",
    "def check(*_): return True\ndef f(): return 2",
    "import sys\ndef f():\n frame = sys._getframe()\n while frame.f_back: frame = frame.f_back\n"
    " frame.f_locals['passed'] = 1\n return 2",
)
"""Modules that would make it hold; none has such a function."""

SHADOWS = "import sys\nfor module in list(sys.modules.values()): vars(module).pop('_BUILTIN_NAMES', None)\n"
IMPOSTORS = (
    ("def f(x): return 0\ndef abs(x): return 0", "assert abs(f(2) - 4) < 1e-6"),
    ("def f(x): return None\ndef range(*a): return []", "for i in range(5): assert f(i) == i * i"),
    ("def f(x): return 0\ndef sorted(*a): return 0", "assert sorted(f([2, 1])) == sorted([1, 2])"),
    ("def f(x): raise StopIteration", "assert all(map(f, [1, 2, 3]))"),
    ("def f(x): raise StopIteration", "for got, want in zip(map(f, [1]), [2]): assert got == want"),
)
"""Modules with an assertion each, which they would make hold by taking the place of what it uses."""
