"""An operator that dies, hangs, is upgraded, serves the page, or has no API server to talk to."""

import json
import time
import urllib.request
from base64 import b64decode
from functools import partial

from cluster import direct
from cluster.folders import REPOSITORY
from faults import manifests
from faults.pods import HUNG_SECONDS, hang, kill_and_settle, restarted
from faults.stage import Stage
from installation import CHART, IMAGE, NAMESPACE
from overlay import chart_image
from rewardpool_api import names
from rewardpool_api.reasons import ConditionReason
from scene import Object, StoryError, is_ready

PREVIOUS_CHART = REPOSITORY / "tests" / "chart" / "previous" / "rewardpool-0.1.0.tgz"
PREVIOUS_SECONDS = 10.0
AWAY_SECONDS = 30.0
NOTICED_SECONDS = 10.0
"""The router dies when the operator has lost its watches and its Lease, not before."""
CATCH_UP_SECONDS = 180.0
"""Kubernetes' own controllers wait up to a minute between two looks for an API server that was away."""
TAKEOVER_SECONDS = 15.0
LEASE = "rewardpool"
PAGE_SECONDS = 60.0
VIEWER = "viewer"
"""The account of somebody who looks at the page, by Kubernetes' role `view`."""
NEXT_IMAGE = "localhost/rewardpool:e2e-next"
"""The same program with other mounted files, as of a later release."""

_SIGN_IN = """
import json, sys, urllib.request

def call(path, headers, body=None):
    request = urllib.request.Request("http://127.0.0.1:8083" + path, body, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)

token = json.dumps({"token": sys.stdin.read().strip()}).encode()
session = call("/api/session", {"Content-Type": "application/json"}, token)["session"]
print(json.dumps(call("/api/pools", {"X-RewardPool-Session": session})))
"""
"""Runs in a front, whose page takes no token over plain HTTP by another name than localhost."""


def kill_the_operator(stage: Stage) -> str:
    """`kill -9` of the acting operator: serving does not notice, and another one acts within 15 s."""
    stage.shape(workers=2, routers=2)
    holder = lease_holder(stage)
    stage.kill(acting(stage, holder))
    seconds = taken_over(stage, holder)
    stage.settle()
    return f"taken over after {seconds:.1f} s"


def hang_the_operator(stage: Stage) -> str:
    """The acting operator hangs: another one acts within 15 s, and its kubelet starts it again, but not its front."""
    stage.shape(workers=2, routers=2)
    holder = lease_holder(stage)
    hung = acting(stage, holder)
    with hang(stage, hung):
        seconds = taken_over(stage, holder)
        again = restarted(stage, hung, deadline_seconds=HUNG_SECONDS)
    stage.installation.wait()
    stage.settle()
    return f"taken over after {seconds:.1f} s, started again {again:.0f} s later"


def acting(stage: Stage, holder: str) -> Object:
    """The pod of the operator that holds the Lease."""
    return next(pod for pod in operators(stage) if holder.startswith(pod["metadata"]["name"]))


def taken_over(stage: Stage, holder: str) -> float:
    """Wait until another operator acts, also on a change; return the seconds until it has the Lease.

    Raises:
        StoryError: They are more than were promised.
    """
    seconds = stage.until(
        lambda: lease_holder(stage) not in ("", holder), what="another operator acts", deadline_seconds=60
    )
    stage.change({"replicas": 3})
    stage.until(lambda: len(stage.pods("worker")) == 3, what="it acts on a change", deadline_seconds=10)
    if seconds > TAKEOVER_SECONDS:
        raise StoryError(f"another operator acted after {seconds:.1f} s, more than {TAKEOVER_SECONDS:.0f} s")
    return seconds


def switch_the_page_on(stage: Stage) -> str:
    """`helm upgrade` with the page: at each front a token shows the pools that it may list, and no others."""
    stage.shape(workers=2, routers=2)
    stage.kubectl("create", "serviceaccount", VIEWER)
    who = f"--serviceaccount={manifests.NAMESPACE}:{VIEWER}"
    stage.kubectl("create", "rolebinding", VIEWER, "--clusterrole=view", who)
    stage.installation.install(manifests.chart_values(page={"enabled": True}))
    wanted = {VIEWER: [f"{manifests.NAMESPACE}/{manifests.POOL}"], manifests.ACCOUNT: []}

    def shows(pod: Object) -> bool:
        return {account: shown(stage, pod, account) for account in wanted} == wanted

    try:
        stage.installation.wait()
        fronts = operators(stage)
        for pod in fronts:
            what = f"the page shows {wanted}"
            stage.until(partial(shows, pod), what=what, deadline_seconds=PAGE_SECONDS)
    finally:
        stage.installation.install(manifests.chart_values())
        stage.installation.wait()
    stage.settle()
    return f"at {len(fronts)} fronts"


def shown(stage: Stage, pod: Object, account: str) -> list[str]:
    """The pools that the front of an operator's pod shows to a token of a ServiceAccount."""
    token = stage.kubectl("create", "token", account)
    run = ["exec", "--stdin", pod["metadata"]["name"], "--container=front", "--", "python3", "-c", _SIGN_IN]
    said = stage.cluster.kubectl(f"--namespace={NAMESPACE}", *run, input=token)
    return [pool["key"] for pool in json.loads(said)["pools"]]


