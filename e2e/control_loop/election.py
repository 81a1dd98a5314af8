"""Operators whose Lease is answered for by a proxy's own page, while they get on well with the rest of the API."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cluster import direct
from cluster.fault_proxy import FaultProxy, Rule
from faults import manifests
from faults.operators import LEASE, operators, wanted_workers
from faults.stage import Stage
from installation import NAMESPACE
from rewardpool_operator.kubernetes.leader import DURATION_SECONDS, MARGIN_SECONDS
from scene import Object, StoryError

PAGE = b"<html><head><title>Sorry</title></head><body><h1>We are down for maintenance</h1></body></html>"
PAGES: Mapping[str, Rule] = {
    words: Rule(status=status, page=page, resources=frozenset({"leases"}), ending=f"/{NAMESPACE}/leases/{LEASE}")
    for words, status, page in (
        ("HTML and 503", 503, PAGE),
        ("HTML and 200", 200, PAGE),
        ("no UTF-8 and 503", 503, PAGE.replace(b"Sorry", "Entschuldigung für die Störung".encode("latin-1"))),
    )
}
"""What the operators get for their Lease, in words and as a rule of the proxy."""
FAULT_SECONDS = 10.0
LOOK_SECONDS = 0.3
STOOD_DOWN_SECONDS = DURATION_SECONDS - MARGIN_SECONDS + 0.5
"""From the fault's beginning until nobody acts any more: the last renewal may have come just before."""
ACTS_SECONDS = 10.0
"""From the fault's end until a change is carried out."""
HEALTH_PORT, METRICS_PORT = 8081, 8082


@dataclass(frozen=True, kw_only=True)
class Look:
    """What an operator says of itself at one moment."""

    at: float
    """Seconds from the fault's beginning."""
    operator: str
    ok: bool
    acting: str
    """As /healthz has it."""
    leads: bool
    """As `rewardpool_leader` has it."""


def election_answered_by_html(stage: Stage) -> str:
    """The Lease is HTML for 10 s, thrice: who acted says that it stands down, no pod is touched, it acts soon after."""
    stage.shape(workers=2, routers=2)
    notes = []
    with through(stage.cluster.breaker().proxy(), stage) as proxy:
        for words, rule in PAGES.items():
            before, pods = stage.uids("worker", "router"), {pod["metadata"]["name"]: pod for pod in operators(stage)}
            with proxy.broken(rule):
                looks = watch(pods, seconds=FAULT_SECONDS)
                stage.change({"replicas": 3})
            began = time.monotonic()
            if found := problems(looks):
                raise StoryError(f"{words}: {'; '.join(found[:3])}")
            if stage.uids("worker", "router") != before:
                raise StoryError(f"{words}: pods of the pool were touched while nobody led")
            stage.until(lambda: wanted_workers(stage) == 3, what=f"{words}: it acts", deadline_seconds=ACTS_SECONDS)
            seconds = time.monotonic() - began
            if restarted := [name for name, count in restarts(operators(stage)).items() if count]:
                raise StoryError(f"{words}: {restarted} were started again")
            stage.settle()
            if not before <= stage.uids("worker", "router"):
                raise StoryError(f"{words}: pods of the pool were replaced")
            notes.append(f"{words}: nobody led after {first_without(looks):.1f} s, acted {seconds:.1f} s after its end")
            stage.shape(workers=2, routers=2)
    return "; ".join(notes)


@contextmanager
def through(proxy: FaultProxy, stage: Stage) -> Iterator[FaultProxy]:
    """The operators go to the API server by the proxy for the duration of the context."""
    variables = {"KUBERNETES_SERVICE_HOST": proxy.address, "KUBERNETES_SERVICE_PORT": str(proxy.port)}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    stage.installation.install(manifests.chart_values(env=env))
    try:
        stage.installation.wait()
        # One that is leaving gives the Lease back, and is no part of the election any more.
        stage.until(lambda: len(all_operators(stage)) == 2, what="two operators are there", deadline_seconds=60)
        yield proxy
    finally:
        stage.installation.install(manifests.chart_values())
        stage.installation.wait()


def all_operators(stage: Stage) -> list[Object]:
    """The operators' pods, leaving ones too."""
    return stage.objects("pods", namespace=NAMESPACE)


def restarts(pods: Sequence[Object]) -> Mapping[str, int]:
    """How often each pod's containers were started again."""
    return {
        pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"]["containerStatuses"]) for pod in pods
    }


def watch(pods: Mapping[str, Object], *, seconds: float) -> list[Look]:
    """Look at all operators over and over for so long."""
    began, looks = time.monotonic(), []
    while (at := time.monotonic() - began) < seconds:
        looks += [seen for name, pod in pods.items() if (seen := look(name, pod, at=at)) is not None]
        time.sleep(LOOK_SECONDS)
    return looks


def look(name: str, pod: Object, *, at: float) -> Look | None:
    """What an operator says now; None where that changed between two questions."""
    before = json.loads(ask(pod, HEALTH_PORT, "/healthz"))
    metrics = ask(pod, METRICS_PORT, "/metrics").decode()
    after = json.loads(ask(pod, HEALTH_PORT, "/healthz"))
    (leads,) = (line.split()[1] for line in metrics.splitlines() if line.startswith("rewardpool_leader "))
    if before["acting"] != after["acting"]:
        return None
    return Look(at=at, operator=name, ok=after["ok"], acting=after["acting"], leads=float(leads) == 1)


def ask(pod: Object, port: int, path: str) -> bytes:
    """Return what a pod answers at its own address. Raises `StoryError` where it does not, or with an error."""
    url = f"http://{pod['status']['podIP']}:{port}{path}"
    try:
        with direct.opener().open(url, timeout=5) as answer:
            body: bytes = answer.read()
            return body
    except OSError as error:
        raise StoryError(f"{url}: {error}") from error


def problems(looks: Sequence[Look]) -> list[str]:
    """What is untrue in what the operators say during the fault, in words."""
    leaders = Counter(seen.at for seen in looks if seen.leads)
    found = [f"two lead after {at:.1f} s" for at, count in leaders.items() if count > 1]
    for seen in looks:
        if seen.leads != (seen.acting == "full"):
            found.append(f"{seen.operator} says acting {seen.acting} and rewardpool_leader {seen.leads:d}")
        if not seen.ok:
            found.append(f"{seen.operator} is not ok after {seen.at:.1f} s")
        if seen.leads and seen.at > STOOD_DOWN_SECONDS:
            found.append(f"{seen.operator} still leads after {seen.at:.1f} s")
    if not any(seen.at > STOOD_DOWN_SECONDS for seen in looks):
        found.append("nobody looked long enough")
    return found


def first_without(looks: Sequence[Look]) -> float:
    """Seconds after which nobody led any more."""
    return max((seen.at for seen in looks if seen.leads), default=0.0)


PLAYS = (election_answered_by_html,)
