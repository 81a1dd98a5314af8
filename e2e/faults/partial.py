"""One part of several that is silent, refused or elsewhere, while all the others answer."""

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from faults import manifests
from faults.manifests import NAMESPACE
from faults.operators import admin_key, listed
from faults.stage import Stage
from faults.traffic import question, wrong
from installation import RELEASE
from rewardpool import Pool, RewardConfig
from rewardpool_api import names
from scene import Object, Scene, StoryError, condition, container_of, is_ready

IDLE = "idle"
"""A pool at zero."""
SILENT_SECONDS = 6.0
"""For which a router has been silent when the first sample comes: the operator knows it by then."""
GROWN_SECONDS = 3.0
CALLERS = 4
REFUSED_SECONDS = 60.0
SERVED_SECONDS = 5.0
"""From a router's first answer until it has its workers."""
ALL_LISTED = 2


def one_of_two_routers_silent(stage: Stage) -> str:
    """One of two routers of a pool at zero hangs, and samples come to the other: a worker is wanted within 3 s."""
    breaker = stage.cluster.breaker()
    idle = Scene(stage.cluster, namespace=NAMESPACE, name=IDLE, say=stage.say)
    stage.apply(at_zero())
    try:
        idle.until(
            lambda: condition(idle.pool(), "RouterReady").get("status") == "True" and len(ready_routers(idle)) == 2,
            what="the pool at zero serves",
            deadline_seconds=60,
        )
        answering, silent = ready_routers(idle)
        with breaker.stopped(container_of(silent)), ThreadPoolExecutor(1) as thread:
            time.sleep(SILENT_SECONDS)
            began = time.monotonic()
            scored = thread.submit(lambda: asyncio.run(score(idle, answering)))
            idle.until(
                lambda: idle.pool()["status"]["scaling"]["desired"] > 0, what="a worker is wanted", deadline_seconds=60
            )
            seconds = time.monotonic() - began
            scored.result(timeout=90)
    finally:
        idle.kubectl("delete", "rewardpool", IDLE, "--timeout=60s", deadline_seconds=70)
    if seconds > GROWN_SECONDS:
        raise StoryError(f"a worker was wanted after {seconds:.1f} s, more than {GROWN_SECONDS:.0f} s")
    stage.settle()
    return f"wanted after {seconds:.1f} s"


def at_zero() -> Object:
    """A pool of functions that is at zero until it is asked."""
    made = manifests.pool(IDLE, in_namespace=NAMESPACE, workers=0, routers=2)
    del made["spec"]["replicas"]
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 16}}
    made["spec"]["autoscaling"] = {"minReplicas": 0, "maxReplicas": 1, "policies": [policy], "cooldownSeconds": 60}
    return made


def ready_routers(scene: Scene) -> list[Object]:
    """The routers that are ready."""
    return [pod for pod in scene.pods("router") if is_ready(pod)]


async def score(scene: Scene, router: Object) -> None:
    """Have samples scored by one router, at its own address.

    Raises:
        StoryError: One got another score than its own.
        RewardPoolError: One got none.
    """
    with tempfile.TemporaryDirectory() as folder:
        key_file = Path(folder) / "key"
        key_file.write_text(secret_key(scene, names.key_secret(scene.name)))
        url = f"http://{router['status']['podIP']}:{names.ROUTER_PORT}"
        async with Pool(RewardConfig(url=url, key_file=key_file, served_name=scene.name, announce=False)) as pool:
            questions = [question(f"sample {number} of {scene.name}") for number in range(CALLERS)]
            scores = await asyncio.gather(*(pool.score(asked.sample) for asked in questions))
    problems = [wrong(asked, value) for asked, value in zip(questions, scores, strict=True)]
    if any(problems):
        raise StoryError(f"scores of {scene.name}: {problems}")


def secrets_refused(stage: Stage) -> str:
    """Every read of a Secret is refused for 60 s, and a router restarts: it has its workers 5 s after it answers."""
    stage.shape(workers=2, routers=2)
    router, key = stage.pods("router")[0], admin_key(stage)
    began = time.monotonic()
    with without_secrets(stage):
        stage.kill(router)
        stage.until(lambda: listed(router, key) != ALL_LISTED, what="the router is gone", deadline_seconds=10)
        seconds = served(stage, router, key)
        time.sleep(max(0.0, REFUSED_SECONDS - (time.monotonic() - began)))
        check(seconds)
    stage.settle()
    return f"whole {seconds:.1f} s after its first answer"


@contextmanager
def without_secrets(stage: Stage) -> Iterator[None]:
    """The operator's role has no right to Secrets for the duration of the context."""
    role = json.loads(stage.kubectl("get", "clusterrole", RELEASE, "-o", "json"))
    others = [rule for rule in role["rules"] if "secrets" not in rule.get("resources", [])]
    split = [
        {**rule, "resources": [kind for kind in rule["resources"] if kind != "secrets"]}
        for rule in role["rules"]
        if "secrets" in rule.get("resources", []) and len(rule["resources"]) > 1
    ]
    if others + split == role["rules"]:
        raise StoryError("the operator's role says nothing about Secrets")

    def give(rules: list[Object]) -> None:
        stage.kubectl("patch", "clusterrole", RELEASE, "--type=merge", "--patch", json.dumps({"rules": rules}))

    give(others + split)
    try:
        yield
    finally:
        give(role["rules"])


def a_router_moves(stage: Stage) -> str:
    """A router's sandbox dies, and the pod gets a new address: it has its workers 5 s after it answers there."""
    stage.shape(workers=2, routers=2)
    router, key = stage.pods("router")[0], admin_key(stage)
    name, old = router["metadata"]["name"], router["status"]["podIP"]
    stage.cluster.breaker().kill_sandbox(container_of(router))

    def moved() -> Object | None:
        (found,) = (pod for pod in stage.pods("router") if pod["metadata"]["name"] == name)
        return found if found["status"].get("podIP", old) != old else None

    stage.until(lambda: moved() is not None, what="the pod has another address", deadline_seconds=30)
    new = moved() or router
    seconds = served(stage, new, key)
    check(seconds)
    stage.settle()
    return f"whole {seconds:.1f} s after its first answer at {new['status']['podIP']}, it was at {old}"


def served(stage: Stage, router: Object, key: str) -> float:
    """Seconds from a router's first answer at its address until it has its workers."""
    stage.until(lambda: listed(router, key) is not None, what="the router answers", deadline_seconds=45)
    return stage.until(
        lambda: listed(router, key) == ALL_LISTED, what="the router has its workers", deadline_seconds=REFUSED_SECONDS
    )


def check(seconds: float) -> None:
    """Raise `StoryError` where that is too long."""
    if seconds > SERVED_SECONDS:
        raise StoryError(f"the router had its workers after {seconds:.1f} s, more than {SERVED_SECONDS:.0f} s")


def secret_key(scene: Scene, secret: str) -> str:
    """The key that a Secret holds."""
    template = f'go-template={{{{index .data "{names.SECRET_KEY}" | base64decode}}}}'
    return scene.kubectl("get", "secret", secret, "-o", template)


FAULTS = (one_of_two_routers_silent, secrets_refused, a_router_moves)
