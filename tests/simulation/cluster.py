"""The cluster below the API server: Deployments become pods, pods get nodes, and run as routers and workers.

What the operator can see of controllers, scheduler and kubelets, and in their order; one set of timers for each pod.
"""

import asyncio
import base64
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import orjson
from simulation.api_server import ApiServer, Object, Refused, conditions_with
from simulation.network import Network
from simulation.programs import ROUTER_CHECK_SECONDS, Router, Worker

from rewardpool_api import names
from rewardpool_api.times import rfc3339

GPU: Final = "nvidia.com/gpu"
LOST_SECONDS: Final = 40.0
"""After which a node that does not report is told to be lost."""
EVICTED_SECONDS: Final = 300.0
"""After which the pods of a lost node are deleted."""
PRE_STOP_SECONDS: Final = 5.0
IMAGE_SECONDS: Final = (0.5, 3.0)
PROBE_SECONDS: Final = 2.0
CRASH_PAUSES: Final = (1.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
BAD_IMAGE: Final = "images.example/absent:1"


@dataclass
class Node:
    """A machine."""

    name: str
    gpus: int
    cordoned: bool = False
    reports: bool = True
    """Its kubelet reaches the API server."""
    runs: bool = True


@dataclass(eq=False)
class Running:
    """A pod on its node."""

    node: Node
    name: tuple[str, str]
    uid: str
    address: str
    program: Worker | Router | None = None
    restarts: int = 0
    starts: int = 0
    ended: dict[str, Any] | None = None
    waiting: str = "ContainerCreating"
    started: bool = False
    ending: bool = False
    """It is being deleted."""
    deleted_by: str = ""
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class Cluster:
    """Nodes and controllers.

    Args:
        server: where everything is written down.
        network: where the pods' programs listen.
        chance: of how long things take.
        note: writes the history.
        stopped: hears which worker is told to end, and by whom.
    """

    def __init__(
        self,
        server: ApiServer,
        network: Network,
        chance: random.Random,
        note: Callable[..., None],
        *,
        nodes: tuple[int, ...],
        stopped: Callable[[Worker, str], None],
    ) -> None:
        self.server, self.network, self.chance = server, network, chance
        self.nodes = [Node(f"node-{number}", gpus) for number, gpus in enumerate(nodes)]
        self.running: dict[str, Running] = {}
        """By uid of the pod."""
        self.quota: int | None = None
        """Pods of a namespace."""
        self.refuses_pods = ""
        """What an admission webhook says to every new worker, where there is one."""
        self.load_seconds = (3.0, 20.0)
        self.crashes: set[str] = set()
        """Marks of specs whose workers end by themselves, see `mark_of`."""
        self.hangs: set[str] = set()
        """Marks of specs whose workers never give a score."""
        self.scaled_by_hand: set[tuple[str, str]] = set()
        """Deployments of which the next reconcile is somebody's doing."""
        self._addresses = count(1)
        self._suffixes = count(1)
        self._dirty: set[tuple[str, str]] = set()
        self._deleted_by = "somebody"
        self._note, self._stopped = note, stopped
        server.listeners.append(self._heard)
        server.admission.append(self._admit)

    def start(self) -> None:
        self._every(ROUTER_CHECK_SECONDS, self._router_checks)
        self._every(5.0, self._retry_all)

    # Faults and people.

    def deleting(self, who: str) -> "Deleting":
        """Pods that are deleted within the block are deleted by that one."""
        return Deleting(self, who)

    def lose(self, node: Node) -> None:
        """The node's power goes."""
        node.runs = node.reports = False
        for one in self._on(node):
            self._kill(one)
            self.network.silent.add(one.address)
        self._later(LOST_SECONDS, self._told_lost, node)

    def cut_off(self, node: Node) -> None:
        """The node runs, and its kubelet does not reach the API server."""
        node.reports = False
        self._later(LOST_SECONDS, self._told_lost, node)

    def bring_back(self, node: Node) -> None:
        was_running, node.runs, node.reports = node.runs, True, True
        for one in self._on(node):
            self.network.silent.discard(one.address)
            found = self.server.get("Pod", *one.name)
            if found is None or found["metadata"]["uid"] != one.uid:
                self._gone(one)
            elif "deletionTimestamp" in found["metadata"]:
                self._end(one)
            elif not was_running:
                self._restart(one, {"exitCode": 137, "reason": "Error"}, pause=1.0)
            else:
                self._report(one)
        self._schedule_all()

    def evict(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self._condition(pod, type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI", message="evicted")
        with self.deleting("eviction"):
            self.server.delete("Pod", metadata["namespace"], metadata["name"])

    def crash(self, one: Running) -> None:
        """The container's process ends by itself."""
        self._restart(one, {"exitCode": 1, "reason": "Error", "message": "killed"})

    def move(self, one: Running) -> None:
        """The pod's sandbox is made anew: another address, another process."""
        self._kill(one)
        one.address = self._address()
        self._restart(one, {"exitCode": 0, "reason": "Completed"}, pause=1.0)

    def workers(self) -> list[Worker]:
        return [
            one.program for one in self.running.values() if isinstance(one.program, Worker) and not one.program.dead
        ]

    def routers(self) -> list[Router]:
        return [
            one.program for one in self.running.values() if isinstance(one.program, Router) and not one.program.dead
        ]

    def deleter_of(self, url: str) -> str:
        """Return who deleted the worker at an address; empty where it is not being deleted."""
        at = (one for one in self.running.values() if isinstance(one.program, Worker) and one.program.url == url)
        return next((one.deleted_by for one in at), "")

    def exposed_routers(self, pool: tuple[str, str]) -> list[Router]:
        """Those that the pool's Service leads to."""
        if self.server.get("Service", pool[0], names.router_name(pool[1])) is None:
            return []
        return [
            one.program
            for one in self.running.values()
            if isinstance(one.program, Router)
            and one.program.pool == pool
            and not one.program.dead
            and self._is_ready(one.name)
        ]

    def has_room(self, gpus: int) -> bool:
        """Whether one more worker would be made and placed."""
        pods = len(self.server.all("Pod"))
        is_admitted = not self.refuses_pods and (self.quota is None or pods < self.quota)
        return is_admitted and any(self._free(node) >= gpus for node in self._usable(gpus))

    def could_have_room(self, gpus: int) -> bool:
        """Whether one would be placed if others left."""
        return bool(self._usable(gpus))

    def _usable(self, gpus: int) -> list[Node]:
        """Nodes that take new pods, and have so many GPUs in all."""
        return [node for node in self.nodes if node.reports and not node.cordoned and node.gpus >= gpus]

    # Controllers.

    def _heard(self, type_: str, kind: str, found: Object) -> None:
        metadata = found["metadata"]
        if kind == "Deployment":
            self._mark_dirty(metadata["namespace"], metadata["name"])
        owner = metadata.get("annotations", {}).get("deployment")
        if kind != "Pod" or owner is None:
            return
        if type_ != "MODIFIED" or "deletionTimestamp" in metadata or "status" in found:
            self._mark_dirty(metadata["namespace"], owner)
        one = self.running.get(metadata["uid"])
        if type_ == "RESTORED" and one is None and found["spec"].get("nodeName"):
            self._start_restored(found)
        elif type_ == "ADDED" or (type_ == "RESTORED" and one is None and not found["spec"].get("nodeName")):
            self._later(0.05, self._schedule, (metadata["namespace"], metadata["name"]))
        elif type_ in ("DELETED", "RESTORED") and one is not None:
            if self.server.get("Pod", *one.name) is None:
                self._gone(one)
        elif one is not None and "deletionTimestamp" in metadata and not one.ending:
            one.deleted_by = one.deleted_by or self._deleted_by
            if one.node.reports:
                self._end(one)
        elif one is not None:
            self._look_at_gate(found)

    def _mark_dirty(self, namespace: str, name: str) -> None:
        if (namespace, name) not in self._dirty:
            self._dirty.add((namespace, name))
            self._later(0.02, self._reconcile, (namespace, name))

    def _reconcile(self, key: tuple[str, str]) -> None:
        """One Deployment: rolling update by one surge pod, as the operator's are."""
        self._dirty.discard(key)
        deployment = self.server.get("Deployment", *key)
        pods = [one for one in self.server.all("Pod") if _belongs(one, key)]
        if deployment is None:
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:
                    with self.deleting("garbage collection"):
                        self.server.delete("Pod", key[0], pod["metadata"]["name"])
            return
        for pod in pods:
            if pod["status"].get("phase") == "Failed":
                self.server.delete("Pod", key[0], pod["metadata"]["name"], at_once=True)
        template, wanted = deployment["spec"]["template"], deployment["spec"]["replicas"]
        digest = hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).hexdigest()[:9]
        live = [
            one for one in pods if "deletionTimestamp" not in one["metadata"] and one["status"]["phase"] != "Failed"
        ]
        new = [one for one in live if one["metadata"]["labels"]["pod-template-hash"] == digest]
        old = [one for one in live if one["metadata"]["labels"]["pod-template-hash"] != digest]
        surge = 1 if old else 0
        missing = min(wanted - len(new), wanted + surge - len(live)) if old else wanted - len(new)
        refusal = None
        for _ in range(max(0, missing)):
            refusal = self._make_pod(deployment, template, digest)
            if refusal:
                break
        self._say_refusal(key, deployment, refusal)
        surplus = sorted(new, key=_rank)[: max(0, len(new) - wanted)]
        ready = sum(_is_ready(one) for one in live)
        for pod in sorted(old, key=_rank):
            if not _is_ready(pod) or ready > wanted:
                surplus.append(pod)
                ready -= _is_ready(pod)
        who = "people" if key in self.scaled_by_hand else "replica set"
        self.scaled_by_hand.discard(key)
        for pod in surplus:
            with self.deleting(who):
                self.server.delete("Pod", key[0], pod["metadata"]["name"])
        if refusal:
            self._later(5.0, self._mark_dirty, *key)

    def _make_pod(self, deployment: Object, template: Object, digest: str) -> str | None:
        """Returns why not."""
        metadata = deployment["metadata"]
        name = f"{metadata['name']}-{digest}-{next(self._suffixes)}"
        owner = {"kind": "ReplicaSet", "name": f"{metadata['name']}-{digest}", "uid": f"rs-{metadata['uid']}-{digest}"}
        described = template["metadata"]
        pod = {
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**described.get("labels", {}), "pod-template-hash": digest},
                "annotations": {**(described.get("annotations") or {}), "deployment": metadata["name"]},
                "ownerReferences": [{**owner, "apiVersion": "apps/v1", "controller": True}],
            },
            "spec": template["spec"],
        }
        try:
            self.server.create("Pod", pod)
        except Refused as refusal:
            return refusal.message
        return None

    def _say_refusal(self, key: tuple[str, str], deployment: Object, refusal: str | None) -> None:
        conditions = (deployment.get("status") or {}).get("conditions") or []
        if refusal is not None:
            failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refusal}
            self.server.update_status("Deployment", *key, conditions=conditions_with(conditions, **failure))
        elif conditions:
            self.server.update_status("Deployment", *key, conditions=[])

    def _admit(self, kind: str, found: Object) -> None:
        if kind != "Pod":
            return
        namespace = found["metadata"]["namespace"]
        there = sum(one["metadata"]["namespace"] == namespace for one in self.server.all("Pod"))
        if self.quota is not None and there >= self.quota:
            words = f'pods "{found["metadata"]["name"]}" is forbidden: exceeded quota: pods, used: pods={there}'
            raise Refused(403, "Forbidden", words)
        if self.refuses_pods and _component(found) == names.COMPONENT_WORKER:
            raise Refused(403, "Forbidden", self.refuses_pods)

    def _schedule_all(self) -> None:
        for pod in self.server.all("Pod"):
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                self._schedule((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def _schedule(self, name: tuple[str, str]) -> None:
        pod = self.server.get("Pod", *name)
        if pod is None or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            return
        gpus = _gpus(pod)
        able = [node for node in self.nodes if not node.cordoned and self._seems_up(node)]
        fitting = [node for node in able if self._free(node) >= gpus]
        if not fitting:
            self._condition(
                pod,
                type="PodScheduled",
                status="False",
                reason="Unschedulable",
                message=self._why_not(len(able), gpus),
            )
            return
        node = max(fitting, key=lambda one: (self._free(one), one.name))
        spec = {**pod["spec"], "nodeName": node.name}
        conditions = conditions_with(pod["status"].get("conditions") or [], type="PodScheduled", status="True")
        bound = {**pod, "spec": spec, "status": {**pod["status"], "conditions": conditions}}
        self.server._replace("Pod", pod, bound, "binding")
        one = Running(node, name, pod["metadata"]["uid"], self._address())
        self.running[one.uid] = one
        self._pod_later(one, self.chance.uniform(*IMAGE_SECONDS), self._start)

    def _why_not(self, able: int, gpus: int) -> str:
        total, taints = len(self.nodes), len(self.nodes) - able
        reasons = [f"{taints} node(s) were unschedulable"] if taints else []
        reasons += [f"{able} Insufficient {GPU}"] if able else []
        helps = "No preemption victims found for incoming pod" if able else "Preemption is not helpful for scheduling"
        fits = any(node.gpus >= gpus for node in self.nodes if not node.cordoned)
        helps = helps if fits else "Preemption is not helpful for scheduling"
        return (
            f"0/{total} nodes are available: {', '.join(reasons)}. preemption: 0/{total} nodes are available: {helps}."
        )

    def _free(self, node: Node) -> int:
        taken = (
            _gpus(pod)
            for pod in self.server.all("Pod")
            if pod["spec"].get("nodeName") == node.name and not _is_over(pod)
        )
        return node.gpus - sum(taken)

    def _seems_up(self, node: Node) -> bool:
        return node.reports

    def _told_lost(self, node: Node) -> None:
        if node.reports:
            return
        for one in self._on(node):
            pod = self.server.get("Pod", *one.name)
            if pod is not None:
                self._condition(pod, type="Ready", status="False", reason="NodeNotReady", message="")
        self._later(EVICTED_SECONDS, self._evict_lost, node)

    def _evict_lost(self, node: Node) -> None:
        if node.reports:
            return
        for one in self._on(node):
            if self.server.get("Pod", *one.name) is not None:
                with self.deleting("node controller"):
                    self.server.delete("Pod", *one.name)

    def _start_restored(self, pod: Object) -> None:
        """A pod that ended is there again, and its node finds that it does not run."""
        name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if self.server.get("Pod", *name) is not pod:
            return
        node = next(node for node in self.nodes if node.name == pod["spec"]["nodeName"])
        one = self.running[pod["metadata"]["uid"]] = Running(node, name, pod["metadata"]["uid"], self._address())
        self._report(one)
        self._pod_later(one, self.chance.uniform(*IMAGE_SECONDS), self._start)

    # Kubelets.

    def _start(self, one: Running) -> None:
        pod = self.server.get("Pod", *one.name)
        if pod is None or not one.node.runs:
            return
        labels, container = pod["metadata"]["labels"], pod["spec"]["containers"][0]
        pool = (one.name[0], labels[names.LABEL_POOL])
        if container["image"] == BAD_IMAGE:
            one.waiting = "ImagePullBackOff"
            self._report(one)
            return
        missing = self._missing_mount(pod)
        if missing is not None:
            self._pod_later(one, 5.0, self._start)
            self._warn(pod, missing)
            return
        one.starts += 1
        one.started = False
        if _component(pod) == names.COMPONENT_ROUTER:
            router = Router(
                self.network,
                one.name[1],
                pool,
                f"{one.address}:{names.ROUTER_PORT}",
                flavor=pod["metadata"]["annotations"].get(names.ANNOTATION_FLAVOR, ""),
            )
            router.admin_key = self._secret_entry(pool[0], names.admin_secret(pool[1]), names.SECRET_KEY)
            router.on_remove = self.removed
            router.listen()
            one.program = router
            one.started = True
        else:
            owner = self.server.get(names.KIND, *pool)
            worker = Worker(
                self.network,
                one.name[1],
                pool,
                owner["metadata"]["uid"] if owner else "",
                f"{one.address}:{names.WORKER_PORT}",
                lambda: self._keys(pool),
                self.chance,
            )
            self.network.endpoints[worker.address] = worker
            one.program = worker
            mark = mark_of(pod["spec"])
            if mark in self.crashes:
                self._pod_later(one, self.chance.uniform(1.0, 4.0), self.crash)
            elif mark not in self.hangs:
                self._pod_later(one, self.chance.uniform(*self.load_seconds), self._loaded)
        self._report(one)

    removed: Callable[[Router, Any], None] = staticmethod(lambda *_: None)

    def _loaded(self, one: Running) -> None:
        if isinstance(one.program, Worker) and not one.program.dead:
            one.program.loaded = True
            self._pod_later(one, self.chance.uniform(0.0, PROBE_SECONDS), self._probed)

    def _probed(self, one: Running) -> None:
        one.started = one.program is not None and not one.program.dead
        self._report(one)

    def _report(self, one: Running) -> None:
        """What the kubelet says of the pod."""
        pod = self.server.get("Pod", *one.name)
        if pod is None or pod["metadata"]["uid"] != one.uid or not one.node.reports:
            return
        runs = one.program is not None and not one.program.dead
        state: Object = {"waiting": {"reason": one.waiting}}
        if runs:
            state = {"running": {"startedAt": rfc3339(self.server._now())}}
        name = pod["spec"]["containers"][0]["name"]
        status = {
            "name": name,
            "started": runs and one.started,
            "ready": runs and one.started,
            "restartCount": one.restarts,
            "state": state,
        }
        if one.starts:
            status["containerID"] = f"containerd://{one.uid}-{one.starts}"
        if one.ended is not None:
            status["lastState"] = {"terminated": one.ended}
        conditions = pod["status"].get("conditions") or []
        ready = "True" if status["ready"] else "False"
        conditions = conditions_with(conditions, type="ContainersReady", status=ready)
        conditions = conditions_with(conditions, **self._ready_condition(pod, conditions, containers=status["ready"]))
        fields = {"podIP": one.address} if one.starts else {}
        phase = "Running" if runs or one.restarts else "Pending"
        self.server.update_status(
            "Pod", *one.name, **fields, phase=phase, containerStatuses=[status], conditions=conditions
        )

    def _ready_condition(self, pod: Object, conditions: list[Object], *, containers: bool) -> Object:
        gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or []]
        open_ = {one["type"] for one in conditions if one.get("status") == "True"}
        if not containers:
            return {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
        if not set(gates) <= open_:
            return {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}
        return {"type": "Ready", "status": "True"}

    def _look_at_gate(self, pod: Object) -> None:
        """The operator opened or closed a gate of readiness."""
        one = self.running[pod["metadata"]["uid"]]
        conditions = pod["status"].get("conditions") or []
        if not one.node.reports or not pod["spec"].get("readinessGates"):
            return
        containers = any(item["type"] == "ContainersReady" and item["status"] == "True" for item in conditions)
        wanted = self._ready_condition(pod, conditions, containers=containers)
        there = next((item for item in conditions if item["type"] == "Ready"), None)
        if there is not None and there.get("status") != wanted["status"]:
            self._pod_later(one, 0.1, self._report)

    def _end(self, one: Running) -> None:
        """Deleted: the hook before the end, then the end, once nothing is in flight or its grace is over."""
        one.ending = True
        if isinstance(one.program, Worker):
            self._stopped(one.program, one.deleted_by)
        self._pod_later(one, PRE_STOP_SECONDS if one.program is not None else 0.1, self._ended)

    def _ended(self, one: Running) -> None:
        if not one.node.reports:
            return
        pod = self.server.get("Pod", *one.name)
        self._kill(one)
        if pod is not None and pod["metadata"]["uid"] == one.uid:
            self.server.delete("Pod", *one.name, at_once=True)
        else:
            self._gone(one)

    def _gone(self, one: Running) -> None:
        self._kill(one)
        self.network.silent.discard(one.address)
        self.running.pop(one.uid, None)
        self._later(0.05, self._schedule_all)

    def _kill(self, one: Running) -> None:
        for timer in one.timers:
            timer.cancel()
        one.timers.clear()
        if one.program is not None and not one.program.dead:
            one.program.die()

    def _restart(self, one: Running, ended: Object, *, pause: float | None = None) -> None:
        if not one.node.runs or one.uid not in self.running:
            return
        self._kill(one)
        if one.ending:  # a pod that was deleted starts nothing any more
            self._pod_later(one, 0.1, self._ended)
            return
        one.ended, one.started = {**ended, "finishedAt": rfc3339(self.server._now())}, False
        one.waiting = "CrashLoopBackOff" if one.restarts else "ContainerCreating"
        wait = CRASH_PAUSES[min(one.restarts, len(CRASH_PAUSES) - 1)] if pause is None else pause
        one.restarts += 1
        self._report(one)
        self._pod_later(one, wait, self._start)

    def _missing_mount(self, pod: Object) -> str | None:
        for volume in pod["spec"].get("volumes") or []:
            for kind, source, field_ in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
                if source in volume and not volume[source].get("optional"):
                    name = volume[source][field_]
                    if self.server.get(kind, pod["metadata"]["namespace"], name) is None:
                        return f'MountVolume.SetUp failed for volume "{volume["name"]}": {source} "{name}" not found'
        return None

    def _warn(self, pod: Object, message: str) -> None:
        metadata = pod["metadata"]
        event = {
            "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name']}.{next(self._suffixes)}"},
            "regarding": {"uid": metadata["uid"]},
            "type": "Warning",
            "reason": "FailedMount",
            "note": message,
            "eventTime": rfc3339(self.server._now()),
        }
        self.server.create("Event", event)

    # Small things.

    def _keys(self, pool: tuple[str, str]) -> frozenset[str]:
        found = self.server.get("Secret", pool[0], names.key_secret(pool[1]))
        entries = (found or {}).get("data") or {}
        return frozenset(base64.b64decode(value).decode() for name, value in entries.items() if name in names.KEY_NAMES)

    def _secret_entry(self, namespace: str, name: str, entry: str) -> str:
        found = self.server.get("Secret", namespace, name) or {}
        return base64.b64decode((found.get("data") or {}).get(entry, "")).decode()

    def _is_ready(self, name: tuple[str, str]) -> bool:
        pod = self.server.get("Pod", *name)
        return pod is not None and _is_ready(pod) and "deletionTimestamp" not in pod["metadata"]

    def _condition(self, pod: Object, **condition: Any) -> None:
        metadata = pod["metadata"]
        found = self.server.get("Pod", metadata["namespace"], metadata["name"])
        if found is not None:
            conditions = conditions_with(found["status"].get("conditions") or [], **condition)
            self.server.update_status("Pod", metadata["namespace"], metadata["name"], conditions=conditions)

    def _address(self) -> str:
        number = next(self._addresses)
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def _on(self, node: Node) -> list[Running]:
        return [one for one in self.running.values() if one.node is node]

    def _router_checks(self) -> None:
        for router in self.routers():
            router.look_at_workers()

    def _retry_all(self) -> None:
        self._schedule_all()

    def _later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call, *arguments)

    def _pod_later(self, one: Running, seconds: float, call: Callable[[Running], None]) -> None:
        one.timers = [timer for timer in one.timers if timer.when() > asyncio.get_running_loop().time()]
        one.timers.append(self._later(seconds, call, one))

    def _every(self, seconds: float, call: Callable[[], None]) -> None:
        def again() -> None:
            call()
            self._later(seconds, again)

        self._later(seconds, again)


