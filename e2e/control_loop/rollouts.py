"""Rollouts that have no room, no pods or no way to their workers: each comes to an end, and says which."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from cluster.contract import NotPossibleError
from cluster.gpus import fake_gpus
from faults.manifests import GPU_RESOURCE, NAMESPACE, POOL
from faults.rollouts import leave_gpus, move_to_gpus
from faults.stage import Stage
from rewardpool_api import names
from scene import Object, StoryError, condition, container_of, of_component

QUOTA = "gpus"
ENDS_SECONDS = 150.0
LONGEST_WORDS = 300
"""Characters of a condition that are kept."""


@dataclass
class Course:
    """What was seen of a rollout from its beginning to its end."""

    old: str
    """The revision that serves at the beginning."""
    fewest: int
    """Workers that served, at their fewest."""
    reasons: list[str] = field(default_factory=list)
    """Those of condition Progressing while it holds, in their order."""

    def observe(self, objects: list[Object]) -> "Look":
        """Take note of how a namespace's pool and pods are now."""
        seen = Look.from_objects(objects)
        self.fewest = min(self.fewest, seen.ready)
        progressing = condition(seen.pool, "Progressing")
        if progressing.get("status") == "True" and progressing["reason"] not in self.reasons:
            self.reasons.append(progressing["reason"])
        return seen


@dataclass(frozen=True, kw_only=True)
class Look:
    """A pool in a rollout, at one moment."""

    pool: Object
    workers: Mapping[str, int]
    """Worker pods by their revision, leaving ones too."""
    ready: int
    """Workers that serve."""

    @classmethod
    def from_objects(cls, objects: list[Object], name: str = POOL) -> "Look":
        """That of a namespace's objects."""
        pool = next(item for item in objects if item["kind"] == names.KIND and item["metadata"]["name"] == name)
        workers: dict[str, int] = {}
        for pod in of_component(objects, name, "worker"):
            revision = pod["metadata"]["labels"][names.LABEL_REVISION]
            workers[revision] = workers.get(revision, 0) + 1
        return cls(pool=pool, workers=workers, ready=pool["status"].get("readyReplicas", 0))

    @property
    def is_seen(self) -> bool:
        """Whether the status is one of the present spec."""
        return bool(self.pool["status"].get("observedGeneration") == self.pool["metadata"]["generation"])

    @property
    def memory(self) -> Mapping[str, Any]:
        """What the status keeps of rollouts."""
        found: Mapping[str, Any] = self.pool["status"].get("rollout") or {}
        return found

    def took_over(self, old: str, size: int) -> bool:
        """Whether the present revision is the only one there is and the good one, and so many of it serve."""
        current = self.pool["status"]["currentRevision"]
        good = self.memory.get("stableRevision") == current
        return self.is_seen and current != old and good and not set(self.workers) - {current} and self.ready == size

    def went_back(self, old: str, size: int) -> bool:
        """Whether the present revision failed, and the one before is all there is, and so many of it serve."""
        failed = (self.memory.get("failed") or {}).get("revision")
        there = failed == self.pool["status"]["currentRevision"] and self.memory.get("stableRevision") == old
        return self.is_seen and there and self.workers == {old: size} and self.ready == size

    def says(self, kind: str) -> str:
        """A condition in words."""
        said = condition(self.pool, kind)
        return f"{kind} {said.get('status')} {said.get('reason')}: {said.get('message', '')}"


def more_wanted_than_fit(stage: Stage) -> str:
    """Four are wanted and three fit, when the arguments change: the new revision takes over at the size that fits."""
    node = move_to_gpus(stage)
    fake_gpus(stage.cluster.kubectl, node, 3, resource=GPU_RESOURCE)
    try:
        stage.change({"replicas": 4})
        stage.until(lambda: look(stage).ready == 3, what="three of four serve", deadline_seconds=60)
        note = roll(stage, {"engine": {"args": ["--env=ROLL_44"]}}, size=3, fewest=2)
    finally:
        stage.change({"replicas": 2})
        leave_gpus(stage, node)
    return note


def larger_workers(stage: Stage) -> str:
    """Two GPUs each in place of one, for two workers on two GPUs: one new one takes over, as fits."""
    node = move_to_gpus(stage)
    fake_gpus(stage.cluster.kubectl, node, 2, resource=GPU_RESOURCE)
    try:
        # Both have to go before there is room for it.
        note = roll(stage, {"worker": {"gpus": 2}}, size=1, fewest=0)
    finally:
        leave_gpus(stage, node)
    return note


def a_larger_worker_than_the_quota(stage: Stage) -> str:
    """Two GPUs in place of one, for one worker under a quota of one: it is not taken, and stays the good one."""
    node = move_to_gpus(stage)
    stage.shape(workers=1, routers=2)
    hard = {f"requests.{GPU_RESOURCE}": "1"}
    metadata = {"name": QUOTA, "namespace": NAMESPACE}
    stage.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})
    try:
        note = roll_back(stage, {"worker": {"gpus": 2}}, size=1, fewest=1, says="exceeded quota")
    finally:
        stage.kubectl("delete", "resourcequota", QUOTA)
        leave_gpus(stage, node)
    return note


