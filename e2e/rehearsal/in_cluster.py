"""Chart, CRD, operator, routers and workers to the later version and back by helm, under jobs of both versions."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cluster import binaries
from cluster.choose import open_cluster
from cluster.contract import Cluster
from cluster.folders import STATE
from cluster.processes import ClusterError
from cluster.progress import Say
from faults import manifests
from faults.manifests import NAMESPACE, POOL, PROGRAMS
from faults.stage import ANSWER_SECONDS, Stage
from faults.tally import TrafficLog
from first_minute import user_environment
from installation import IMAGE, Installation, evidence, refuse_used_cluster
from overlay import chart_image
from rehearsal.later_version import RENAMED
from rehearsal.packages import Packages
from rehearsal.streams import Changes, Row
from scene import StoryError

WHERE: Final = "a cluster"
LATER_IMAGE: Final = "localhost/rewardpool:e2e-later"
LATER_JOB: Final = "traffic-later"
RATE: Final = 20.0
STEADY_SECONDS: Final = 5.0
UPGRADE_SECONDS: Final = 240.0
COMMAND_SECONDS: Final = 240.0
FAILURE: Final = STATE / "rehearsal-failure.txt"


def rows(
    packages: Packages, clients: Mapping[str, Path], scratch: Path, *, say: Say
) -> tuple[list[Row], dict[str, Any]]:
    """What became of the samples of both jobs, and what was said on the way."""
    with open_cluster(mounts=[STATE], nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        stage = Stage(cluster, installation, folder=STATE, rate=RATE, say=say)
        try:
            said: dict[str, Any] = {"image_megabytes": _load_images(cluster, installation, packages, scratch / "image")}
            return Upgrade(stage, packages, clients, scratch, said).play()
        except (StoryError, ClusterError):
            FAILURE.write_text(evidence(cluster, namespace=NAMESPACE))
            say(f"what it looked like: {FAILURE}")
            raise
        finally:
            stage.attempt("delete", "pod", LATER_JOB, "--ignore-not-found", "--timeout=60s")
            stage.close()
            installation.remove()


def _load_images(cluster: Cluster, installation: Installation, packages: Packages, context: Path) -> dict[str, float]:
    """Give the nodes the images of both versions; returns the archives' sizes, by version."""
    (context / "later").mkdir(parents=True)
    [wheel] = packages.folder.glob(f"*-{packages.later}-*.whl")
    shutil.copy(wheel, context / "later")
    archives = {packages.now: installation.build_image()}
    file = "e2e/rehearsal/Containerfile"
    archives[packages.later] = installation.build_image(LATER_IMAGE, container_file=file, context=context, base=IMAGE)
    for archive in archives.values():
        cluster.load_image(archive)
    return {version: round(archive.stat().st_size / 1e6, 1) for version, archive in archives.items()}


