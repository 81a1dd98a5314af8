"""Probe of a sandbox on this machine: finds by trying what code can reach."""

import os
import tempfile

from rewardpool.sandbox.runner import Call, run
from rewardpool_runtime.guard.attempts import OF_POLICY_CODE, name_of


def reached() -> list[str]:
    """Return the names of the attempts that succeeded, which should be none.

    Raises:
        SandboxUnavailableError: This machine cannot make a sandbox; the message says what it lacks.
        SandboxError: The sandbox could not be run.
    """
    code = "\n".join(["import os", *OF_POLICY_CODE.values()])
    with tempfile.TemporaryDirectory(prefix="rewardpool-probe-") as folder:
        with open(os.path.join(folder, "secret"), "w") as file:
            file.write("secret")
        calls = [Call(function=name_of(attempt), args=[folder], expected=None) for attempt in OF_POLICY_CODE.values()]
        values = run(code, calls=calls).values
    return [name for name, value in zip(OF_POLICY_CODE, values, strict=True) if value is not None]
