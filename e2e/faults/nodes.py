"""A node that is drained for maintenance."""

from cluster.contract import NotPossibleError
from faults.manifests import TRAFFIC
from faults.stage import Stage
from scene import StoryError, node_of


def drain_a_node(stage: Stage) -> str:
    """`kubectl drain` of a node with workers and routers on it: they go by eviction, and start on another node."""
    stage.shape(workers=4, routers=2)
    stays = stage.kubectl("get", "pod", TRAFFIC, "-o", "jsonpath={.spec.nodeName}")
    others = {node_of(pod) for pod in stage.pods("worker")} - {stays}
    if not others:
        nodes = len(stage.objects("nodes"))
        if nodes > 1:
            raise StoryError(f"none of four workers is on another of the {nodes} nodes than the traffic")
        raise NotPossibleError("the cluster has one node, so that there is none to go to")
    node = others.pop()
    evicted = sum(node_of(pod) == node for kind in ("worker", "router") for pod in stage.pods(kind))
    try:
        drain = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"]
        stage.cluster.kubectl(*drain, deadline_seconds=130)
        seconds = stage.settle(90)
    finally:
        stage.cluster.kubectl("uncordon", node)
    return f"{evicted} pods of the pool left {node}; whole {seconds:.1f} s after that"


FAULTS = (drain_a_node,)
