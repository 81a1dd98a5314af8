"""The pool, its traffic and the training job on a cluster, and the pods of all of them to break."""

import copy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster.breaking import Breaker
from cluster.contract import Cluster
from cluster.folders import REPOSITORY
from cluster.processes import ClusterError
from cluster.progress import Say
from faults import manifests
from faults.manifests import POOL, TRAFFIC
from faults.stage import is_settled
from faults.tally import TrafficLog
from installation import NAMESPACE as OPERATOR_NAMESPACE
from installation import Installation
from machine import ENGINE_IMAGE, MODELS, QUICKSTART, environment
from overlay import training_config, training_job
from scene import Object, Scene, first_status, node_of

NAMESPACE = "rewardpool-soak"
TRAINER = "trainer"
WORKERS, ROUTERS = 3, 2
RANKS = 2
RATE = 20.0
"""Samples per second of the traffic; the training job asks for its own."""
SETTLE_SECONDS = 180.0
"""For the pool to come to its last spec when nothing breaks any more."""
TRAINS_SECONDS = 300.0
STEPS = 1_000_000
DEADLINE_SECONDS = 120.0
"""The client's default for one sample."""


class Stage(Scene):
    """The pool, called `POOL`, in a namespace of its own."""

    def __init__(self, cluster: Cluster, installation: Installation, *, folder: Path, say: Say) -> None:
        super().__init__(cluster, namespace=NAMESPACE, name=POOL, say=say)
        self.installation = installation
        self.breaker: Breaker = cluster.breaker()
        self.traffic_folder, self.train_folder, self.journal, self.lives = (
            folder / name for name in ("traffic", "train", "journal", "lives")
        )
        self._traffic = TrafficLog(self.traffic_folder)
        self._upgrades = 0
        self.asked_until = 0.0
        """When the traffic was told to stop, in seconds since 1970."""

    def open(self) -> None:
        """Bring up operators, pool, traffic and training job, and return when all of them are at work."""
        for made in (self.traffic_folder, self.train_folder, self.journal, self.lives):
            made.mkdir(parents=True)
            made.chmod(0o777)  # pods write there that are not root
        self.apply(*manifests.namespace(NAMESPACE))
        self.upgrade()
        self.installation.wait()
        self.apply(pool(self.journal))
        self.until(self.is_settled, what="the pool serves", deadline_seconds=120)
        node = node_of(self.pods("worker")[0])
        self.apply(*manifests.traffic(self.traffic_folder, node=node, rate=RATE, in_namespace=NAMESPACE))
        self.apply(*trainer(self.train_folder, self.lives))
        self.until(lambda: self._traffic.flows, what="samples are scored", deadline_seconds=120)
        self.until(lambda: self.steps() > 0, what="the job trains", deadline_seconds=TRAINS_SECONDS)

    def upgrade(self) -> None:
        """Install the operators, or other ones instead; they go to the API server by the way that can be broken."""
        self._upgrades += 1
        proxy = self.breaker.proxy()
        variables = {"KUBERNETES_SERVICE_HOST": proxy.address, "KUBERNETES_SERVICE_PORT": str(proxy.port)}
        values = manifests.chart_values(
            in_namespace=NAMESPACE,
            env=[{"name": name, "value": value} for name, value in variables.items()],
            podAnnotations={"soak/upgrade": str(self._upgrades)},
        )
        self.installation.install(values)

    def end(self) -> None:
        """Let the pool come to rest, and then the asking, with the answers to what was asked.

        Raises:
            StoryError: The pool did not come to its last spec, or one who asks did not end.
        """
        try:
            self.until(self.is_settled, what="the pool is as its last spec says", deadline_seconds=SETTLE_SECONDS)
            seen = self.witnessed()
            self.until(lambda: self.witnessed() > seen, what="the job trains again", deadline_seconds=TRAINS_SECONDS)
        finally:
            self.asked_until = time.time()
            for pod in (TRAFFIC, TRAINER):
                self.kubectl("delete", "pod", pod, "--wait=false", f"--grace-period={DEADLINE_SECONDS:.0f}")
            for pod in (TRAFFIC, TRAINER):
                self.until(
                    lambda pod=pod: not self.phase(pod),  # type: ignore[misc]
                    what=f"{pod} has its answers",
                    deadline_seconds=DEADLINE_SECONDS + 15,
                )

    def close(self) -> None:
        """Remove all of it, and let the operators go to the API server by themselves again."""
        for what in (["pod", "--all"], ["rewardpools", "--all"]):
            self.attempt("delete", *what, "--ignore-not-found", "--timeout=60s")
        self.attempt("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")

    def is_settled(self) -> bool:
        """Whether the pool is as its spec says; an API server that does not answer does not say so."""
        try:
            return is_settled(self.objects("rewardpools,pods,deployments"))
        except ClusterError:
            return False

    def steps(self) -> int:
        """Steps of training whose figures are written."""
        lines = self.train_folder / "metrics.jsonl"
        return len(lines.read_text().splitlines()) if lines.exists() else 0

    def witnessed(self) -> int:
        """Bytes that the training job's processes wrote about what they ask and get."""
        return sum(path.stat().st_size for path in self.lives.iterdir())

    def operators(self) -> list[Object]:
        """The operators' pods."""
        return self.objects("pods", namespace=OPERATOR_NAMESPACE)

    def running(self, component: str) -> list[Object]:
        """The pods of a component whose first container runs; `operator` and `trainer` are components too."""
        match component:
            case "operator":
                pods = self.operators()
            case "trainer":
                pods = [pod for pod in self.objects("pods") if pod["metadata"]["name"] == TRAINER]
            case _:
                pods = self.pods(component)
        return [pod for pod in pods if has_begun(pod)]