def refused_pods(stage: Stage) -> str:
    """Strategy Replace, and the namespace refuses the new pods: the old revision is whole again after the deadline."""
    stage.shape(workers=2, routers=2)
    stage.change({"rollout": {"strategy": "Replace"}})
    stage.settle()
    try:
        with enforced(stage, "baseline"):
            change = {"worker": {"podTemplate": {"spec": {"hostPID": True}}}}
            note = roll_back(stage, change, size=2, fewest=1, says="violates PodSecurity")
    finally:
        stage.change({"worker": {"podTemplate": {"spec": {"hostPID": None}}}, "rollout": {"strategy": None}})
        stage.settle()
    return note


@contextmanager
def enforced(stage: Stage, level: str) -> Iterator[None]:
    """The namespace takes pods of that level of Pod Security only, for the duration of the context."""
    label = "pod-security.kubernetes.io/enforce"
    stage.kubectl("label", "namespace", NAMESPACE, f"{label}={level}", "--overwrite")
    try:
        yield
    finally:
        stage.kubectl("label", "namespace", NAMESPACE, f"{label}-")


def no_node_takes_it(stage: Stage) -> str:
    """The only node with GPUs is cordoned, and the other one has none: the worker that serves is not taken for that."""
    if len(stage.objects("nodes")) == 1:
        raise NotPossibleError("the cluster has one node, so that there is none without GPUs")
    node = move_to_gpus(stage)
    stage.shape(workers=1, routers=2)
    serving = stage.uids("worker")
    stage.cluster.kubectl("cordon", node)
    try:
        note = roll_back(stage, {"engine": {"args": ["--env=ROLL_60"]}}, size=1, fewest=1, says="Insufficient")
        if stage.uids("worker") != serving:
            raise StoryError("the worker that served was replaced")
    finally:
        stage.cluster.kubectl("uncordon", node)
        leave_gpus(stage, node)
    return note


def unreachable_workers(stage: Stage) -> str:
    """The routers' packets to new workers are dropped: the old revision stays the good one, and the status says why."""
    stage.shape(workers=2, routers=2)
    serving, args = stage.uids("worker"), stage.pool()["spec"]["engine"]["args"]
    addresses = [pod["status"]["podIP"] for pod in stage.pods("worker")]
    breaker = stage.cluster.breaker()
    try:
        with ExitStack() as closed:
            for router in stage.pods("router"):
                container = container_of(router)
                closed.enter_context(breaker.one_port_closed(container, names.WORKER_PORT, but_for=addresses))
            change = {"engine": {"args": ["--env=ROLL_40"]}}
            note = roll_back(stage, change, size=2, fewest=2, says="can routers reach")
        if stage.uids("worker") != serving:
            raise StoryError("workers that served were replaced")
    finally:
        stage.change({"engine": {"args": args}})
        stage.settle()
    return note


def roll(stage: Stage, change: Mapping[str, Any], *, size: int, fewest: int) -> str:
    """Change the spec, and wait until the new revision has taken over with so many workers; return the note."""
    return follow(stage, change, lambda seen, old: seen.took_over(old, size), fewest=fewest, says="")


def roll_back(stage: Stage, change: Mapping[str, Any], *, size: int, fewest: int, says: str) -> str:
    """Change the spec, and wait until the old revision serves again with so many; return the note.

    Raises:
        StoryError: It did not in time, or the condition does not have the words of `says`.
    """
    return follow(stage, change, lambda seen, old: seen.went_back(old, size), fewest=fewest, says=says)


def follow(
    stage: Stage, change: Mapping[str, Any], ends: Callable[[Look, str], bool], *, fewest: int, says: str
) -> str:
    """Change the spec, and look until the rollout ends; return the note: seconds, how, and what a condition says."""
    began = look(stage)
    course = Course(old=began.pool["status"]["currentRevision"], fewest=began.ready)
    stage.change(change)
    seconds = stage.until(
        lambda: ends(course.observe(stage.objects("rewardpools,pods")), course.old),
        what="the rollout ends",
        deadline_seconds=ENDS_SECONDS,
    )
    said = look(stage).says("Progressing")
    if course.fewest < fewest:
        raise StoryError(f"only {course.fewest} workers served on the way, less than {fewest}")
    if says not in said:
        raise StoryError(f"after {seconds:.0f} s the condition says nothing of '{says}': {said}")
    way = " then ".join(course.reasons) or "no reason given"
    return f"{seconds:.0f} s, {way}, never fewer than {course.fewest} served; {said[:LONGEST_WORDS]}"


def look(stage: Stage) -> Look:
    """The pool now."""
    return Look.from_objects(stage.objects("rewardpools,pods"))


PLAYS = (
    more_wanted_than_fit,
    larger_workers,
    a_larger_worker_than_the_quota,
    refused_pods,
    no_node_takes_it,
    unreachable_workers,
)
