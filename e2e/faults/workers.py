"""Workers that go: by a smaller size, by hand, by a crash."""

from faults.pods import HUNG_SECONDS, delete_and_settle, hang, kill_and_settle, restarted
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
    return delete_and_settle(stage, stage.pods("worker")[0], "worker", deadline_seconds=60)


def kill_a_worker(stage: Stage) -> str:
    """A worker's process dies with requests in it: they are scored by another one."""
    stage.shape(workers=2, routers=2)
    return kill_and_settle(stage, stage.pods("worker")[0])


def hang_a_worker(stage: Stage) -> str:
    """A worker hangs with requests in it: they are scored by another one, and its kubelet starts it again."""
    stage.shape(workers=2, routers=2)
    hung = stage.pods("worker")[0]
    with hang(stage, hung):
        seconds = restarted(stage, hung, deadline_seconds=HUNG_SECONDS)
    return f"started again after {seconds:.0f} s, whole {stage.settle():.1f} s later"


FAULTS = (scale_down, delete_a_worker, kill_a_worker, hang_a_worker)
