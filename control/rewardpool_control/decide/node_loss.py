"""Step 0: what becomes of workers whose nodes do not report.

Kubernetes calls a node lost when its kubelet was not heard for a while, and with it all of its pods. That is a dead
node, or a cut between it and the API server; and after an API server was away it is every node, until the kubelets are
heard again. The routers know better: they ask every worker on their lists every two seconds. So a worker of such a
node is what it said last as long as a router reaches it, and is gone as soon as none does.
"""

from dataclasses import replace

from rewardpool_control.snapshot import Snapshot, Worker


def as_reached(snapshot: Snapshot) -> Snapshot:
    """The snapshot with every worker either there or not."""
    if not any(worker.node_unreachable for worker in snapshot.workers):
        return snapshot
    reached = {entry.url for router in snapshot.routers for entry in router.registered or () if entry.healthy}

    def resolved(worker: Worker) -> Worker:
        if not worker.node_unreachable:
            return worker
        if worker.url in reached:
            return replace(worker, failure=None)
        return replace(worker, running=False, answering=False)

    return replace(snapshot, workers=tuple(map(resolved, snapshot.workers)))
