"""GPUs of this machine that a pool may have, and whether they are enough: pure, but for asking nvidia-smi.

    nvidia-smi (`find`) + CUDA_VISIBLE_DEVICES -> `choose_visible` -> `refusal`, before anything starts
                                                                   -> gpu_shares.py, for each replica

nvidia-smi is asked and not /proc/driver/nvidia, which lists a whole machine's GPUs also in a container that has some of
them. Numbers are nvidia-smi's, so engines get CUDA_DEVICE_ORDER=PCI_BUS_ID with them.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rewardpool_api import RewardPool, RewardPoolSpec

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
PROGRAM: Final = "nvidia-smi"
FIND_SECONDS: Final = 30  # nvidia-smi takes seconds where the driver is loaded anew for each question
_NONE_FOUND: Final = "No devices were found"
_UNCOUNTED: Final = "with spec.worker.gpus: 0 GPUs are not counted, and every replica sees the same"


class GpusUnreadableError(RuntimeError):
    """The machine's GPUs are unknown; the text has the cause and what to do."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, or a slice of one."""

    name: str
    """As CUDA_VISIBLE_DEVICES has it: nvidia-smi's number, or what the user wrote."""
    uuid: str


def counted(spec: RewardPoolSpec) -> int:
    """Return how many GPUs each replica gets for itself; 0 where they are not counted, as for other vendors."""
    return spec.worker.gpus if spec.worker.gpu_resource.startswith("nvidia.com/") else 0


def visible_to(spec: RewardPoolSpec, environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that a pool's replicas are given, by this machine and by what the user set.

    Args:
        spec: The pool's; CUDA_VISIBLE_DEVICES in its `engine.env` goes before the environment's.
        environ: The supervisor's environment.

    Raises:
        GpusUnreadableError: nvidia-smi fails, or CUDA_VISIBLE_DEVICES names a GPU that is not there.
    """
    in_spec = spec.engine.variables.get(VISIBLE)
    where = f"spec.engine.env: {VISIBLE}" if in_spec is not None else VISIBLE
    return choose_visible(find(environ), environ.get(VISIBLE) if in_spec is None else in_spec, where=where)


def choose_visible(found: Sequence[Gpu] | None, given: str | None, *, where: str = VISIBLE) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves of those that were found, in its order.

    Args:
        found: In nvidia-smi's order; None where they are unknown, so that the list is taken at its word.
        given: CUDA_VISIBLE_DEVICES; None for all GPUs. As for CUDA, -1 ends the list.
        where: What the list is called in an error.

    Raises:
        GpusUnreadableError: an entry is not a GPU of this machine.
    """
    if given is None:
        return tuple(found or ())
    chosen: dict[str, Gpu] = {}
    for entry in (part.strip() for part in given.split(",")):
        if entry in ("", "-1"):
            break
        gpu = _named(entry, found)
        if gpu is None:
            there = ", ".join(f"{one.name} ({one.uuid})" for one in found or ()) or "none"
            raise GpusUnreadableError(f"{where} names {entry}, which is no GPU of this machine; it has {there}")
        chosen.setdefault(gpu.uuid, gpu)
    return tuple(chosen.values())


def refusal(pool: RewardPool, visible: Sequence[Gpu], owners: Mapping[str, str]) -> str | None:
    """Return why the pool's replicas cannot have a GPU each, and what to do; None when they can.

    Args:
        pool: As declared. Of one that scales itself the least it has must fit.
        owners: Pools that have GPUs for themselves, by the GPU's uuid; the pool itself is not among them.
    """
    each, replicas = counted(pool.spec), _least_replicas(pool.spec)
    needed = each * replicas
    if needed == 0:
        return None
    request = f"spec.worker.gpus is {each} for each of {replicas} replica{'s' * (replicas != 1)}"
    if needed > len(visible):
        return (
            f"{request}, and this machine has {_counted(len(visible))} for the pool ({PROGRAM}, {VISIBLE}): lower"
            f" spec.replicas or spec.worker.gpus; {_UNCOUNTED}"
        )
    taken = {gpu.name: owners[gpu.uuid] for gpu in visible if gpu.uuid in owners}
    if needed > len(visible) - len(taken):
        have = ", ".join(f"GPU {name} is {owner}'s" for name, owner in taken.items())
        return (
            f"{request}, and {len(visible) - len(taken)} of {_counted(len(visible))} are free: {have}. Stop a pool"
            f" (`rewardpool down {next(iter(taken.values()))}`), lower spec.replicas or spec.worker.gpus;"
            f" {_UNCOUNTED}"
        )
    return None


def variables(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the environment of an engine that has these GPUs; empty for one whose GPUs are not counted."""
    return {VISIBLE: ",".join(gpu.name for gpu in gpus), ORDER: "PCI_BUS_ID"} if gpus else {}


def find(environ: Mapping[str, str], *, seconds: float = FIND_SECONDS) -> tuple[Gpu, ...] | None:
    """Ask nvidia-smi, for so long, which GPUs there are; None where there is no nvidia-smi.

    Raises:
        GpusUnreadableError: it fails, hangs, or says something else.
    """
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    if program is None:
        return None
    command = [program, "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        listing = subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpusUnreadableError(_unreadable(str(error))) from None
    return parse(listing.stdout, listing.stderr, listing.returncode)


def parse(output: str, errors: str, code: int) -> tuple[Gpu, ...]:
    """GPUs by the answer of nvidia-smi.

    Raises:
        GpusUnreadableError: it failed, or this is not a list of GPUs.
    """
    if _NONE_FOUND in output + errors:
        return ()
    rows = [[part.strip() for part in line.split(",")] for line in output.splitlines() if line.strip()]
    if code != 0 or any(len(row) != 2 or not row[0].isdecimal() or not row[1] for row in rows):
        said = (output + errors).strip().splitlines()
        raise GpusUnreadableError(_unreadable(f"exit code {code}: {said[0] if said else 'no words'}"))
    return tuple(Gpu(name=index, uuid=uuid) for index, uuid in rows)


def _unreadable(cause: str) -> str:
    return (
        f"{PROGRAM} does not say which GPUs there are ({cause}): repair the driver, or set spec.worker.gpus to 0,"
        " with which GPUs are not counted"
    )


def _named(entry: str, found: Sequence[Gpu] | None) -> Gpu | None:
    if entry.startswith("MIG-") or found is None:
        # nvidia-smi lists slices elsewhere; a wrong one is refused by the engine.
        return Gpu(name=entry, uuid=entry)
    matches = [gpu for gpu in found if gpu.name == entry or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))]
    return Gpu(name=entry, uuid=matches[0].uuid) if len(matches) == 1 else None


def _least_replicas(spec: RewardPoolSpec) -> int:
    if spec.suspend:
        return 0
    if spec.autoscaling is None or spec.autoscaling.is_external:
        return 1 if spec.replicas is None else spec.replicas
    return max(1, spec.autoscaling.min_replicas)


def _counted(number: int) -> str:
    return "no GPU" if number == 0 else f"{number} GPU{'s' * (number != 1)}"
