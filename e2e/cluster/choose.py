"""Which cluster the end-to-end run gets: yours, kind's, or a node built here."""

import os
from collections.abc import Sequence
from pathlib import Path

from cluster.contract import Cluster
from cluster.existing import ExistingCluster
from cluster.kind import KindCluster, docker_answers
from cluster.node import NodeCluster
from cluster.progress import Say, timed_lines

__all__ = ["Cluster", "open_cluster"]


def open_cluster(*, mounts: Sequence[Path] = (), nodes: int = 1, say: Say | None = None) -> Cluster:
    """The cluster that this machine can have, not started yet: enter it, or call `start`.

    KUBECONFIG's if that is set, a kind cluster if a Docker engine answers, else a node in namespaces of this machine.
    `mounts` are the host's folders that pods will mount with hostPath; only kind has to know them beforehand. A cluster
    in namespaces gets as many `nodes`; the other two have what they have.
    """
    say = say or timed_lines()
    cluster: Cluster
    if kubeconfig := os.environ.get("KUBECONFIG"):
        cluster, why = ExistingCluster(Path(kubeconfig), say=say), "KUBECONFIG is set"
    elif docker_answers():
        cluster, why = KindCluster(mounts=mounts, say=say), "a Docker engine answers"
    else:
        cluster, why = NodeCluster(nodes=nodes, say=say), "KUBECONFIG is not set and no Docker engine answers"
    say(f"using {cluster.description} ({why})")
    return cluster
