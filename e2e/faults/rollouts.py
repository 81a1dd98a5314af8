"""New revisions of the workers: with room, without room, broken; and a new key."""

from typing import Any

from cluster.gpus import fake_gpus, remove_fake_gpus
from faults.manifests import GPU_RESOURCE, NAMESPACE
from faults.stage import Stage
from installation import IMAGE
from scene import StoryError, node_of

NO_ROOM = "ReplacingForLackOfRoom"
QUOTA = "gpus"
BROKEN_IMAGE = "localhost/there-is-no-such-image:1"


def new_args_with_a_free_gpu(stage: Stage) -> str:
    """New arguments where the new workers fit beside the old ones: they come first, the old ones go after."""
    move_to_gpus(stage)
    seconds, reasons, fewest = roll(stage, {"args": ["--env=ROLL_48"]})
    if fewest < 2:
        raise StoryError(f"only {fewest} workers answered during a Surge of two")
    return f"{seconds:.1f} s, {' then '.join(reasons)}, never fewer than {fewest} workers"


def new_args_without_a_free_gpu(stage: Stage) -> str:
    """New arguments where every GPU is taken: Auto finds out, and replaces the workers one by one."""
    node = move_to_gpus(stage)
    fake_gpus(stage.cluster.kubectl, node, 2, resource=GPU_RESOURCE)
    try:
        seconds, reasons, fewest = roll(stage, {"args": ["--env=ROLL_56"]})
        if NO_ROOM not in reasons:
            raise StoryError(f"the rollout never said {NO_ROOM}, only {reasons}")
    finally:
        leave_gpus(stage, node)
    return f"{seconds:.1f} s, {' then '.join(reasons)}, never fewer than {fewest} workers"


def new_args_under_a_used_up_quota(stage: Stage) -> str:
    """New arguments under a ResourceQuota whose GPUs are all taken: Auto replaces the workers one by one."""
    node = move_to_gpus(stage)
    hard = {f"requests.{GPU_RESOURCE}": "2"}
    metadata = {"name": QUOTA, "namespace": NAMESPACE}
    stage.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})
    try:
        seconds, reasons, fewest = roll(stage, {"args": ["--env=ROLL_52"]})
        if NO_ROOM not in reasons:
            raise StoryError(f"the rollout never said {NO_ROOM}, only {reasons}")
    finally:
        stage.kubectl("delete", "resourcequota", QUOTA)
        leave_gpus(stage, node)
    return f"{seconds:.1f} s, {' then '.join(reasons)}, never fewer than {fewest} workers"


def move_to_gpus(stage: Stage) -> str:
    """Let two workers hold a GPU each, of four on one node; return that node."""
    stage.shape(workers=2, routers=2)
    node = node_of(stage.pods("worker")[0])
    fake_gpus(stage.cluster.kubectl, node, 4, resource=GPU_RESOURCE)
    stage.change({"worker": {"gpus": 1, "gpuResource": GPU_RESOURCE}})
    stage.settle()
    return node


def leave_gpus(stage: Stage, node: str) -> None:
    """Let the workers run without GPUs again."""
    stage.change({"worker": {"gpus": 0, "gpuResource": None}})
    stage.settle()
    remove_fake_gpus(stage.cluster.kubectl, node, resource=GPU_RESOURCE)


def broken_image(stage: Stage) -> str:
    """An image that is not there: the pool goes back to the last good revision by itself, and says why."""
    stage.shape(workers=2, routers=2)
    good = {pod["metadata"]["uid"] for pod in stage.pods("worker")}
    stage.change({"engine": {"image": BROKEN_IMAGE}})
    seconds = stage.until(lambda: bool(failed(stage)), what="the rollout is given up", deadline_seconds=90)
    said = failed(stage)
    stage.until(
        lambda: {pod["metadata"]["uid"] for pod in stage.pods("worker")} == good,
        what="only the good workers are left",
        deadline_seconds=60,
    )
    stage.change({"engine": {"image": IMAGE}})
    stage.settle()
    if {pod["metadata"]["uid"] for pod in stage.pods("worker")} != good:
        raise StoryError("the good workers were replaced although their revision is wanted again")
    return f"given up after {seconds:.1f} s: {said['reason']}"


def failed(stage: Stage) -> dict[str, Any]:
    """What the status says of the revision that failed; empty where none did."""
    rollout = stage.pool()["status"].get("rollout") or {}
    found: dict[str, Any] = rollout.get("failed") or {}
    return found


def roll(stage: Stage, engine: dict[str, Any]) -> tuple[float, list[str], int]:
    """Roll the workers; return the seconds, the reasons that were given on the way, and the fewest that answered."""
    old = stage.pool()["status"]["currentRevision"]
    reasons: list[str] = []
    fewest = stage.pool()["spec"]["replicas"]

    def rolled() -> bool:
        nonlocal fewest
        status = stage.pool()["status"]
        fewest = min(fewest, status.get("readyReplicas", 0))
        progressing = next(item for item in status["conditions"] if item["type"] == "Progressing")
        if progressing["status"] == "True" and progressing["reason"] not in reasons:
            reasons.append(progressing["reason"])
        return status["currentRevision"] != old and stage.is_settled()

    stage.change({"engine": engine})
    seconds = stage.until(rolled, what="the new revision serves alone", deadline_seconds=120)
    return seconds, reasons, fewest


FAULTS = (new_args_with_a_free_gpu, new_args_without_a_free_gpu, new_args_under_a_used_up_quota, broken_image)
