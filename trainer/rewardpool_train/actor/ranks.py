"""The processes of one training job, as torchrun starts them, and their collectives."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from rewardpool.errors import OtherRankError

T = TypeVar("T")

log = logging.getLogger(__name__)

# Threads of gloo have only a few instructions left, but may wait for a processor on a busy machine.
GLOO_WAIT_SECONDS: Final = 5.0
_TASKS: Final = Path("/proc/self/task")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """A process of the job, and its collectives. All ranks call each of them at the same point of their work.

    Attributes:
        rank: Rank of this process, from 0.
        device: Device of this rank's share of the policy.
        mesh: One-dimensional device mesh that the policy is sharded over.
    """

    rank: int
    size: int
    device: torch.device
    mesh: Any

    @property
    def first(self) -> bool:
        """True if this process writes files and shows progress."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        return self._reduce(values, dist.ReduceOp.SUM)

    def max(self, *values: float) -> list[float]:
        return self._reduce(values, dist.ReduceOp.MAX)

    def broadcast(self, value: T) -> T:
        """Return the value of rank 0, which must be picklable."""
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all ranks, ordered by rank; they must be picklable."""
        values = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    @contextmanager
    def synchronized(self) -> Iterator[None]:
        """Wait for all ranks at the end of the block, and raise an error of one of them on all."""
        problem = None
        try:
            yield
        except Exception as error:  # the other ranks wait for it
            problem = error
        self.raise_on_all(problem)

    def raise_on_all(self, problem: Exception | None) -> None:
        """Raise the error of this rank, or `OtherRankError` for that of another one, so none waits for a rank that has
        failed.

        `problem` is None on a rank without an error.
        """
        own = None if problem is None else f"{type(problem).__name__}: {problem}"
        problems = self.all_gather(own)
        if problem is not None:
            raise problem
        for rank, other in enumerate(problems):
            if other is not None:
                raise OtherRankError(f"rank {rank} failed: {other}")

    def _reduce(self, values: tuple[float, ...], operation: Any) -> list[float]:
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(together, op=operation)
        reduced: list[float] = together.tolist()
        return reduced


@contextmanager
def join_job(*, deadline_seconds: float) -> Iterator[Ranks]:
    """Join the job that torchrun started, or create a job of one process without it; leave it at the end of the block.

    It uses GPUs with NCCL if each rank of this machine has one, otherwise the CPU with gloo. A collective that takes
    longer than `deadline_seconds` raises.
    """
    cuda = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    alone = "RANK" not in os.environ
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        timeout=timedelta(seconds=deadline_seconds),
        **({"store": dist.HashStore(), "rank": 0, "world_size": 1} if alone else {}),
    )
    try:
        size = dist.get_world_size()
        mesh = init_device_mesh(device.type, (size,))
        yield Ranks(rank=dist.get_rank(), size=size, device=device, mesh=mesh)
    finally:
        dist.destroy_process_group()
        _wait_for_gloo()


def _wait_for_gloo() -> None:
    """Wait until no thread of gloo holds a finished collective, for at most 5 s; only on Linux."""
    # TRAP: such a thread frees the collective's tensors a moment after it reported the result, and needs the
    # interpreter's lock for that. If the interpreter is already ending, Python 3.11 aborts with "terminate called
    # without an active exception": a job that did all of its work fails, and torchrun kills the ranks that still write.
    # Destroying a group only joins its threads when the last reference to it is gone, and FSDP's modules keep one.
    if not _TASKS.is_dir():
        return
    deadline = time.monotonic() + GLOO_WAIT_SECONDS
    resting = False
    while time.monotonic() < deadline:
        before, resting = resting, not any(_gloo_runs(task) for task in _TASKS.iterdir())
        # A thread that waits for the lock looks idle too: the pause gives it the lock, and the next check sees it run.
        if before and resting:
            return
        time.sleep(0.005)
    log.warning("gloo's threads are still busy %g s after the last collective", GLOO_WAIT_SECONDS)


def _gloo_runs(task: Path) -> bool:
    """Return whether a thread, given by its folder in /proc, is one of gloo's and runs or waits for a processor."""
    try:
        name, _, fields = task.joinpath("stat").read_text().partition("(")[2].rpartition(")")
    except OSError:  # it has ended
        return False
    return name == "pt_gloo_runloop" and fields.split()[0] == "R"