class Upgrade:
    """The way there and back of one pool, whose images are the operator's own."""

    def __init__(
        self, stage: Stage, packages: Packages, clients: Mapping[str, Path], scratch: Path, said: dict[str, Any]
    ) -> None:
        self._stage = stage
        self._packages = packages
        self._clients = clients
        self._scratch = scratch
        self._changes = Changes(WHERE)
        self._said = said

    def play(self) -> tuple[list[Row], dict[str, Any]]:
        """All of it; raises `StoryError` where something does not come true."""
        stage, now, later = self._stage, self._packages.now, self._packages.later
        stage.open(workers=2, routers=2, chart=chart_of(self._packages.tree))
        stage.change({"engine": {"image": None}, "router": {"image": None}})
        stage.settle()
        jobs = {now: TrafficLog(STATE / "traffic"), later: self._later_job()}
        with self._during("nothing", now):
            time.sleep(STEADY_SECONDS)
        self._note("before")
        with self._during("helm upgrade", later):
            values = manifests.chart_values(image=chart_image(LATER_IMAGE))
            stage.installation.install(values, chart=chart_of(self._packages.later_tree))
            self._until_routers_run(LATER_IMAGE)
        self._note("upgraded")
        self._said["renamed_field"] = self._refused_field()
        self._scale_and_restart(later, by=now, image=LATER_IMAGE)
        with self._during("helm rollback", now):
            stage.installation.roll_back()
            self._until_routers_run(IMAGE)
        self._note("rolled_back")
        self._scale_and_restart(now, by=later, image=IMAGE)
        return [row for version, log in jobs.items() for row in self._rows(version, log)], self._said

    def _scale_and_restart(self, version: str, *, by: str, image: str) -> None:
        """A worker more, which is like those that there are; then new ones, asked for by the command line of `by`."""
        stage = self._stage
        before = images(stage, "worker")
        with self._during("a worker more", version):
            stage.change({"replicas": stage.pool()["spec"]["replicas"] + 1})
            stage.settle()
        if images(stage, "worker") != before:
            raise StoryError(f"workers run {images(stage, 'worker')}, and nobody asked for others than {before}")
        with self._during(f"restart, by a command line of {by}", version, asked=True):
            self._rewardpool(by, "restart", f"{NAMESPACE}/{POOL}")
            stage.until(
                lambda: images(stage, "worker") == {image} and stage.is_settled(),
                what=f"all workers run {image}",
                deadline_seconds=UPGRADE_SECONDS,
            )

    def _until_routers_run(self, image: str) -> None:
        stage = self._stage
        stage.installation.wait()
        stage.until(
            lambda: images(stage, "router") == {image} and stage.is_settled(),
            what=f"all routers run {image}",
            deadline_seconds=UPGRADE_SECONDS,
        )

    def _during(self, change: str, version: str, *, asked: bool = False) -> Any:
        self._stage.say(f"{version}: {change}")
        return self._changes.during(
            change, server=version, workers=lambda: frozenset(self._stage.uids("worker")), asked=asked
        )

    def _later_job(self) -> TrafficLog:
        """A second job, on the later version's image."""
        folder = STATE / LATER_JOB
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        folder.chmod(0o777)  # the job's pod is not root
        command = ("faults.traffic", f"{NAMESPACE}/{POOL}", str(folder), f"--rate={RATE:g}")
        pod = manifests.asking_pod(LATER_JOB, command, {"faults": PROGRAMS}, folder, in_namespace=NAMESPACE)
        pod["spec"]["containers"][0]["image"] = LATER_IMAGE
        self._stage.apply(pod)
        log = TrafficLog(folder)
        self._stage.until(lambda: log.flows, what="the later job's samples are scored", deadline_seconds=90)
        return log

    def _rows(self, version: str, log: TrafficLog) -> list[Row]:
        due = log.due(self._changes.found[0].since, self._changes.found[-1].until)
        with suppress(StoryError):  # what has no answer then is counted as lost
            self._stage.until(
                lambda: log.answers().keys() >= set(due), what="all are answered", deadline_seconds=ANSWER_SECONDS
            )
        return self._changes.rows(version, log)

    def _note(self, when: str) -> None:
        """Keep what both command lines say of operator and CRD, and what the pool has in the renamed field."""
        doctors = {version: self._doctor(version) for version in self._clients}
        self._said[when] = {"doctor": doctors, RENAMED: self._stage.pool()["spec"]["router"].get(RENAMED)}

    def _doctor(self, version: str) -> dict[str, str]:
        findings = json.loads(self._run(version, "doctor", "--cluster", "--json").stdout)["findings"]
        return {line["name"]: line["found"] for line in findings if line["name"].startswith(("CRD", "operator"))}

    def _rewardpool(self, version: str, *words: str) -> None:
        done = self._run(version, *words)
        if done.returncode:
            raise StoryError(f"kubectl rewardpool {' '.join(words)} of {version}: {done.stdout}{done.stderr}")

    def _run(self, version: str, *words: str) -> subprocess.CompletedProcess[str]:
        programs = self._clients[version] / "bin"
        variables = user_environment(os.environ, programs=programs, state=self._scratch / "no-pools")
        variables |= {"KUBECONFIG": str(self._stage.cluster.kubeconfig)}
        # As a plugin: kubectl finds the wheel's program on the PATH.
        command: list[str | Path] = [binaries.ensure("kubectl")["kubectl"], "rewardpool", *words]
        return subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )

    def _refused_field(self) -> str:
        try:
            self._stage.apply(manifests.pool(workers=2, routers=2))
        except ClusterError as error:
            return str(error)[-300:]
        raise StoryError(f"the later CRD takes spec.router.{RENAMED}, which it does not have")


def chart_of(tree: Path) -> Path:
    """The chart of an unpacked source archive."""
    return tree / "charts" / "rewardpool"


def images(stage: Stage, component: str) -> set[str]:
    """The images that they run."""
    return {pod["spec"]["containers"][0]["image"] for pod in stage.pods(component)}
