"""A vLLM server as a child of the job: only the job can reach it, and it ends with the job, however that ends.

It listens on a Unix socket in a folder that only this user may enter. This protects more than an API key would: vLLM
checks its key on the routes that sample, but not on those that change the weights.
"""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rewardpool.errors import ConfigError, RolloutError
from rewardpool_runtime.process_guard import GUARD
from rewardpool_train.actor.rollout.vllm_client import SocketAddress, VllmClient

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
END_SECONDS = 10.0  # for vLLM to end before it is killed
TAIL_CHARACTERS = 2000  # of the log, in an error
# GiB for keys and values on a CPU, where vLLM would otherwise use nine tenths of the memory; ignored on GPUs.
DEFAULTS = {"VLLM_CPU_KVCACHE_SPACE": "1"}
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # the routes that change weights
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",  # the policy is a folder
}


@contextmanager
def running_vllm(
    policy: Path, *, python: str, arguments: Sequence[str], log_file: Path, deadline_seconds: float
) -> Iterator[Path]:
    """Yield the Unix socket of a vLLM that serves a policy under the name `policy`; it ends with the block.

    Enter it on a thread that lives as long as the job, such as the main one: the kernel ends the server with the
    thread.

    Args:
        python: Interpreter that has vLLM.
        arguments: Arguments of vLLM, after those that the trainer needs, so that they override these.
        log_file: Gets vLLM's output.

    Raises:
        ConfigError: The interpreter was not found.
        RolloutError: It ended, or did not answer in time; the message has the end of its log.
    """
    if shutil.which(python) is None:
        raise ConfigError("rollout.vllm.python", f"{python} not found; set it to an interpreter that has vLLM")
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rewardpool-") as folder, log_file.open("wb") as output:
        socket = Path(folder, "vllm")
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD, str(os.getpid()), python, *command(policy, socket), *arguments],
            env={**DEFAULTS, **os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the trainer, which may have a step to finish
        )
        try:
            log.info("vLLM starts, which takes about a minute; it writes to %s", log_file)
            start = time.monotonic()
            asyncio.run(_wait_until_healthy(child, socket, log_file, deadline_seconds))
            log.info("vLLM is up after %.0f s", time.monotonic() - start)
            yield socket
        finally:
            _stop(child)


def command(policy: Path, socket: Path) -> list[str]:
    """Return the interpreter's arguments for a vLLM that can be trained against."""
    return [
        # The module that `vllm serve` runs; that program ends at once with the wheel for CPUs, which has another name.
        *("-m", "vllm.entrypoints.launchers.api_server.entry"),
        *("--model", str(policy), "--served-model-name", "policy"),
        *("--uds", str(socket)),
        "--enable-scale-out",  # token ids in and out
        # Probabilities after the temperature: those that the token was drawn from.
        *("--logprobs-mode", "processed_logprobs"),
        # Else the model's own top-k and the like shape the sampling, silently.
        *("--generation-config", "vllm"),
        "--disable-uvicorn-access-log",
    ]


async def _wait_until_healthy(
    child: "subprocess.Popen[bytes]", socket: Path, log_file: Path, deadline_seconds: float
) -> None:
    """Wait until the server answers, and set version 0 of its weights."""
    try:
        async with asyncio.timeout(deadline_seconds), VllmClient.connect(SocketAddress(socket)) as client:
            while not await client.is_healthy():
                if child.poll() is not None:
                    raise RolloutError(f"vLLM ended with {child.returncode} at its start:\n{_tail(log_file)}")
                await asyncio.sleep(POLL_SECONDS)
            await client.set_weight_version(0)
    except TimeoutError as error:
        raise RolloutError(f"vLLM did not answer within {deadline_seconds:g} s:\n{_tail(log_file)}") from error


def _stop(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(END_SECONDS)
    with suppress(ProcessLookupError):  # all of it has ended
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _tail(log_file: Path) -> str:
    return log_file.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:]