def has_begun(pod: Object) -> bool:
    """Whether its first container runs."""
    return "running" in first_status(pod).get("state", {})


def pool(journal: Path) -> Object:
    """The pool of the faults, whose workers write what they scored into the folder `journal`."""
    made = copy.deepcopy(manifests.pool(in_namespace=NAMESPACE, workers=WORKERS, routers=ROUTERS))
    spec = made["spec"]
    spec["engine"]["env"].append({"name": "JOURNAL", "value": str(journal)})
    pod = spec["worker"]["podTemplate"]["spec"]
    pod["containers"][0]["volumeMounts"].append({"name": "journal", "mountPath": str(journal)})
    pod["volumes"].append({"name": "journal", "hostPath": {"path": str(journal), "type": "Directory"}})
    # Faults come faster than this, and a rollout that is in their way is not a broken one.
    spec["rollout"]["progressDeadlineSeconds"] = 120
    return made


def trainer(output: Path, lives: Path) -> Sequence[Object]:
    """The quick start's training job on this pool; when a rank dies, torchrun ends, and the kubelet starts it again.

    TRAP: `torchrun --max-restarts` keeps the store in which ranks of gloo look for each other's addresses, and those
    that start again may find addresses of dead ones there: they fail, or wait for the job's whole step deadline.
    """
    made: dict[str, Any] = training_config(
        yaml.safe_load((QUICKSTART / "train.yaml").read_text()),
        folder=QUICKSTART,
        steps=STEPS,
        wait_seconds=DEADLINE_SECONDS,
        output=output,
    )
    made["reward"]["pool"] = f"{NAMESPACE}/{POOL}"
    made["rollout"] |= {"group_size": 4, "max_new_tokens": 24}
    # A policy that learned these scores would write one and the same text, and no score could be another text's.
    made["update"]["learning_rate"] = 1e-7
    made["checkpoint"] = {"every_steps": 2, "keep": 2}
    config = output / "train.yaml"
    config.write_text(yaml.safe_dump(made))
    account, pod = training_job(
        namespace=NAMESPACE,
        trainer=environment("trainer"),
        image=ENGINE_IMAGE,
        config=config,
        read=[REPOSITORY, MODELS],
        write=output.parent,
        ranks=RANKS,
    )
    container = pod["spec"]["containers"][0]
    ranks = ["--standalone", f"--nproc-per-node={RANKS}", "--monitor-interval=0.2"]
    container["command"] = ["torchrun", *ranks, "-m", "soak.trainer", str(config), str(lives)]
    pod["spec"]["restartPolicy"] = "OnFailure"
    container["env"].append({"name": "PYTHONPATH", "value": str(REPOSITORY / "e2e")})
    # Starting again takes tens of seconds of a core each time.
    container["resources"] = manifests.requests(cpu="500m", memory="256Mi")
    pod["spec"]["terminationGracePeriodSeconds"] = int(DEADLINE_SECONDS)
    return account, pod
