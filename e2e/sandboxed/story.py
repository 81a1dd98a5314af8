"""The steps, in their order: hostile code and neighbours, an edited function, gVisor, no Landlock, fetched code."""

import hashlib
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaling.pods import Asking
from cluster.certificates import Authority
from cluster.contract import NotPossibleError
from control_loop.rollouts import Look
from faults.stage import is_settled, settle
from rewardpool_api.reasons import ConditionReason
from sandboxed import alone, manifests
from sandboxed.job import ANSWERS, ASKED
from sandboxed.manifests import ISOLATED, JOBS, KEY_FILE, POOL, WORKERS
from sandboxed.samples import SECRET, Asked, answers_in, by_code, control, count, hostile, neighbours, to_json
from scene import Object, Scene, StoryError, condition

ROUNDS: Final = 5
"""How often all hostile code is run."""
START_SECONDS: Final = 240.0
HOSTILE_SECONDS: Final = 900.0
ROLLOUT_SECONDS: Final = 300.0
SEEN_SECONDS: Final = 90.0
AFTER_SECONDS: Final = 10.0
"""For which the neighbours ask on after an edit."""
ENDS_SECONDS: Final = 90.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a pool on nodes without Landlock comes to."""

    sandbox: Mapping[str, Any] | None
    status: str
    """Of Serving."""
    reason: str
    """Of Sandboxed, which is False."""


CASES: Final = {
    "silent": Case(sandbox=None, status="True", reason="Weakened"),
    "weak": Case(sandbox={"onMissing": "Weaken"}, status="True", reason="Weakened"),
    "strict": Case(sandbox={"onMissing": "Refuse"}, status="False", reason="SandboxUnavailable"),
}


class Story:
    """All steps, on a cluster that has the operator."""

    def __init__(self, scene: Scene, *, folder: Path) -> None:
        self._scene = scene
        self._jobs = Scene(scene.cluster, namespace=JOBS, name=POOL, say=scene.say)
        self._folder = folder

    def play(self) -> dict[str, Any]:
        """Return what each step says."""
        report: dict[str, Any] = {"pool": self.start()}
        asked = neighbours()
        beside = self._ask("neighbours", asked, callers=2)
        answers = self._folder / "neighbours" / ANSWERS
        self._scene.until(lambda: bool(answers_in(answers)), what="neighbours are scored", deadline_seconds=60)
        for name, step in (("hostile", self.hostile), ("edit", self.edit)):
            self._scene.say(f"sandboxed: {name}")
            report[name] = step()
            self._scene.say(f"  {report[name]}")
        # What the edit needs is seen once no more is asked.
        announced = report["edit"].pop("announced")
        lost = self._end(beside) - len(found := answers_in(answers))
        report["edit"] |= by_code(found, announced=announced)
        report["neighbours"] = count(asked, found, lost=lost).report()
        for name, step in (
            ("gvisor", self.gvisor),
            ("conditions", self.conditions),
            ("wheel", self.wheel),
            ("git", self.git),
        ):
            self._scene.say(f"sandboxed: {name}")
            report[name] = step()
            self._scene.say(f"  {report[name]}")
        return report

    def start(self) -> dict[str, Any]:
        """Two restricted workers serve, of code from a ConfigMap, and the pool says that they are sandboxed."""
        self._apply(version=1)
        seconds = settle(self._scene, what="two workers serve", deadline_seconds=START_SECONDS)
        self._scene.until(
            lambda: self._scene.condition("Sandboxed").get("reason") == "Enforced",
            what="the pool is sandboxed",
            deadline_seconds=SEEN_SECONDS,
        )
        (uid,) = {_rights(pod) for pod in self._scene.pods("worker")}
        return {"seconds": round(seconds, 1), "workers": WORKERS, "rights": uid, "sandboxed": self._sandboxed(POOL)}

    def hostile(self) -> dict[str, Any]:
        """All hostile code of the tests, over and over; and what can be reached in that pod without a sandbox."""
        lives = self._lives()
        one = hostile([SECRET, KEY_FILE])
        found = {}
        for name, asked in {"hostile": one * ROUNDS, "control": control()}.items():
            found[name] = self._tally(name, asked)
        return {
            "programs": len(one),
            "rounds": ROUNDS,
            **found["hostile"],
            "workers_lost": 0 if self._lives() == lives else 1,
            "reached_without_a_sandbox": found["control"]["samples"] - found["control"]["otherwise"],
            "tried_without_a_sandbox": found["control"]["samples"],
        }

    def _tally(self, name: str, asked: Sequence[Asked], *, pool: str = POOL) -> dict[str, Any]:
        """Ask all samples once, and count what becomes of them; raises StoryError where one has no answer."""
        job = self._ask(name, asked, pool=pool, callers=4, once=True)
        self._scene.until(
            lambda: job.phase() == "Succeeded",
            what=f"the samples of {name} are answered",
            deadline_seconds=HOSTILE_SECONDS,
        )
        found = count(asked, answers_in(self._folder / name / ANSWERS), lost=0).report()
        if found["samples"] != len(asked):
            raise StoryError(f"{name}: {found['samples']} of {len(asked)} samples have an answer")
        return found

    def edit(self) -> dict[str, Any]:
        """The function is edited while neighbours ask; what they got is counted once no more is asked."""
        old = self._scene.pool()["status"]["currentRevision"]
        self._apply(version=2)
        seconds = self._scene.until(
            lambda: (
                Look.from_objects(self._scene.objects("rewardpools,pods"), POOL).took_over(old, WORKERS)
                and is_settled(self._scene.objects("rewardpools,pods,deployments"), POOL)
            ),
            what="the edited function took over",
            deadline_seconds=ROLLOUT_SECONDS,
        )
        announced = time.time()
        time.sleep(AFTER_SECONDS)
        return {"seconds": round(seconds, 1), "announced": announced}

    def gvisor(self) -> dict[str, Any]:
        """Hostile code on a kernel of its own, without Landlock; in a pod where that is possible."""
        try:
            self._scene.cluster.gvisor()
        except NotPossibleError as error:
            return {"no pods": str(error), **alone.run(say=self._scene.say)}
        self._scene.apply(manifests.on_gvisor(self._scene.pool()))
        serving = self._scene.until(
            lambda: condition(_pool(self._scene, ISOLATED), "Serving").get("status") == "True",
            what="a worker on gVisor serves",
            deadline_seconds=START_SECONDS,
        )
        self._scene.until(
            lambda: condition(_pool(self._scene, ISOLATED), "Sandboxed").get("reason") == "Enforced",
            what="the pool on gVisor is sandboxed",
            deadline_seconds=SEEN_SECONDS,
        )
        kernel = self._scene.kubectl("exec", f"deployment/{ISOLATED}", "--", "cat", "/proc/version")
        asked = hostile([SECRET, KEY_FILE])
        tally = self._tally("gvisor", asked, pool=ISOLATED)
        return {"seconds": round(serving, 1), "kernel": kernel.strip(), **tally}

    def conditions(self) -> dict[str, Any]:
        """What pools say of a node without Landlock, by what they ask for."""
        try:
            self._scene.cluster.breaker().seccomp_profile(manifests.PROFILE, manifests.profile())
        except NotPossibleError as error:
            return {"not possible here": str(error)}
        deployed = self._scene.pool()
        self._scene.kubectl("delete", "rewardpool", POOL, "--timeout=60s", deadline_seconds=70)
        for name, case in CASES.items():
            sandbox = dict(case.sandbox) if case.sandbox is not None else None
            self._scene.apply(manifests.without_landlock(deployed, name, sandbox))
        found = {}
        for name, case in CASES.items():
            self._scene.until(
                lambda name=name, case=case: self._is(name, case),  # type: ignore[misc]
                what=f"pool {name} is {case.reason}",
                deadline_seconds=START_SECONDS,
            )
            found[name] = {"sandbox": case.sandbox, "serving": case.status, "sandboxed": self._sandboxed(name)}
        return found

    def wheel(self) -> dict[str, Any]:
        """A pool whose function is a wheel with the right hash serves; one with a wrong hash does not."""
        content = manifests.wheel()
        self._host(manifests.INDEX, manifests.index(content))
        right = manifests.pool_of_wheel(hashlib.sha256(content).hexdigest())
        return self._fetched(right, manifests.pool_of_wheel("0" * 64), refused="HASH")

    def git(self) -> dict[str, Any]:
        """A pool whose function is in a git repository serves; one of a commit that is not there says so."""
        bundle, commit = manifests.repository(self._folder / "repository")
        with tempfile.TemporaryDirectory() as keys:
            self._host(manifests.GIT, manifests.git_host(bundle, Authority(Path(keys))))
        return self._fetched(
            manifests.pool_of_git(commit), manifests.pool_of_git("0" * 40), refused=ConditionReason.FUNCTION_NOT_FOUND
        )

    def _host(self, name: str, objects: list[manifests.Manifest]) -> None:
        self._scene.apply(*objects)
        ready = ["wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s"]
        self._scene.kubectl(*ready, deadline_seconds=70)

    def _fetched(self, right: manifests.Manifest, wrong: manifests.Manifest, *, refused: str) -> dict[str, Any]:
        """A pool that can fetch its function serves, and a condition of one that cannot says `refused`."""
        name = right["metadata"]["name"]
        wrong["metadata"]["name"] = other = f"not-{name}"
        self._scene.apply(right, wrong)
        seconds = self._scene.until(
            lambda: condition(_pool(self._scene, name), "Serving").get("status") == "True",
            what=f"{name} serves",
            deadline_seconds=START_SECONDS,
        )
        self._scene.until(
            lambda: refused in json.dumps(_pool(self._scene, other).get("status", {}).get("conditions")),
            what=f"{other} says {refused}",
            deadline_seconds=START_SECONDS,
        )
        said = condition(_pool(self._scene, other), "Serving")
        return {"seconds": round(seconds, 1), "refused": f"{said['status']} {said['reason']}: {said['message']}"}

    def close(self) -> None:
        """Remove all of it."""
        self._jobs.attempt("delete", "pods", "--all", "--timeout=60s")
        self._scene.attempt("delete", "rewardpools", "--all", "--timeout=60s")
        for namespace in (JOBS, self._scene.namespace):
            self._scene.attempt("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")

    def _apply(self, *, version: int) -> None:
        folder = self._folder / "function"
        manifests.write_function(folder, version=version)
        self._scene.kubectl("apply", "-k", str(folder))

    def _ask(self, name: str, asked: Sequence[Asked], *, pool: str = POOL, callers: int, once: bool = False) -> Asking:
        folder = self._folder / name
        pod = manifests.job(name, folder, pool=pool, callers=callers, once=once)
        return Asking.start(self._jobs, pod, folder=folder, samples=to_json(asked))

    def _end(self, asking: Asking) -> int:
        """Let it finish what it asked, and return how many that were."""
        self._jobs.kubectl("delete", "pod", asking.name, "--wait=false")
        self._jobs.until(lambda: not asking.phase(), what=f"{asking.name} ends", deadline_seconds=ENDS_SECONDS)
        asked: int = json.loads((asking.folder / ASKED).read_text())["asked"]
        return asked

    def _lives(self) -> dict[str, int]:
        """How often each worker's container was started anew, by the pod's uid."""
        return {
            pod["metadata"]["uid"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))
            for pod in self._scene.pods("worker")
        }

    def _is(self, name: str, case: Case) -> bool:
        pool = _pool(self._scene, name)
        serving, sandboxed = condition(pool, "Serving"), condition(pool, "Sandboxed")
        return (serving.get("status"), sandboxed.get("reason")) == (case.status, case.reason)

    def _sandboxed(self, name: str) -> str:
        said = condition(_pool(self._scene, name), "Sandboxed")
        return f"{said['status']} {said['reason']}: {said['message']}"


def _pool(scene: Scene, name: str) -> Object:
    found: Object = json.loads(scene.kubectl("get", "rewardpool", name, "-o", "json"))
    return found


def _rights(pod: Object) -> str:
    """A worker's rights in words. Raises `StoryError` where it has more than a restricted pod has."""
    (container,) = pod["spec"]["containers"]
    own, whole = container["securityContext"], pod["spec"]["securityContext"]
    rights = {"capabilities": own["capabilities"], "allowPrivilegeEscalation": own["allowPrivilegeEscalation"], **whole}
    wanted = {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False, "runAsNonRoot": True}
    if any(rights.get(name) != value for name, value in wanted.items()):
        raise StoryError(f"worker {pod['metadata']['name']} is no restricted pod: {rights}")
    return json.dumps(rights, sort_keys=True)