class Deleting:
    """Names who deletes, for as long as the block lasts."""

    def __init__(self, cluster: Cluster, who: str) -> None:
        self._cluster, self._who = cluster, who

    def __enter__(self) -> None:
        self._before, self._cluster._deleted_by = self._cluster._deleted_by, self._who

    def __exit__(self, *_: object) -> None:
        self._cluster._deleted_by = self._before


def mark_of(pod_spec: Object) -> str:
    """What a person wrote into the spec to tell one edit from the next."""
    env = pod_spec["containers"][0].get("env") or []
    return next((one.get("value", "") for one in env if one["name"] == "MARK"), "")


def _belongs(pod: Object, key: tuple[str, str]) -> bool:
    metadata = pod["metadata"]
    return metadata["namespace"] == key[0] and metadata.get("annotations", {}).get("deployment") == key[1]


def _component(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(names.LABEL_COMPONENT))


def _gpus(pod: Object) -> int:
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return int(limits.get(GPU, 0))


def _is_over(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _rank(pod: Object) -> tuple[Any, ...]:
    """Which pod a ReplicaSet deletes first."""
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}
    annotations = pod["metadata"].get("annotations") or {}
    return (
        bool(pod["spec"].get("nodeName")),
        phases.get(pod["status"].get("phase", "Pending"), 0),
        _is_ready(pod),
        int(annotations.get("controller.kubernetes.io/pod-deletion-cost", "0")),
        _negative(pod["metadata"]["creationTimestamp"]),
    )


def _negative(text: str) -> tuple[int, ...]:
    """Newer before older."""
    return tuple(-ord(letter) for letter in text)
