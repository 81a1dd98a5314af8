"""Routers that are replaced, deleted, killed or told wrong things."""

import json

from faults.pods import delete_and_settle, kill_and_settle
from faults.stage import Stage
from rewardpool_api import names
from scene import StoryError

REPAIR_SECONDS = 5.0
"""A router is asked for its list every second or two while there is traffic; a repair takes less than two more."""

_EMPTY_THE_LIST = f"""
import json, sys, time, urllib.request
key = open("{names.ADMIN_KEY_DIR}/{names.SECRET_KEY}").read().strip()

def call(method, path):
    url = "http://127.0.0.1:{names.ROUTER_PORT}" + path
    request = urllib.request.Request(url, method=method, headers={{"Authorization": "Bearer " + key}})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)

def listed():
    return {{worker["url"]: worker["id"] for worker in call("GET", "/workers")["workers"]}}

before = listed()
for worker in before.values():
    call("DELETE", "/workers/" + worker)
while len(listed()) == len(before):
    time.sleep(0.02)
began = time.monotonic()
while listed().keys() != before.keys() and time.monotonic() - began < 15:
    time.sleep(0.05)
print(json.dumps({{"workers": len(before), "seconds": time.monotonic() - began}}))
"""
"""Runs inside a router's pod, where its list can be changed without a way in from outside."""


def roll_routers(stage: Stage) -> str:
    """Two routers get another pod template: they are replaced one after the other."""
    stage.shape(workers=2, routers=2)
    return roll(stage)


def roll_the_only_router(stage: Stage) -> str:
    """The only router gets another pod template: the new one is there before it goes."""
    stage.shape(workers=2, routers=1)
    return roll(stage)


def roll(stage: Stage) -> str:
    """Change the routers' pods and wait until all are new."""
    old = {pod["metadata"]["uid"] for pod in stage.pods("router")}
    annotations = {"faults/rolled": str(sorted(old)[0])}
    pod_template = stage.pool()["spec"]["router"]["podTemplate"] | {"metadata": {"annotations": annotations}}
    stage.change({"router": {"podTemplate": pod_template}})
    stage.until(
        lambda: not old & {pod["metadata"]["uid"] for pod in stage.pods("router")},
        what="every router is a new one",
        deadline_seconds=120,
    )
    stage.settle()
    return f"{len(old)} replaced"


def delete_a_router(stage: Stage) -> str:
    """`kubectl delete pod` of one of two routers: it answers what it has, and is replaced."""
    stage.shape(workers=2, routers=2)
    return delete_and_settle(stage, stage.pods("router")[0], "router", deadline_seconds=90)


def kill_the_only_router(stage: Stage) -> str:
    """The only router's process dies with requests in it: they are sent again when it is back and has its workers."""
    stage.shape(workers=2, routers=1)
    (victim,) = stage.pods("router")
    return kill_and_settle(stage, victim)


def empty_a_routers_list(stage: Stage) -> str:
    """A router's worker list is emptied by hand: it is repaired within 5 s, and requests wait for that."""
    stage.shape(workers=2, routers=2)
    router = stage.pods("router")[0]["metadata"]["name"]
    said = json.loads(stage.kubectl("exec", router, "--container=router", "--", "python3", "-c", _EMPTY_THE_LIST))
    if said["seconds"] > REPAIR_SECONDS:
        raise StoryError(f"the list was repaired after {said['seconds']:.1f} s, more than {REPAIR_SECONDS:.0f} s")
    stage.settle()
    return f"{said['workers']} workers back after {said['seconds']:.1f} s"


FAULTS = (roll_routers, delete_a_router, empty_a_routers_list, roll_the_only_router, kill_the_only_router)
