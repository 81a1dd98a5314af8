"""What a sandbox on this machine lets code reach, found by trying it."""

import os
import tempfile
from typing import Final

from rewardpool.sandbox.runner import Call, run

ATTEMPTS: Final = {
    "a file": "def file(folder): return open(folder + '/secret').read()",
    "writing": "def writing(folder): return open(folder + '/written', 'w').write('x')",
    "a socket": "def socket(_): return __import__('socket').socket().fileno()",
    "a Unix socket": "def unix_socket(_): return __import__('socket').socket(1).fileno()",
    "another process's environment": "def environ(_): return len(open(f'/proc/{os.getppid()}/environ').read())",
    "a process of its own": (
        "def fork(_):\n    pid = os.fork()\n    return os._exit(0) if pid == 0 else os.waitpid(pid, 0)[0]"
    ),
}
"""Each a function of a folder that the code must not reach, which returns something if it succeeds."""


def reached() -> list[str]:
    """Return the names of the attempts that succeeded, which should be none.

    Raises:
        SandboxUnavailableError: This machine cannot make a sandbox; the message says what it lacks.
        SandboxError: The sandbox could not be run.
    """
    code = "\n".join(["import os", *ATTEMPTS.values()])
    with tempfile.TemporaryDirectory(prefix="rewardpool-probe-") as folder:
        with open(os.path.join(folder, "secret"), "w") as file:
            file.write("secret")
        calls = [Call(function=_function(attempt), args=[folder], expected=None) for attempt in ATTEMPTS.values()]
        values = run(code, calls=calls).values
    return [name for name, value in zip(ATTEMPTS, values, strict=True) if value is not None]


def _function(attempt: str) -> str:
    return attempt.removeprefix("def ").partition("(")[0]
