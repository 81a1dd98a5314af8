"""A reward function that runs a program: `python://rewardpool.sandbox.run_code:compute_score`.

The gateway's `/run_code` asks a pool of it. The score is 1.0 where the program ended with exit code 0, and all else
that it did is under `verdict`. With modules that are imported once for all programs it is a function of one's own:

    from functools import partial
    from rewardpool.sandbox import run_code

    compute_score = partial(run_code.compute_score, preload=["numpy"])

It is async, so that all calls of a worker share one sandbox's parent process; a program has a process of its own there.
"""

import asyncio
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rewardpool.errors import SandboxUnavailableError
from rewardpool.sandbox.runner import run
from rewardpool_runtime.guard.policy_code import missing

# Every byte may be six in JSON, and a client reads answers of up to 4 MiB.
OUTPUT_KIB: Final = 512

if (_lacks := missing()) is not None:  # found when a worker loads this, and not by each program
    raise SandboxUnavailableError(f"this machine lacks {_lacks}")


async def compute_score(
    data_source: str,  # verl's four arguments
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, Any],
    *,
    preload: Sequence[str] = (),
) -> dict[str, Any]:
    """Run a program, and return its exit code and output under `verdict`.

    Args:
        extra_info: `stdin`, `cpu_seconds`, `idle_seconds` and `memory_mib`, as `run` has them, and `files`: contents in
            base64 by name.

    Raises:
        ValueError: An argument is wrong.
        SandboxError: The machine's fault.
    """
    verdict = await asyncio.to_thread(
        run,
        solution_str,
        stdin=extra_info["stdin"],
        files={name: b64decode(content, validate=True) for name, content in extra_info["files"].items()},
        cpu_seconds=extra_info["cpu_seconds"],
        idle_seconds=extra_info["idle_seconds"],
        memory_mib=extra_info["memory_mib"],
        output_kib=OUTPUT_KIB,
        preload=preload,
    )
    said = ("outcome", "exit_code", "stdout", "stderr", "cpu_seconds", "message")
    return {"score": float(verdict.exit_code == 0), "verdict": {name: getattr(verdict, name) for name in said}}
