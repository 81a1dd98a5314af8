"""Memory of a teacher's step beside its engine's own, for the launchers of vLLM and of SGLang.

Engines give their cache what is left of a fraction of the GPU's memory, and measure no log-probabilities for it. Those
of a step come on top of the fraction: where they have no room, the first long sequences would end the engine.
"""

import argparse
import logging
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rewardpool_api.names import ENV_MODEL_PATH, ENV_STEP_TOKENS
from rewardpool_worker.engine_side.middleware.checkpoint import Checkpoint

log = logging.getLogger("rewardpool.worker")

BYTES_PER_VALUE: Final = 8  # a logit and its log-probability, both in float32
LEAST_FREE: Final = 0.9  # drivers have some of a GPU that the engine has for itself
NVIDIA_SMI_SECONDS: Final = 20.0
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class GpuMemory:
    """Memory of one GPU before the engine starts."""

    total: int
    """Bytes in all."""
    free: int
    """Bytes that no process has."""


@dataclass(frozen=True, kw_only=True)
class MemoryFlag:
    """The flag of an engine for its fraction of a GPU's memory."""

    name: str
    of: Literal["total", "free"]
    default: float | None = None
    """What the engine takes without the flag; None where that depends on the GPU and leaves room."""

    def bytes_of(self, gpu: GpuMemory) -> int:
        """Return the memory that 1 stands for."""
        return gpu.total if self.of == "total" else gpu.free


VLLM: Final = MemoryFlag(name="--gpu-memory-utilization", of="total", default=0.92)
SGLANG: Final = MemoryFlag(name="--mem-fraction-static", of="free")


class NoRoomError(ValueError):
    """A step would not fit beside the engine; the text has the numbers and what to set."""


def flags(
    flag: MemoryFlag, given: float | None, gpus: Sequence[GpuMemory], *, tokens: int, vocabulary: int
) -> list[str]:
    """Return what to add to an engine's command line so that a step has room on each GPU; pure.

    Args:
        flag: The engine's.
        given: Its value in `spec.engine.args`; None without one.
        gpus: Those of the engine; none where there is nothing to measure.
        tokens: Tokens of a step.
        vocabulary: Tokens of the vocabulary.

    Returns:
        The flag with a smaller fraction than the engine's default where that leaves too little on a GPU that no other
        process uses; else nothing.

    Raises:
        NoRoomError: The given value leaves too little, or no value would leave enough.
    """
    fraction = flag.default if given is None else given
    if fraction is None or not gpus:
        return []
    needed = tokens * vocabulary * BYTES_PER_VALUE
    index, tightest = min(enumerate(gpus), key=lambda one: _most(flag, one[1], needed))
    most = _most(flag, tightest, needed)
    if fraction <= most:
        return []
    # Not where other processes have the memory: what they left would be a cache of next to nothing.
    if given is None and most > 0 and tightest.free >= LEAST_FREE * tightest.total:
        log.warning("%s is %.2f instead of %g: a teacher's step needs %s", flag.name, most, fraction, _gb(needed))
        return [flag.name, f"{most:.2f}"]
    left = max(0.0, tightest.free - fraction * flag.bytes_of(tightest))
    takes = f"{flag.name} {fraction:g}" if given is None else f"spec.engine.args has {flag.name} {fraction:g}, which"
    instead = f"set {flag.name} to at most {most:.2f}" if most > 0 else "free its memory, or take a larger GPU"
    raise NoRoomError(
        f"{takes} leaves {_gb(left)} of the {_gb(tightest.free)} that are free on GPU {index} of {_gb(tightest.total)},"
        f" and a teacher's step needs {_gb(needed)} beside the engine, {tokens:,} tokens x {vocabulary:,} of the"
        f" vocabulary x {BYTES_PER_VALUE} bytes: {instead}"
    )


def _most(flag: MemoryFlag, gpu: GpuMemory, needed: int) -> float:
    base = flag.bytes_of(gpu)
    return math.floor((gpu.free - needed) / base * 100) / 100 if base else 0.0


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB"


def flags_or_refuse(flag: MemoryFlag, argv: Sequence[str]) -> list[str] | None:
    """Return what to add to a command line; None where a step has no room, which is printed.

    Nothing is added for workers that are no teachers, and where no GPU or no vocabulary can be read.
    """
    tokens = os.environ.get(ENV_STEP_TOKENS)
    if tokens is None:
        return []
    gpus, vocabulary = find_gpus(os.environ), Checkpoint.at(os.environ[ENV_MODEL_PATH]).vocabulary_size
    if not gpus or vocabulary is None:
        return []
    try:
        return flags(flag, _given(flag, argv), gpus, tokens=int(tokens), vocabulary=vocabulary)
    except NoRoomError as error:
        # In the words that the diagnosis of a worker that ended looks for.
        print(f"no room for a step: {error}", file=sys.stderr)
        return None


def _given(flag: MemoryFlag, argv: Sequence[str]) -> float | None:
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument(flag.name, type=float, dest="fraction")
    try:
        found: float | None = parser.parse_known_args([_hyphenated(argument) for argument in argv])[0].fraction
    except argparse.ArgumentError:
        return None
    return found


def _hyphenated(argument: str) -> str:
    """Return an argument with the hyphens in its name for which engines also take underscores."""
    name, equals, value = argument.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else argument


def find_gpus(environ: Mapping[str, str]) -> tuple[GpuMemory, ...]:
    """Return the GPUs that a process with these variables sees; none where nvidia-smi is missing or says no sizes."""
    program, visible = shutil.which("nvidia-smi", path=environ.get("PATH")), environ.get("CUDA_VISIBLE_DEVICES")
    if program is None or visible == "":
        return ()
    command = [program, "--query-gpu=memory.total,memory.free", "--format=csv,noheader,nounits"]
    command += [f"--id={visible}"] if visible else []
    try:
        found = subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, check=True, timeout=NVIDIA_SMI_SECONDS
        )
        return parse(found.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        log.warning("the memory of the GPUs is not known, so that of a step is not looked at: %s", error)
        return ()


def parse(listing: str) -> tuple[GpuMemory, ...]:
    """Return the GPUs of a listing by nvidia-smi, a line for each with MiB in all and MiB that are free.

    Raises:
        ValueError: It has something else, such as `[N/A]` for memory that a GPU shares with the machine.
    """
    rows = [line.split(",") for line in listing.splitlines() if line.strip()]
    return tuple(GpuMemory(total=int(total) * _MIB, free=int(free) * _MIB) for total, free in rows)
