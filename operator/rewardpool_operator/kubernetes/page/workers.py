"""A worker's pod as the page shows it; pure."""

from typing import Final

from rewardpool_control.snapshot import Worker
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_page import source as page

READY: Final = "Ready"


def shown_worker(pod: Object) -> tuple[str, page.PageWorker]:
    """The pod as a line of the table, behind the URL by which routers know it; what it has in flight they say."""
    worker = pods.worker_of(pod)
    line = page.PageWorker(
        name=worker.name,
        phase=phase_of(worker),
        place=pod["spec"].get("nodeName", ""),
        revision=worker.revision,
        restarts=worker.restarts,
    )
    return worker.url or "", line


def phase_of(worker: Worker) -> str:
    """One word for where the worker is in its life, or for what keeps it from serving."""
    if worker.deleting or worker.draining_since is not None:
        return "Draining"
    if worker.unschedulable is not None:
        return "Pending"
    # What failed before it answered again is over.
    if worker.failure is not None and (worker.node_unreachable or not worker.answering):
        return worker.failure.reason
    if not worker.answering:
        return "Starting"
    return READY
