"""The story on a cluster of its own: `make e2e-sandbox`."""

import json
import sys
from typing import Any

from cluster.choose import open_cluster
from cluster.folders import STATE
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from installation import Installation, evidence, refuse_used_cluster
from sandboxed.manifests import NAMESPACE, POOL, chart_values, namespaces
from sandboxed.story import Story
from scene import Scene

REPORT = "sandbox.json"
FAILURE = "sandbox-failure.txt"


def run(say: Say) -> dict[str, Any]:
    """Bring up a cluster with the operator and tell the story on it."""
    folder = STATE / "sandboxed"
    folder.mkdir(parents=True, exist_ok=True)
    with open_cluster(mounts=[folder], nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        scene = Scene(cluster, namespace=NAMESPACE, name=POOL, say=say)
        story = Story(scene, folder=folder)
        try:
            installation.load_image()
            # The namespaces first: the chart makes a Role in one.
            scene.apply(*namespaces())
            installation.install(chart_values())
            installation.wait()
            return {"cluster": cluster.description, **story.play()}
        except Exception:
            (STATE / FAILURE).write_text(evidence(cluster, namespace=NAMESPACE))
            raise
        finally:
            say("cleaning up")
            story.close()
            installation.remove()


def problems(report: dict[str, Any]) -> list[str]:
    """What is not as it should be, in words."""
    hostile, edit, gvisor = report["hostile"], report["edit"], report["gvisor"]
    bad = {
        **{f"hostile.{name}": hostile[name] for name in ("escaped", "forged", "otherwise", "failed", "workers_lost")},
        **{f"gvisor.{name}": gvisor.get(name, 0) for name in ("escaped", "forged", "otherwise", "failed")},
        "neighbours.failed": report["neighbours"]["failed"],
        "edit.of_two_versions": edit["of_two_versions"],
        "edit.by_the_old_code_after_it": edit["by_the_old_code_after_it"],
    }
    found = [f"{name}: {number}" for name, number in bad.items() if number]
    if hostile["reached_without_a_sandbox"] != hostile["tried_without_a_sandbox"]:
        found.append("without a sandbox not all was reached, so that nothing would be found with it")
    if len(edit["by_version"]) != 2 or not edit["after_the_announcement"]:
        found.append(f"the edit was not seen: {edit}")
    return found


def play() -> int:
    """Tell the story; the exit status is 0 only when nothing escaped, and no neighbour failed."""
    report = run(say=timed_lines())
    (STATE / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    print(f"numbers: {STATE / REPORT}")
    bad = problems(report)
    for line in bad:
        print(f"error: {line}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(exit_status(play, evidence=STATE / FAILURE))
