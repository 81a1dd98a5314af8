"""A stand-in for a node: runs pods as processes on loopback addresses. No containers, no pod network, no kubelet.

What runs in the pods is real (the router, the function server, with the command line, files and keys of their pods),
and so is the API server above. In between, this file does what the operator can see of a scheduler and a kubelet: it
binds the pod, mounts Secrets and ConfigMaps as folders (and renews those of Secrets, by switching a link, at random
moments), gives each pod an address of its own (127.x.y.z), asks the startup probe, reports the status, restarts
what ends, and obeys deletion with preStop, SIGTERM and the grace period.

Differences that matter: paths and `0.0.0.0` in command lines and variables are replaced, since processes share the
machine; images, limits and security contexts are ignored; a dead address refuses instead of going silent; and Services
have no endpoints, because Kubernetes takes no loopback address for one.
"""

import asyncio
import base64
import contextlib
import logging
import os
import random
import signal
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import aiohttp

from cluster.control_plane import ControlPlane

NODE = "loopback"
POLL_SECONDS = 0.2
PODS = "/api/v1/pods?resourceVersion=0"
"""From the API server's memory, as a kubelet has them: without the version, each look would go to etcd."""
LEASE_SECONDS = 3.0
RESTART_SECONDS = 0.5
SILENCE_SECONDS = 60.0
"""How long the API server may be away; longer ends the node's stand-in, and its log says so."""
RENEW_SECONDS = (0.5, 3.0)
"""Between two looks at a mounted Secret, at random; a kubelet's are a minute or so apart."""
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
TERMINATION_LOG = "/dev/termination-log"
LOG = logging.getLogger(__name__)


@dataclass
class RunningPod:
    """A pod's process."""

    address: str
    folder: Path
    labels: Mapping[str, str]
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    started: bool = False
    """The startup probe succeeded."""
    open_gates: frozenset[str] = frozenset()
    """Readiness gates that somebody opened."""
    deleting: asyncio.Event = field(default_factory=asyncio.Event)
    last_state: dict[str, Any] = field(default_factory=dict)


