"""The step on a node: two pools get the same load at the same moment, and each autoscaler has its turn at one of them.

    ours    policy QueueDepth, by the operator as its chart installs it
    hpa     policy External, by the HPA controller of the same cluster's kube-controller-manager

Real are the control plane, kubelet and containerd, the operator, the HPA controller, both routers and all workers: a
function with a fixed service time that is ready in two or three seconds. Only the HPA's metric comes from a stand-in,
which asks the router at the very moment of each look: as good a metric as an HPA can have.
"""

import asyncio
import json
import statistics
import tempfile
from asyncio import TaskGroup
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from support.stand_in_metrics_adapter import StandInMetricsAdapter

from autoscaler import manifests
from autoscaler.course import Course, Size, follow
from autoscaler.load import Load
from autoscaler.manifests import HPA, OURS, POOLS, STEP, TARGET
from cluster import direct
from cluster.folders import STATE
from cluster.node import NodeCluster
from cluster.processes import ClusterError
from cluster.progress import Say
from installation import Installation
from rewardpool_api import names
from rewardpool_kube.client import Kube
from rewardpool_kube.configuration import load_configuration
from rewardpool_operator.routers.sglang_router import RouterMetrics

READY_SECONDS: Final = 120.0
HPA_PERIOD_SECONDS: Final = 15.0
"""Between two looks of the HPA controller, its default; the step falls at another moment of it in each repeat."""
STEP_SECONDS: Final = 120.0
"""Deadline for both to have their eight replicas serve."""
HELD_SECONDS: Final = 20.0
"""After that, in which whoever asks for more than eight is seen to."""
DOWN_SECONDS: Final = 400.0
"""Deadline for both to be at one replica again; the HPA's window alone is 300 s."""
TELL_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one autoscaler made of one step; seconds count from it, None for what did not come in time."""

    before: int
    """Replicas asked for when the step came; 1 is right."""
    wanted_seconds: float | None
    """Until it asked for eight replicas."""
    ready_seconds: float | None
    """Until eight replicas served."""
    most_wanted: int
    """8 is right; more is overshoot."""
    down_seconds: float | None = None
    """From the end of the load until it asked for one; None where that was not measured."""


class RouterOfPool:
    """Reads, for the HPA, what a pool's router holds at this moment."""

    def __init__(self) -> None:
        self.address: str | None = None

    def read(self, namespace: str, metric: str, labels: Mapping[str, str]) -> float | None:
        """Requests at the router's workers; None before there is a router."""
        if self.address is None:
            return None
        with direct.opener().open(f"http://{self.address}:{names.ROUTER_METRICS_PORT}/metrics", timeout=5) as answer:
            metrics = RouterMetrics.parse(answer.read().decode())
        return None if metrics is None else float(metrics.in_flight)


def measure(*, repeats: int, with_down: bool, say: Say) -> dict[str, Any]:
    """Bring up a node with the operator, make the step so many times, and return the figures of the result.

    Raises:
        ClusterError: the node, or a pool on it, did not come up.
    """
    STATE.mkdir(parents=True, exist_ok=True)
    router = RouterOfPool()
    with NodeCluster(say=say) as cluster, tempfile.TemporaryDirectory(prefix="rewardpool-bench-") as folder:
        installation = Installation(cluster, folder=Path(folder), say=say)
        installation.load_image()
        installation.install(manifests.chart_values())
        installation.wait()
        with StandInMetricsAdapter(cluster.kubectl, Path(folder) / "metrics-adapter", read=router.read):
            return asyncio.run(_repeat(cluster, router, repeats=repeats, with_down=with_down, say=say))


def figures_of(answers: list[dict[str, Answer]]) -> dict[str, Any]:
    """The part of the result that is about the node."""

    def median(name: str) -> float | None:
        seconds = [answer[name].wanted_seconds for answer in answers]
        return statistics.median(found) if len(found := [one for one in seconds if one is not None]) else None

    return {
        "real_step_response_seconds": median(OURS),
        "real_hpa_step_response_seconds": median(HPA),
        "real_steps": [{name: asdict(answer[name]) for name in POOLS} for answer in answers],
    }


async def _repeat(
    cluster: NodeCluster, router: RouterOfPool, *, repeats: int, with_down: bool, say: Say
) -> dict[str, Any]:
    answers = []
    async with Kube(await load_configuration({"KUBECONFIG": str(cluster.kubeconfig)})) as kube:
        for number in range(repeats):
            stage = Stage(cluster, kube, namespace=f"rewardpool-bench-{number + 1}", say=say)
            last = number == repeats - 1
            phase = HPA_PERIOD_SECONDS * number / repeats
            say(f"step {number + 1} of {repeats}")
            answers.append(await stage.play(router, phase_seconds=phase, with_down=with_down and last))
            await stage.kubectl("delete", "namespace", stage.namespace, "--wait=false")
    return figures_of(answers)