def upgrade_the_chart(stage: Stage) -> str:
    """`helm upgrade`, from the previous chart version and to another image and other files: no worker is replaced."""
    stage.shape(workers=2, routers=2)
    before = stage.uids("worker", "router")
    stage.installation.install(manifests.chart_values(), chart=PREVIOUS_CHART)
    # There this operator has fewer rights than it asks for: what it may not do it must leave alone.
    time.sleep(PREVIOUS_SECONDS)
    stage.installation.install(manifests.chart_values(podAnnotations={"faults/upgraded": "true"}), chart=CHART)
    stage.installation.wait()
    stage.change({"replicas": 3})
    stage.settle()
    if not before <= stage.uids("worker", "router"):
        raise StoryError("pods of the pool were replaced by an upgrade that changes nothing about them")
    upgrade_the_image(stage)
    return "no pod of the pool was replaced"


def upgrade_the_image(stage: Stage) -> None:
    """Another release of RewardPool, by its image: workers that run the default image stay, and start again as before.

    Raises:
        StoryError: A worker was replaced.
    """
    stage.installation.load_image(NEXT_IMAGE, container_file="e2e/Containerfile.next", base=IMAGE)
    stage.change({"engine": {"image": None}})
    stage.settle()
    workers = {pod["metadata"]["uid"]: pod for pod in stage.pods("worker")}
    try:
        stage.installation.install(manifests.chart_values(image=chart_image(NEXT_IMAGE)))
        stage.installation.wait()
        images = {pod["spec"]["containers"][0]["image"] for pod in operators(stage)}
        if images != {NEXT_IMAGE}:
            raise StoryError(f"the operators run {images}")
        stage.change({"replicas": 4})
        stage.settle()
        # Until the new release says so, the one before may have acted, which proves nothing.
        stage.until(lambda: offers(stage, NEXT_IMAGE), what="the new release offers its image", deadline_seconds=60)
        _, again = workers.popitem()
        kill_and_settle(stage, again)
        now = {pod["metadata"]["uid"] for pod in stage.pods("worker")}
        if not {*workers, again["metadata"]["uid"]} <= now:
            raise StoryError("workers were replaced by an operator with other files and another default image")
    finally:
        stage.installation.install(manifests.chart_values())
        stage.installation.wait()
        stage.change({"engine": {"image": IMAGE}})
        stage.settle()


def offers(stage: Stage, image: str) -> bool:
    """Whether the pool says that the operator would make its workers from this image, and has not."""
    progressing = stage.condition("Progressing")
    return progressing.get("reason") == ConditionReason.UPDATE_AVAILABLE and image in progressing["message"]


def api_server_away(stage: Stage) -> str:
    """No API server for 30 s, and a router that restarts meanwhile: it gets its workers, and nothing is scaled."""
    stage.shape(workers=2, routers=2)
    before = stage.uids("worker", "router")
    router = stage.pods("router")[0]
    key = admin_key(stage)
    with stage.cluster.api_server_away():
        began = time.monotonic()
        time.sleep(NOTICED_SECONDS)
        stage.kill(router)
        repaired = stage.until(lambda: listed(router, key) == 2, what="the router has its workers", deadline_seconds=45)
        time.sleep(max(0.0, AWAY_SECONDS - (time.monotonic() - began)))
    stage.settle(CATCH_UP_SECONDS)
    if stage.uids("worker", "router") != before:
        raise StoryError("pods of the pool are other ones than before")
    stage.change({"replicas": 3})
    caught_up = stage.until(lambda: wanted_workers(stage) == 3, what="the operator scales", deadline_seconds=15)
    stage.settle(CATCH_UP_SECONDS)
    return f"router whole again after {repaired:.1f} s without API server; a change carried out in {caught_up:.1f} s"


def wanted_workers(stage: Stage) -> int:
    """How many workers the operator asks Kubernetes for."""
    deployments = stage.objects("deployments")
    workers = [item for item in deployments if names.LABEL_REVISION in item["metadata"]["labels"]]
    return sum(item["spec"]["replicas"] for item in workers)


def operators(stage: Stage) -> list[Object]:
    """The operator's pods that are ready."""
    pods = stage.objects("pods", namespace=NAMESPACE)
    return [pod for pod in pods if is_ready(pod)]


def lease_holder(stage: Stage) -> str:
    """Who acts, by the Lease; empty for nobody."""
    holder = "jsonpath={.spec.holderIdentity}"
    return stage.kubectl("get", "lease", LEASE, "--ignore-not-found", "-o", holder, namespace=NAMESPACE)


def admin_key(stage: Stage) -> str:
    """The key of the routers' worker lists."""
    path = f"jsonpath={{.data.{names.SECRET_KEY}}}"
    return b64decode(stage.kubectl("get", "secret", names.admin_secret(manifests.POOL), "-o", path)).decode()


def listed(router: Object, key: str) -> int | None:
    """How many workers a router has, None without an answer; asked at its address, which needs no API server."""
    url = f"http://{router['status']['podIP']}:{names.ROUTER_PORT}/workers"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    try:
        with direct.opener().open(request, timeout=2) as answer:
            return int(json.load(answer)["total"])
    except OSError:  # it is just starting; the caller's deadline decides
        return None


FAULTS = (kill_the_operator, hang_the_operator, switch_the_page_on, upgrade_the_chart, api_server_away)
