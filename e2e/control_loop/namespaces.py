"""An operator that is told which namespaces to watch, and these are many."""

from faults import manifests
from faults.manifests import NAMESPACE
from faults.stage import Stage, settle
from scene import Scene

WATCHED = [NAMESPACE, *(f"{NAMESPACE}-{number}" for number in range(2, 16))]
"""That of the steady load, and 14 more."""
POOL = "last"
SERVED_SECONDS = 90.0
FOLLOWED_SECONDS = 60.0


def fifteen_watched_namespaces(stage: Stage) -> str:
    """`watch.namespaces` with 15 names: a pool in the last one is served, and follows a change."""
    stage.shape(workers=2, routers=2)
    others = WATCHED[1:]
    last = Scene(stage.cluster, namespace=WATCHED[-1], name=POOL, say=stage.say)
    # The namespaces first: the chart makes a Role in each.
    stage.apply(*(made for name in others for made in manifests.namespace(name)))
    try:
        stage.installation.install(manifests.chart_values(watch={"namespaces": WATCHED}))
        stage.installation.wait()
        last.apply(manifests.pool(POOL, in_namespace=last.namespace, workers=1, routers=1))
        served = settle(last, what="the pool of the last namespace serves", deadline_seconds=SERVED_SECONDS)
        last.change({"replicas": 2})
        followed = settle(last, what="it has two workers", deadline_seconds=FOLLOWED_SECONDS)
        last.kubectl("delete", "rewardpool", POOL, "--timeout=60s", deadline_seconds=70)
        # The steady load's pool is one of the fifteen.
        stage.shape(workers=3, routers=2)
    finally:
        stage.installation.install(manifests.chart_values())
        stage.installation.wait()
        for name in others:
            stage.attempt("delete", "namespace", name, "--wait=false")
    return f"served after {served:.1f} s, a second worker {followed:.1f} s after the change"


PLAYS = (fifteen_watched_namespaces,)
