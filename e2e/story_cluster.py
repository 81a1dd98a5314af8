"""A cluster of its own for a story on vLLM or SGLang: the operator on it, and its evidence and clean-up afterwards."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.choose import open_cluster
from cluster.contract import Cluster
from cluster.folders import STATE
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from installation import Installation, evidence, refuse_used_cluster
from machine import ENGINE_CONTAINER_FILE, ENGINE_IMAGE
from scene import Scene


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a story needs on its cluster.

    Attributes:
        namespace: Of its pools.
        manifests: The namespace, and what else is there before the operator: the chart makes a Role in it.
        chart_values: Of the operator.
        gpus: Faked ones of the node.
        mounts: Folders of this machine that its pods read.
        pod: The pod of the job that it starts; None where it has none.
    """

    namespace: str
    manifests: Sequence[dict[str, Any]]
    chart_values: Mapping[str, Any]
    gpus: int
    mounts: Sequence[Path]
    pod: str | None = None


@contextmanager
def story_cluster(stage: Stage, *, failure: Path, say: Say) -> Iterator[Cluster]:
    """Bring up a cluster with the operator, and remove both afterwards; `failure` gets evidence where a story fails."""
    with open_cluster(mounts=list(dict.fromkeys(stage.mounts)), nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        scene = Scene(cluster, namespace=stage.namespace, name="", say=say)
        try:
            installation.load_image()
            installation.load_image(ENGINE_IMAGE, container_file=ENGINE_CONTAINER_FILE)
            cluster.fake_gpus(stage.gpus)
            scene.apply(*stage.manifests)
            installation.install(stage.chart_values)
            installation.wait()
            yield cluster
        except Exception:
            logs = {"job": ["logs", stage.pod, f"--namespace={stage.namespace}"]} if stage.pod else {}
            failure.write_text(evidence(cluster, namespace=stage.namespace, further=logs))
            raise
        finally:
            say("cleaning up")
            if stage.pod:
                scene.attempt("delete", "pod", stage.pod, "--ignore-not-found", "--wait=false")
            scene.attempt("delete", "rewardpools", "--all", "--timeout=60s")
            scene.attempt("delete", "namespace", stage.namespace, "--ignore-not-found", "--wait=false")
            installation.remove()


def report_story(
    name: str, run: Callable[[Say, Path], dict[str, Any]], *, holds: Callable[[dict[str, Any]], bool]
) -> int:
    """Run a story, write and print its report, and return the exit status.

    Args:
        name: Of the files: NAME.json, and NAME-failure.txt, the path of which `run` gets.
        run: The story.
        holds: Whether a report says that all is as it should be.
    """
    path, failure = STATE / f"{name}.json", STATE / f"{name}-failure.txt"

    def told() -> int:
        report = run(timed_lines(), failure)
        path.write_text(json.dumps(report, indent=2) + "\n")
        print(json.dumps(report, indent=2))
        print(f"numbers: {path}")
        return 0 if holds(report) else 1

    return exit_status(told, evidence=failure)