class LoopbackKubelet:
    """Runs every pod of a control plane, in a thread of its own; a context manager.

    Args:
        plane: the control plane, with its controllers.
        directory: for volumes and logs.
        pythons: container name -> the interpreter that stands for `python3` in its image.
        environments: container name -> variables that its image sets.
    """

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        *,
        pythons: Mapping[str, str],
        environments: Mapping[str, Mapping[str, str]] = {},
    ) -> None:
        self._plane = plane
        self._directory = directory
        self._pythons = pythons
        self._environments = environments
        self._pods: dict[str, RunningPod] = {}
        self._network = random.randint(64, 250)
        self._addresses = 0
        self._stop = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="loopback-kubelet")

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(timeout=20):
            raise TimeoutError("the loopback node could not be made within 20 s")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=20)

    @property
    def is_idle(self) -> bool:
        """Whether no pod runs here."""
        return not self._pods

    def pid(self, pod: Mapping[str, Any]) -> int:
        """Process id of a running pod, to kill it by hand."""
        process = self._pods[pod["metadata"]["uid"]].process
        if process is None:
            raise ProcessLookupError(pod["metadata"]["name"])
        return process.pid

    def move(self, pod: Mapping[str, Any]) -> None:
        """Give a running pod another address, and start its process anew there, as after its sandbox was lost."""
        running = self._pods[pod["metadata"]["uid"]]
        running.address = self._address()
        os.kill(self.pid(pod), signal.SIGKILL)

    async def _main(self) -> None:
        trust = ssl.create_default_context(cafile=str(self._plane.authority.certificate))
        connector = aiohttp.TCPConnector(ssl=trust)
        headers = {"Authorization": f"Bearer {self._plane.admin_token}", "User-Agent": "loopback-kubelet"}
        async with aiohttp.ClientSession(self._plane.url, connector=connector, headers=headers) as self._session:
            await self._make_node()
            self._started.set()
            tasks: dict[str, asyncio.Task[None]] = {}
            heartbeat = asyncio.create_task(self._heartbeat())
            try:
                while not self._stop.is_set():
                    pods = {pod["metadata"]["uid"]: pod for pod in (await self._call("GET", PODS))["items"]}
                    for uid in tasks.keys() - pods.keys():
                        tasks.pop(uid).cancel()  # deleted by force
                    for uid, pod in pods.items():
                        if uid not in tasks:
                            tasks[uid] = asyncio.create_task(self._live_on(pod))
                        elif uid in self._pods:
                            await self._look_at(pod, self._pods[uid])
                    await asyncio.sleep(POLL_SECONDS)
            except Exception:
                LOG.exception("the node's stand-in has stopped")
                raise
            finally:
                for task in [heartbeat, *tasks.values()]:
                    task.cancel()
                await asyncio.gather(heartbeat, *tasks.values(), return_exceptions=True)

    async def _make_node(self) -> None:
        node = {"metadata": {"name": NODE}, "spec": {}}
        await self._call("POST", "/api/v1/nodes", node)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": _now()}
        status = {"status": {"conditions": [ready]}}
        await self._call("PATCH", f"/api/v1/nodes/{NODE}/status", status, content_type=STRATEGIC_PATCH)
        lease = {"metadata": {"name": NODE}, "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40}}
        await self._call("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)

    async def _heartbeat(self) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
        while True:
            await self._call("PATCH", path, {"spec": {"renewTime": _now(micro=True)}}, content_type=MERGE_PATCH)
            await asyncio.sleep(LEASE_SECONDS)

    async def _live_on(self, pod: dict[str, Any]) -> None:
        """From binding to removal, and from the beginning after a failure, which is logged."""
        while True:
            try:
                return await self._live(pod)
            except Exception:
                LOG.exception("pod %s", pod["metadata"]["name"])
                await asyncio.sleep(RESTART_SECONDS)

    async def _live(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        folder = self._directory / metadata["name"]
        folder.mkdir(parents=True, exist_ok=True)
        running = self._pods[metadata["uid"]] = RunningPod(
            address=self._address(), folder=folder, labels=metadata["labels"]
        )
        if not pod["spec"].get("nodeName"):
            binding = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": NODE}}
            # Gone meanwhile, or bound in an attempt before.
            with contextlib.suppress(aiohttp.ClientResponseError):
                await self._call("POST", f"{path}/binding", binding)
        container = pod["spec"]["containers"][0]
        try:
            await self._containers(pod, container, running, path)
        finally:
            if running.process is not None and running.process.returncode is None:
                running.process.kill()
                await running.process.wait()
            del self._pods[metadata["uid"]]
        # With force; the uid spares a pod that was made anew under the same name.
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        with contextlib.suppress(aiohttp.ClientResponseError):
            await self._call("DELETE", path, options)

    async def _look_at(self, pod: dict[str, Any], running: RunningPod) -> None:
        """Take notice of what others did to the pod: deleted it, or opened one of its readiness gates."""
        if "deletionTimestamp" in pod["metadata"]:
            running.deleting.set()
        conditions = pod.get("status", {}).get("conditions", [])
        gates = {gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])}
        opened = {item["type"] for item in conditions if item["type"] in gates and item["status"] == "True"}
        if opened != running.open_gates:
            running.open_gates = frozenset(opened)
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
            status = {"status": {"conditions": _ready_conditions(running, gates)}}
            with contextlib.suppress(aiohttp.ClientResponseError):
                await self._call("PATCH", path, status, content_type=STRATEGIC_PATCH)

    async def _containers(self, pod: Any, container: Any, running: RunningPod, path: str) -> None:
        """Run the container again and again until the pod is deleted, after what has to come before it."""
        for first in pod["spec"].get("initContainers", []):
            await self._initialise(pod, first, running, path)
        mounts = await self._mounted_unless_deleted(pod, container, running)
        renewing = asyncio.create_task(self._renew(pod, running))
        try:
            await self._restarting(pod, container, mounts, running, path)
        finally:
            renewing.cancel()

    async def _restarting(
        self, pod: Any, container: Any, mounts: Mapping[str, str], running: RunningPod, path: str
    ) -> None:
        while not running.deleting.is_set():
            await self._start(container, mounts, running)
            await self._report(pod, path, container, running, started=False)
            startup = asyncio.create_task(self._started_up(pod, path, container, running))
            ended = asyncio.create_task(running.process.wait())
            deleting = asyncio.create_task(running.deleting.wait())
            try:
                await asyncio.wait([ended, deleting], return_when=asyncio.FIRST_COMPLETED)
            finally:
                startup.cancel()
                deleting.cancel()
            if running.deleting.is_set():
                await self._end(pod, container, running)
            else:
                await self._report_end(pod, path, container, running)
                await asyncio.sleep(RESTART_SECONDS)
                running.restarts += 1

    async def _initialise(self, pod: Any, container: Any, running: RunningPod, path: str) -> None:
        """Run an init container until it ends well, or the pod is deleted."""
        report = running.folder / f"{container['name']}.report"
        mounts = {**await self._mounted_unless_deleted(pod, container, running), TERMINATION_LOG: str(report)}
        last: dict[str, Any] = {}
        while not running.deleting.is_set():
            report.unlink(missing_ok=True)
            await self._start(container, mounts, running)
            await self._tell_init(path, pod, container, running, state={"running": {"startedAt": _now()}}, last=last)
            ended = asyncio.create_task(running.process.wait())
            deleting = asyncio.create_task(running.deleting.wait())
            try:
                await asyncio.wait([ended, deleting], return_when=asyncio.FIRST_COMPLETED)
            finally:
                deleting.cancel()
            if not ended.done():
                running.process.terminate()
                await ended
                return
            message = report.read_text() if report.exists() else ""
            over = {"terminated": {"exitCode": ended.result(), "reason": "Ended", "message": message}}
            await self._tell_init(path, pod, container, running, state=over, last=last)
            if ended.result() == 0:
                return
            last = over
            await asyncio.sleep(RESTART_SECONDS)

    async def _tell_init(
        self, path: str, pod: Any, container: Any, running: RunningPod, *, state: Any, last: dict[str, Any]
    ) -> None:
        def status(of: Any, now: Any, before: Any) -> dict[str, Any]:
            described = {"name": of["name"], "image": of["image"], "imageID": of["image"], "ready": False}
            return {**described, "restartCount": 0, "state": now, "lastState": before}

        waiting = {"waiting": {"reason": "PodInitializing"}}
        told = {
            "phase": "Pending",
            "podIP": running.address,
            "podIPs": [{"ip": running.address}],
            "hostIP": "127.0.0.1",
            "initContainerStatuses": [status(container, state, last)],
            "containerStatuses": [status(later, waiting, {}) for later in pod["spec"]["containers"]],
        }
        with contextlib.suppress(aiohttp.ClientResponseError):
            await self._call("PATCH", f"{path}/status", {"status": told}, content_type=MERGE_PATCH)

    async def _start(self, container: Any, mounts: Mapping[str, str], running: RunningPod) -> None:
        def here(text: str) -> str:
            for inside, outside in mounts.items():
                text = text.replace(inside, outside)
            return text.replace("0.0.0.0", running.address)

        program, *arguments = container["command"] + container.get("args", [])
        if program == "python3":
            program = self._pythons[container["name"]]
        variables = {entry["name"]: here(_value(entry, running)) for entry in container.get("env", [])}
        with (running.folder / "log").open("ab") as log:
            running.process = await asyncio.create_subprocess_exec(
                "setpriv",
                *("--pdeathsig", "KILL", "--", program),
                *map(here, arguments),
                env={"PATH": "/usr/bin:/bin"} | self._environments.get(container["name"], {}) | variables,
                cwd=here(container.get("workingDir", str(running.folder))),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _mounted_unless_deleted(self, pod: Any, container: Any, running: RunningPod) -> dict[str, str]:
        """As `_mounted`; nothing for a pod that is deleted first: what it mounts may be gone for good."""
        mounted = asyncio.create_task(self._mounted(pod, container, running))
        deleting = asyncio.create_task(running.deleting.wait())
        await asyncio.wait([mounted, deleting], return_when=asyncio.FIRST_COMPLETED)
        deleting.cancel()
        if mounted.done():
            return mounted.result()
        mounted.cancel()
        return {}

    async def _mounted(self, pod: Any, container: Any, running: RunningPod) -> dict[str, str]:
        """Mount path -> folder of this machine."""
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        folders = {}
        for mount in container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "hostPath" in volume or mount["mountPath"] == "/dev/shm":
                continue
            folder = running.folder / mount["name"]
            if "persistentVolumeClaim" in volume:
                folder = self._directory / "claims" / volume["persistentVolumeClaim"]["claimName"]
            folder.mkdir(parents=True, exist_ok=True)
            if "secret" in volume or "configMap" in volume:
                publish(folder, await self._contents(pod, volume))
            folders[mount["mountPath"]] = str(folder)
        return folders

    async def _renew(self, pod: Any, running: RunningPod) -> None:
        """Keep mounted Secrets as they are in the cluster, as late as a kubelet, though faster."""
        secrets = [volume for volume in pod["spec"].get("volumes", []) if "secret" in volume]
        while True:
            await asyncio.sleep(random.uniform(*RENEW_SECONDS))
            for volume in secrets:
                publish(running.folder / volume["name"], await self._contents(pod, volume))

    async def _contents(self, pod: Any, volume: Any) -> dict[str, bytes]:
        namespace = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        if "secret" in volume:
            secret = await self._eventually(f"{namespace}/secrets/{volume['secret']['secretName']}")
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in secret["data"]]
            return {item["path"]: base64.b64decode(secret["data"][item["key"]]) for item in items}
        if "configMap" in volume:
            path, optional = (
                f"{namespace}/configmaps/{volume['configMap']['name']}",
                volume["configMap"].get("optional"),
            )
            config = await (self._if_there(path) if optional else self._eventually(path))
            contents = {name: text.encode() for name, text in config.get("data", {}).items()}
            contents |= {name: base64.b64decode(text) for name, text in config.get("binaryData", {}).items()}
            items = volume["configMap"].get("items") or [{"key": key, "path": key} for key in contents]
            return {item["path"]: contents[item["key"]] for item in items}
        return {}

    async def _if_there(self, path: str) -> dict[str, Any]:
        """As a kubelet does for what is optional: a pod starts without it."""
        try:
            return await self._call("GET", path)
        except aiohttp.ClientResponseError as error:
            if error.status != 404:
                raise
            return {"data": {}}

    async def _eventually(self, path: str) -> dict[str, Any]:
        """As a kubelet does: a pod waits for what it mounts."""
        while True:
            with contextlib.suppress(aiohttp.ClientResponseError):
                return await self._call("GET", path)
            await asyncio.sleep(0.2)

    async def _started_up(self, pod: Any, path: str, container: Any, running: RunningPod) -> None:
        probe = (container.get("startupProbe") or container.get("readinessProbe"))["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        scheme = probe.get("scheme", "HTTP").lower()
        url = f"{scheme}://{running.address}:{ports[probe['port']]}{probe['path']}"
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                # A kubelet does not verify certificates either.
                async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=5), ssl=False) as response:
                    if response.status == 200:
                        break
            await asyncio.sleep(0.2)
        await self._report(pod, path, container, running, started=True)

    async def _end(self, pod: Any, container: Any, running: RunningPod) -> None:
        """Wait for preStop, ask the process to end, then make it."""
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        grace = pod["spec"]["terminationGracePeriodSeconds"]
        await asyncio.sleep(sleep)
        if running.process is None or running.process.returncode is not None:
            return
        running.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(running.process.wait(), timeout=grace - sleep)

    async def _report(self, pod: Any, path: str, container: Any, running: RunningPod, *, started: bool) -> None:
        state = {"running": {"startedAt": _now()}}
        await self._write_status(pod, path, container, running, state=state, phase="Running", started=started)

    async def _report_end(self, pod: Any, path: str, container: Any, running: RunningPod) -> None:
        code = running.process.returncode if running.process else 0
        ended = {
            "exitCode": code if code is not None and code >= 0 else 128 - (code or 0),
            "reason": "Error",
            "message": (running.folder / "log").read_bytes()[-2048:].decode(errors="replace"),
        }
        running.last_state = {"terminated": ended}
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}}
        await self._write_status(pod, path, container, running, state=state, phase="Running", started=False)

    async def _write_status(
        self, pod: Any, path: str, container: Any, running: RunningPod, *, state: Any, phase: str, started: bool
    ) -> None:
        running.started = started
        gates = {gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])}
        process = running.process.pid if running.process else 0
        status = {
            "phase": phase,
            "podIP": running.address,
            # A pod that moved has none of its addresses before.
            "podIPs": [{"$patch": "replace"}, {"ip": running.address}],
            "hostIP": "127.0.0.1",
            "conditions": _ready_conditions(running, gates),
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": container["image"],
                    "containerID": f"loopback://{process}",
                    "ready": started,
                    "started": started,
                    "restartCount": running.restarts,
                    "state": state,
                    "lastState": running.last_state,
                }
            ],
        }
        with contextlib.suppress(aiohttp.ClientResponseError):
            await self._call("PATCH", f"{path}/status", {"status": status}, content_type=STRATEGIC_PATCH)

    def _address(self) -> str:
        self._addresses += 1
        return f"127.{self._network}.{self._addresses // 250}.{self._addresses % 250 + 1}"

    async def _call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Ask the API server, again while it does not answer. Raises aiohttp.ClientResponseError when it refuses."""
        deadline = time.monotonic() + SILENCE_SECONDS
        while True:
            try:
                return await self._ask(method, path, body, content_type)
            except (aiohttp.ClientError, TimeoutError) as error:
                refused = isinstance(error, aiohttp.ClientResponseError) and error.status < 500 and error.status != 429
                if refused or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(random.uniform(0.1, 0.5))

    async def _ask(self, method: str, path: str, body: Any, content_type: str) -> dict[str, Any]:
        headers = {"Content-Type": content_type}
        async with self._session.request(method, path, json=body, headers=headers, raise_for_status=True) as response:
            answer: dict[str, Any] = await response.json()
            return answer


def _ready_conditions(running: RunningPod, gates: set[str]) -> list[dict[str, str]]:
    held = {"ContainersReady": running.started, "Ready": running.started and gates <= running.open_gates}
    return [{"type": kind, "status": str(value), "lastTransitionTime": _now()} for kind, value in held.items()]


def publish(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Put the files into the folder all at once: they are links through one link, which is switched."""
    current = folder / "..data"
    files = [path for path in current.rglob("*") if path.is_file()] if current.exists() else []
    if current.exists() and contents == {str(file.relative_to(current)): file.read_bytes() for file in files}:
        return
    version = folder / f"..{len(list(folder.iterdir()))}-{random.randrange(1 << 32):x}"
    version.mkdir()
    for name, content in contents.items():
        (version / name).parent.mkdir(parents=True, exist_ok=True)
        (version / name).write_bytes(content)
    (folder / "..new").symlink_to(version.name)
    (folder / "..new").replace(current)
    entries = {Path(name).parts[0] for name in contents}
    for name in entries:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    for link in folder.iterdir():
        if not link.name.startswith("..") and link.name not in entries:
            link.unlink()


def _now(*, micro: bool = False) -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds" if micro else "seconds").replace("+00:00", "Z")


def _value(variable: Mapping[str, Any], running: RunningPod) -> str:
    """A variable's value: its own, or that of the pod's label it refers to."""
    field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    label = field.removeprefix("metadata.labels['").removesuffix("']")
    return running.labels[label] if field else str(variable.get("value", ""))
