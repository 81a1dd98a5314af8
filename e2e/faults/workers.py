"""Workers that go: by a smaller size, by hand, by a crash."""

from faults.stage import Stage


def scale_down(stage: Stage) -> str:
    """From four workers to one: three finish what they have and leave."""
    stage.shape(workers=4, routers=2)
    stage.change({"replicas": 1})
    seconds = stage.settle()
    return f"three left in {seconds:.1f} s"


def delete_a_worker(stage: Stage) -> str:
    """`kubectl delete pod` of a worker: it is off the routers before it stops, and replaced."""
    stage.shape(workers=2, routers=2)
    doomed = stage.pods("worker")[0]["metadata"]["name"]
    stage.kubectl("delete", "pod", doomed, "--wait=false")
    seconds = stage.until(
        lambda: all(pod["metadata"]["name"] != doomed for pod in stage.pods("worker")) and stage.is_settled(),
        what="another one serves",
        deadline_seconds=60,
    )
    return f"replaced in {seconds:.1f} s"


def kill_a_worker(stage: Stage) -> str:
    """A worker's process dies with requests in it: they are scored by another one."""
    stage.shape(workers=2, routers=2)
    victim = stage.pods("worker")[0]
    stage.kill(victim)
    name = victim["metadata"]["name"]
    stage.until(lambda: restarts(stage, "worker", name) > 0, what="the kubelet starts it again", deadline_seconds=60)
    return f"whole again {stage.settle():.1f} s after its restart"


def restarts(stage: Stage, component: str, pod: str) -> int:
    """How often a pod's container was started again."""
    (found,) = (other for other in stage.pods(component) if other["metadata"]["name"] == pod)
    return int(found["status"]["containerStatuses"][0]["restartCount"])


FAULTS = (scale_down, delete_a_worker, kill_a_worker)
