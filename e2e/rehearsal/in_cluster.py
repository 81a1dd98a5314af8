"""Chart, CRD, operator, routers and workers to the later version and back by helm, under jobs of both versions.

Helm pulls the charts, and the node the images, from a registry on this machine.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cluster import binaries, images
from cluster.choose import open_cluster
from cluster.folders import STATE
from cluster.processes import ClusterError
from cluster.progress import Say
from cluster.registry import Registry
from faults import manifests
from faults.manifests import ACCOUNT, NAMESPACE, POOL, PROGRAMS
from faults.stage import ANSWER_SECONDS, Stage
from faults.tally import TrafficLog
from first_minute import user_environment
from installation import IMAGE, Installation, evidence, refuse_used_cluster
from rehearsal.later_version import RENAMED
from rehearsal.packages import Packages
from rehearsal.streams import Changes, Row
from scene import StoryError

WHERE: Final = "a cluster"
LATER_IMAGE: Final = "localhost/rewardpool:e2e-later"
REPOSITORY: Final = "rewardpool"
"""Of the images, in the registry."""
CHARTS: Final = "charts"
"""The same of the charts."""
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
            with cluster.registry() as registry:
                said = _fill(registry, installation, packages, scratch / "image")
                return Upgrade(stage, packages, clients, scratch, registry, said).play()
        except (StoryError, ClusterError):
            FAILURE.write_text(evidence(cluster, namespace=NAMESPACE))
            say(f"what it looked like: {FAILURE}")
            raise
        finally:
            jobs = map(job_name, clients)
            stage.attempt("delete", "pod", *jobs, "--ignore-not-found", "--timeout=60s")
            stage.close()
            installation.remove()


def _fill(registry: Registry, installation: Installation, packages: Packages, context: Path) -> dict[str, Any]:
    """Push charts and images of both versions; returns how long it took, and the archives' sizes."""
    (context / "later").mkdir(parents=True)
    [wheel] = packages.folder.glob(f"*-{packages.later}-*.whl")
    shutil.copy(wheel, context / "later")
    archives = {packages.now: installation.build_image()}
    file = "e2e/rehearsal/Containerfile"
    archives[packages.later] = installation.build_image(LATER_IMAGE, container_file=file, context=context, base=IMAGE)
    began = time.monotonic()
    for version, image in ((packages.now, IMAGE), (packages.later, LATER_IMAGE)):
        images.push(image, f"{registry.address}/{REPOSITORY}:{version}")
    for tree in (packages.tree, packages.later_tree):
        installation.helm("package", tree / "charts" / "rewardpool", "--destination", context)
    for archive in sorted(context.glob("*.tgz")):
        installation.helm("push", archive, f"oci://{registry.address}/{CHARTS}", "--plain-http")
    return {
        "image_megabytes": {version: round(one.stat().st_size / 1e6, 1) for version, one in archives.items()},
        "push_seconds": round(time.monotonic() - began, 1),
    }