class Stage:
    """Two pools in a namespace of their own, so that no repeat knows of those before it."""

    def __init__(self, cluster: NodeCluster, kube: Kube, *, namespace: str, say: Say) -> None:
        self.namespace = namespace
        self._cluster = cluster
        self._kube = kube
        self._say = say
        self._courses = {name: Course() for name in POOLS}

    async def play(self, router: RouterOfPool, *, phase_seconds: float, with_down: bool) -> dict[str, Answer]:
        """Make the pools, load them, make the step, and say what came of it.

        Args:
            router: is told where the HPA's pool has its router.
            phase_seconds: how long after a look of the HPA the step comes.
            with_down: end the load too, and wait until both are at one replica again.
        """
        await self._apply(*manifests.everything(namespace=self.namespace))
        async with AsyncExitStack() as stack:
            following = await stack.enter_async_context(TaskGroup())
            task = following.create_task(follow(self._kube, self.namespace, self._courses))
            stack.callback(task.cancel)
            if not await self._until("both pools serve", serves, since=0.0, deadline=READY_SECONDS):
                raise ClusterError(f"the pools in {self.namespace} did not come up in {READY_SECONDS:.0f} s")
            router.address = await self._router_of(HPA)
            loads = [await stack.enter_async_context(await self._load(name)) for name in POOLS]
            await asyncio.gather(*(load.hold(TARGET) for load in loads))
            await self._apply(manifests.autoscaler(namespace=self.namespace))
            await asyncio.sleep(HPA_PERIOD_SECONDS + phase_seconds)
            answers = await self._step(loads, with_down=with_down)
        if failed := [failure for load in loads for failure in load.failed]:
            raise ClusterError(f"{len(failed)} samples got no score, the first: {failed[0]}")
        return answers

    async def _step(self, loads: list[Load], *, with_down: bool) -> dict[str, Answer]:
        before = {name: self._courses[name].sizes[-1].wanted for name in POOLS}
        step = monotonic()
        await asyncio.gather(*(load.hold(STEP * TARGET) for load in loads))
        self._say(f"{STEP * TARGET} requests in flight instead of {TARGET}")
        await self._until("both have their replicas", is_answered, since=step, deadline=STEP_SECONDS)
        await asyncio.sleep(HELD_SECONDS)
        if with_down:
            await asyncio.gather(*(load.hold(0) for load in loads))
        end = monotonic()
        if with_down:
            self._say("the load is over")
            await self._until("both are at one replica", is_down, since=end, deadline=DOWN_SECONDS)
        return {
            name: Answer(
                before=before[name],
                wanted_seconds=rounded(course.seconds_until(is_wanted, since=step)),
                ready_seconds=rounded(course.seconds_until(is_answered, since=step)),
                most_wanted=course.most_wanted(since=step),
                down_seconds=rounded(course.seconds_until(is_down, since=end)) if with_down else None,
            )
            for name, course in self._courses.items()
        }

    async def kubectl(self, *args: str, **how: Any) -> str:
        """Run kubectl beside the load."""
        return await asyncio.to_thread(self._cluster.kubectl, *args, **how)

    async def _apply(self, *objects: Mapping[str, Any]) -> None:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        await self.kubectl("apply", "-f", "-", input=document)

    async def _load(self, name: str) -> Load:
        service = ["get", "service", names.router_name(name), f"--namespace={self.namespace}"]
        address = await self.kubectl(*service, "-o", "jsonpath={.spec.clusterIP}")
        return Load(f"{self.namespace}/{name}", address=address, kubeconfig=self._cluster.kubeconfig)

    async def _router_of(self, name: str) -> str:
        selector = f"{names.LABEL_POOL}={name},{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}"
        pods = ["get", "pods", f"--namespace={self.namespace}", f"--selector={selector}"]
        return await self.kubectl(*pods, "-o", "jsonpath={.items[0].status.podIP}")

    async def _until(self, what: str, holds: Callable[[Size], bool], *, since: float, deadline: float) -> bool:
        """Wait until that held of every pool; whether it did in time. Where it did not, that is said."""
        began = told = monotonic()
        while any(course.seconds_until(holds, since=since) is None for course in self._courses.values()):
            now = monotonic()
            sizes = ", ".join(f"{name} {course.latest}" for name, course in self._courses.items())
            if now - began > deadline:
                self._say(f"{what}: not after {deadline:.0f} s ({sizes})")
                return False
            if now - told > TELL_SECONDS:
                told = now
                self._say(f"waiting until {what}: {now - began:.0f} s ({sizes})")
            await asyncio.sleep(0.1)
        return True


def serves(size: Size) -> bool:
    """Whether the replica that a pool begins with serves."""
    return size.ready == 1


def is_wanted(size: Size) -> bool:
    """Whether as many replicas are asked for as the step takes."""
    return size.wanted >= STEP


def is_answered(size: Size) -> bool:
    """Whether as many serve."""
    return is_wanted(size) and size.ready >= STEP


def is_down(size: Size) -> bool:
    """Whether one replica is asked for."""
    return size.wanted == 1


def rounded(seconds: float | None) -> float | None:
    """Without digits that mean nothing."""
    return None if seconds is None else round(seconds, 2)
