"""How each kind of fault is done: a context manager, entered to break something and left to undo it."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from cluster.breaking import processes
from cluster.fault_proxy import Rule
from scene import Object, StoryError, container_of, node_of
from soak.plan import Fault
from soak.stage import NAMESPACE, Stage

QUOTA = "soak"
SLOW_SECONDS = 1.5
"""For which every call of the API server is held."""

Doing = Callable[[Stage, Fault], AbstractContextManager[object]]


def victim(stage: Stage, component: str, fault: Fault) -> Object:
    """The one whom it befalls, of the pods that run. Raises `StoryError` where none does."""
    return chosen(stage.running(component), fault)


def chosen(pods: Sequence[Object], fault: Fault) -> Object:
    """The one with the fault's number, counted around."""
    if not pods:
        raise StoryError(f"{fault.kind}: there is nobody to befall")
    return pods[fault.target % len(pods)]


def killed(component: str) -> Doing:
    """A container's processes die by SIGKILL."""

    def do(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
        stage.breaker.kill(container_of(victim(stage, component, fault)))
        return nullcontext()

    return do


def stopped(component: str) -> Doing:
    """A container's processes hold still (SIGSTOP), and go on (SIGCONT)."""

    def do(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
        return stage.breaker.stopped(container_of(victim(stage, component, fault)))

    return do


def cut_off(component: str) -> Doing:
    """A pod's packets are dropped."""

    def do(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
        return stage.breaker.cut_off(container_of(victim(stage, component, fault)))

    return do


def restarted(program: str) -> Doing:
    """A node's program dies by SIGKILL and is started again."""

    def do(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
        stage.breaker.restart(a_node(stage, fault), program)
        return nullcontext()

    return do


def refused(status: int | None, *, delay_seconds: float = 0.0) -> Doing:
    """The API server answers the operators so, or late."""

    def do(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
        resources = frozenset({fault.about} - {""})
        rule = Rule(status=status, delay_seconds=delay_seconds, resources=resources)
        return stage.breaker.proxy().broken(rule)

    return do


def full_disk(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
    """There is no room left where a node's kubelet keeps the volumes of its pods."""
    return stage.breaker.full_disk(a_node(stage, fault))


def full_etcd(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
    """Etcd takes no more: the API server reads, and writes nothing."""
    return stage.breaker.etcd_full()


def restarted_etcd(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
    """Etcd dies by SIGKILL and is started again."""
    stage.breaker.restart_etcd()
    return nullcontext()


def new_addresses(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
    """All of the pool's pods on one node get other sandboxes, as after the node was restarted."""
    pods = [*stage.running("worker"), *stage.running("router")]
    node = node_of(chosen(pods, fault))
    for pod in pods:
        if node_of(pod) == node:
            stage.breaker.kill_sandbox(container_of(pod))
    return nullcontext()


@contextmanager
def quota_lowered(stage: Stage, fault: Fault) -> Iterator[None]:
    """The namespace may have no more pods, and a worker is deleted, which cannot be replaced meanwhile."""
    spec = {"hard": {"pods": "1"}}
    metadata = {"name": QUOTA, "namespace": NAMESPACE}
    stage.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec})
    try:
        worker = victim(stage, "worker", fault)["metadata"]["name"]
        stage.kubectl("delete", "pod", worker, "--wait=false")
        yield
    finally:
        stage.kubectl("delete", "resourcequota", QUOTA, "--wait=false")


def rank_killed(stage: Stage, fault: Fault) -> AbstractContextManager[None]:
    """One process of the training job dies by SIGKILL; torchrun ends the others, and the kubelet starts it again."""
    job = container_of(victim(stage, "trainer", fault))
    ranks = sorted(process.pid for process in processes() if process.container == job and is_rank(process.pid))
    if not ranks:
        raise StoryError(f"{fault.kind}: no rank runs")
    os.kill(ranks[fault.target % len(ranks)], signal.SIGKILL)
    return nullcontext()


def is_rank(pid: int) -> bool:
    """Whether a process is one that torchrun started, and not torchrun itself."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return b"\0LOCAL_RANK=" in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def a_node(stage: Stage, fault: Fault) -> str:
    """The node that one of the pool's workers is on."""
    return node_of(victim(stage, "worker", fault))


DOING: Mapping[str, Doing] = {
    "worker killed": killed("worker"),
    "router killed": killed("router"),
    "operator killed": killed("operator"),
    "worker stopped": stopped("worker"),
    "router stopped": stopped("router"),
    "operator stopped": stopped("operator"),
    "worker's packets dropped": cut_off("worker"),
    "router's packets dropped": cut_off("router"),
    "node's disk full": full_disk,
    "etcd full": full_etcd,
    "API server slow": refused(None, delay_seconds=SLOW_SECONDS),
    "API server says 403": refused(403),
    "API server says 429": refused(429),
    "API server says 500": refused(500),
    "etcd restarted": restarted_etcd,
    "kubelet restarted": restarted("kubelet"),
    "containerd restarted": restarted("containerd"),
    "new addresses": new_addresses,
    "quota lowered": quota_lowered,
    "trainer's rank killed": rank_killed,
}
"""By the kind of a plan's fault."""