class Upgrade:
    """The way there and back of one pool, whose images are the operator's own."""

    def __init__(
        self,
        stage: Stage,
        packages: Packages,
        clients: Mapping[str, Path],
        scratch: Path,
        registry: Registry,
        said: dict[str, Any],
    ) -> None:
        self._stage = stage
        self._packages = packages
        self._clients = clients
        self._scratch = scratch
        self._registry = registry
        self._changes = Changes(WHERE)
        self._said = said

    def play(self) -> tuple[list[Row], dict[str, Any]]:
        """All of it; raises `StoryError` where something does not come true."""
        stage, now, later = self._stage, self._packages.now, self._packages.later
        stage.apply(*manifests.namespace(NAMESPACE))
        self._install(now)
        stage.installation.wait()
        stage.apply(self._pool())
        stage.until(stage.is_settled, what="the pool serves", deadline_seconds=UPGRADE_SECONDS)
        account = {"name": ACCOUNT, "namespace": NAMESPACE}
        stage.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        jobs = {version: self._job(version) for version in (now, later)}
        with self._during("nothing", now):
            time.sleep(STEADY_SECONDS)
        self._note("before")
        with self._during("helm upgrade", later):
            self._install(later)
            self._until_routers_run(later)
        self._note("upgraded")
        self._said["renamed_field"] = self._refused_field()
        self._scale_and_restart(later, by=now)
        with self._during("helm rollback", now):
            stage.installation.roll_back()
            self._until_routers_run(now)
        self._note("rolled_back")
        self._scale_and_restart(now, by=later)
        return [row for version, log in jobs.items() for row in self._rows(version, log)], self._said

    def _install(self, version: str) -> None:
        """Install or upgrade from the registry, by its name alone: the tag is the chart's, the pull policy too."""
        values = manifests.chart_values(image={"repository": f"{self._registry.address}/{REPOSITORY}"})
        chart = f"oci://{self._registry.address}/{CHARTS}/rewardpool"
        self._stage.installation.install(values, f"--version={version}", "--plain-http", chart=chart)

    def _image(self, version: str) -> str:
        return f"{self._registry.address}/{REPOSITORY}:{version}"

    def _pool(self) -> dict[str, Any]:
        """The pool, on the operator's own image."""
        pool = manifests.pool(workers=2, routers=2)
        for part in ("engine", "router"):
            del pool["spec"][part]["image"]
        return pool

    def _scale_and_restart(self, version: str, *, by: str) -> None:
        """A worker more, which is like those that there are; then new ones, asked for by the command line of `by`."""
        stage = self._stage
        before = images_of(stage, "worker")
        with self._during("a worker more", version):
            stage.change({"replicas": stage.pool()["spec"]["replicas"] + 1})
            stage.settle()
        if images_of(stage, "worker") != before:
            raise StoryError(f"workers run {images_of(stage, 'worker')}, and nobody asked for others than {before}")
        with self._during(f"restart, by a command line of {by}", version, asked=True):
            self._rewardpool(by, "restart", f"{NAMESPACE}/{POOL}")
            stage.until(
                lambda: images_of(stage, "worker") == {self._image(version)} and stage.is_settled(),
                what=f"all workers run {self._image(version)}",
                deadline_seconds=UPGRADE_SECONDS,
            )

    def _until_routers_run(self, version: str) -> None:
        stage, image = self._stage, self._image(version)
        stage.installation.wait()
        stage.until(
            lambda: images_of(stage, "router") == {image} and stage.is_settled(),
            what=f"all routers run {image}",
            deadline_seconds=UPGRADE_SECONDS,
        )

    def _during(self, change: str, version: str, *, asked: bool = False) -> Any:
        self._stage.say(f"{version}: {change}")
        return self._changes.during(
            change, server=version, workers=lambda: frozenset(self._stage.uids("worker")), asked=asked
        )

    def _job(self, version: str) -> TrafficLog:
        """A job on the image of a version."""
        name = job_name(version)
        folder = STATE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        folder.chmod(0o777)  # its pod is not root
        command = ("faults.traffic", f"{NAMESPACE}/{POOL}", str(folder), f"--rate={RATE:g}")
        pod = manifests.asking_pod(name, command, {"faults": PROGRAMS}, folder, in_namespace=NAMESPACE)
        pod["spec"]["containers"][0]["image"] = self._image(version)
        self._stage.apply(pod)
        log = TrafficLog(folder)
        what = f"samples of the job of {version} are scored"
        self._stage.until(lambda: log.flows, what=what, deadline_seconds=UPGRADE_SECONDS)
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
            self._stage.apply(self._pool())
        except ClusterError as error:
            return str(error)[-300:]
        raise StoryError(f"the later CRD takes spec.router.{RENAMED}, which it does not have")


def job_name(version: str) -> str:
    """The name of the job's pod, and of the folder that it writes to."""
    return f"traffic-{version.replace('.', '-')}"


def images_of(stage: Stage, component: str) -> set[str]:
    """The images that they run."""
    return {pod["spec"]["containers"][0]["image"] for pod in stage.pods(component)}
