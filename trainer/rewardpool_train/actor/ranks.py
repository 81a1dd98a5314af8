"""The processes of one training job, as torchrun starts them, and the few numbers they exchange."""

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

GLOO_WAIT_SECONDS: Final = 5.0
"""For threads that have a few instructions left, on a machine where they may wait for a processor."""
_TASKS: Final = Path("/proc/self/task")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """A process among its peers.

    Attributes:
        rank: Its number, from 0.
        size: How many there are.
        device: Where its share of the policy lives.
        mesh: The one-dimensional device mesh that the policy is sharded over.
    """

    rank: int
    size: int
    device: torch.device
    mesh: Any

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Return each value summed over the ranks. All ranks call this at the same point of their work."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def max(self, *values: float) -> list[float]:
        """Return each value's maximum over the ranks. All ranks call this at the same point of their work."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def broadcast(self, value: T) -> T:
        """Return what rank 0 gave, which can be pickled. All ranks call this at the same point of their work."""
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def all_gather(self, value: T) -> list[T]:
        """Return what each rank gave, by rank, which can be pickled. All ranks call this at the same point."""
        values = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    @contextmanager
    def synchronized(self) -> Iterator[None]:
        """Wait at the block's end for all ranks, and raise on all what one of them raised, as `raise_on_all`."""
        problem = None
        try:
            yield
        except Exception as error:  # the others wait to be told
            problem = error
        self.raise_on_all(problem)

    def raise_on_all(self, problem: Exception | None) -> None:
        """Raise what went wrong on this rank or on another one, so that none waits for one that has failed.

        All ranks call this at the same point of their work, with None where all is well.

        Raises:
            Exception: The problem of this rank.
            OtherRankError: Another rank has one.
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
    """Join the job that torchrun started, or be a job of one process without it; leave it at the end.

    On GPUs with NCCL where each rank of this machine has one, else on the CPU with gloo. A collective that takes longer
    than `deadline_seconds` raises.
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
    """Wait until no thread of gloo holds a collective that is over, for 5 s at the most; on Linux alone.

    TRAP: such a thread drops the collective's tensors a moment after it said that it is done, and asks for the
    interpreter's lock for that. Where it comes too late, because the machine is busy, the interpreter is ending; in
    Python 3.11 the whole process then aborts with "terminate called without an active exception", a job that did all
    of its work has failed, and torchrun kills the ranks that still write theirs. Destroying a group joins its threads
    only when nobody refers to it any more, and FSDP's modules do.
    """
    if not _TASKS.is_dir():
        return
    deadline = time.monotonic() + GLOO_WAIT_SECONDS
    resting = False
    while time.monotonic() < deadline:
        before, resting = resting, not any(_gloo_runs(task) for task in _TASKS.iterdir())
        # A thread that waits for the lock seems to rest as well: the pause hands it over, and one more look tells.
        if before and resting:
            return
        time.sleep(0.005)
    log.warning("gloo's threads are still busy %g s after the last collective", GLOO_WAIT_SECONDS)


def _gloo_runs(task: Path) -> bool:
    """Whether a thread, by its folder in /proc, is one of gloo's and runs or waits for a processor."""
    try:
        name, _, fields = task.joinpath("stat").read_text().partition("(")[2].rpartition(")")
    except OSError:  # it has ended
        return False
    return name == "pt_gloo_runloop" and fields.split()[0] == "R"
