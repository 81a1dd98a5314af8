"""Objects that somebody deletes: one of the pool's own, or a whole namespace."""

import time

from faults import manifests
from faults.manifests import POOL
from faults.stage import Stage
from rewardpool_api import names
from rewardpool_operator.kubernetes.render.common import files_name
from rewardpool_worker.mounted import router_files
from scene import StoryError, condition

BACK_SECONDS = 5.0
DOOMED = "rewardpool-faults-doomed"
GONE_SECONDS = 60.0


def delete_owned_objects(stage: Stage) -> str:
    """An owned object is deleted, one of each kind after the other: each is back within 5 s, a Secret with its key."""
    stage.shape(workers=2, routers=2)
    slowest = 0.0
    for kind, name in (
        ("service", names.router_name(POOL)),
        ("configmap", files_name(router_files())),
        ("secret", names.key_secret(POOL)),
        ("secret", names.admin_secret(POOL)),
        ("deployment", names.worker_name(POOL, stage.pool()["status"]["currentRevision"])),
        ("deployment", names.router_name(POOL)),
    ):
        slowest = max(slowest, delete_and_wait(stage, kind, name))
        if kind == "deployment":
            stage.settle()
    if slowest > BACK_SECONDS:
        raise StoryError(f"the slowest was back after {slowest:.1f} s, more than {BACK_SECONDS:.0f} s")
    return f"the slowest was back after {slowest:.1f} s"


def delete_and_wait(stage: Stage, kind: str, name: str) -> float:
    """Delete an object and return the seconds until there is another one of its name."""

    def uid() -> str:
        return stage.kubectl("get", kind, name, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")

    old = uid()
    stage.kubectl("delete", kind, name, "--wait=false")
    return stage.until(lambda: uid() not in ("", old), what=f"{kind} {name} is back", deadline_seconds=30)


def delete_a_namespace(stage: Stage) -> str:
    """A namespace with a serving pool is deleted: it is gone within a minute, and other pools do not notice."""
    doomed = manifests.pool("doomed", in_namespace=DOOMED, workers=1, routers=1)
    # A namespace waits half of the longest time that its pods may take to stop before it looks at them again.
    doomed["spec"]["router"]["requestTimeoutSeconds"] = doomed["spec"]["worker"]["drainSeconds"] = 1
    stage.apply(*manifests.namespace(DOOMED), doomed)
    stage.until(
        lambda: condition(stage.objects("rewardpools", namespace=DOOMED)[0], "Serving").get("status") == "True",
        what="the doomed pool serves",
        deadline_seconds=60,
    )
    began = time.monotonic()
    stage.cluster.kubectl(
        "delete", "namespace", DOOMED, f"--timeout={GONE_SECONDS:.0f}s", deadline_seconds=GONE_SECONDS + 10
    )
    return f"gone after {time.monotonic() - began:.1f} s"


FAULTS = (delete_owned_objects, delete_a_namespace)
