"""What every cluster can do, whichever of the three it is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster.breaking import Breaker
from cluster.registry import Registry


class NotPossibleError(RuntimeError):
    """A cluster of another kind could be broken so, this one cannot; the message says why."""


class Cluster(ABC):
    """A Kubernetes that runs pods, as a context manager: entering starts it, leaving removes what it made."""

    description: str
    """Which one this is, for people and for `summary.json`."""

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig. Raises `ClusterError` before the start."""

    @abstractmethod
    def start(self) -> None:
        """Return when pods can run; on failure remove what was made and raise `ClusterError`, saying what to do."""

    @abstractmethod
    def close(self) -> None:
        """Remove everything that was made, and only that. Does nothing the second time."""

    @abstractmethod
    def kubectl(self, *args: str, input: str | None = None, deadline_seconds: float = 60.0) -> str:  # noqa: A002
        """Run kubectl as the administrator and return what it prints; `input` becomes its standard input.

        Raises `ClusterError` with kubectl's own words when it fails or takes longer than `deadline_seconds`.
        """

    @abstractmethod
    def load_image(self, archive: Path) -> None:
        """Give the nodes the image of a docker-archive, such as `cluster.images.build` writes."""

    @contextmanager
    def registry(self) -> Iterator[Registry]:
        """A registry that the nodes pull from, as long as the context is open.

        Raises `NotPossibleError` where nobody but the cluster's owner can let them.
        """
        raise NotPossibleError(f"the nodes of {self.description} pull from registries of its owner's choice")
        yield

    @abstractmethod
    def fake_gpus(self, count: int) -> None:
        """Let a node say that it has `count` GPUs."""

    def gvisor(self) -> None:
        """Let pods of the RuntimeClass `gvisor` run on gVisor's kernel.

        Raises `NotPossibleError` where the nodes are not ours, or this machine lacks a right that gVisor needs.
        """
        raise NotPossibleError(f"no way into the nodes of {self.description}")

    def kill_container(self, node: str, container_id: str) -> None:
        """End a container's processes by SIGKILL, behind the back of Kubernetes.

        Raises `NotPossibleError` where nobody but the cluster's owner can.
        """
        raise NotPossibleError(f"no way into the nodes of {self.description}")

    @contextmanager
    def api_server_away(self) -> Iterator[None]:
        """Stop the API server for the duration of the context, and return when it answers again.

        Raises `NotPossibleError` where it is not ours to stop.
        """
        raise NotPossibleError(f"the API server of {self.description} is not ours to stop")
        yield

    def breaker(self) -> Breaker:
        """The means to break more than that. Raises `NotPossibleError` where the cluster is not of our own making."""
        raise NotPossibleError(f"{self.description} is not ours to break")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
