"""`make e2e-first-pool`: a pool of four lines and what kubectl says of it, on a real cluster; the docs have a copy.

The operator's image has a reward function in it, so that a pool need only name the function. What was typed, and what
came of it, goes to `.rewardpool/e2e/first-pool.txt`.
"""

import sys
from pathlib import Path

from cluster.choose import open_cluster
from cluster.contract import Cluster
from cluster.folders import REPOSITORY, STATE
from cluster.processes import ClusterError
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from installation import IMAGE as RELEASE_IMAGE
from installation import Installation, evidence, refuse_used_cluster
from overlay import chart_image

EXAMPLE = REPOSITORY / "examples" / "function"
IMAGE = "localhost/rewards:e2e"
POOL = "rules"
TRANSCRIPT = "first-pool.txt"
FAILURE = "first-pool-failure.txt"
COMMANDS = (
    "apply -f pool.yaml",
    f"wait --for=condition=Ready rewardpool/{POOL} --timeout=120s",
    "get rewardpools",
    "get rp -o wide",
    f"get deployments,pods,services -l rewardpool.dev/pool={POOL}",
    "explain rewardpool.spec.model.source",
    f"scale rewardpool/{POOL} --replicas=0",
    f"wait --for=condition=Ready rewardpool/{POOL} --timeout=120s",
    "get rewardpools",
    f"delete rewardpool {POOL}",
)


def typed(cluster: Cluster, command: str) -> str:
    """A command as it is typed, with what kubectl says."""
    arguments = [str(EXAMPLE / "pool.yaml") if argument == "pool.yaml" else argument for argument in command.split()]
    said = cluster.kubectl(*arguments, deadline_seconds=130)
    return f"$ kubectl {command}\n{said.rstrip()}\n"


def build_function_image(installation: Installation, tag: str) -> Path:
    """Build the project's image with the example's function in it; returns the archive."""
    installation.build_image()
    container_file = str((EXAMPLE / "Containerfile").relative_to(REPOSITORY))
    return installation.build_image(tag, container_file=container_file, context=EXAMPLE, base=RELEASE_IMAGE)


def tell(say: Say) -> str:
    """Bring up a cluster with the operator, and return the transcript."""
    with open_cluster(nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        try:
            cluster.load_image(build_function_image(installation, IMAGE))
            installation.install({"image": chart_image(IMAGE)})
            installation.wait()
            manifest = (EXAMPLE / "pool.yaml").read_text()
            return "\n".join([f"$ cat pool.yaml\n{manifest}", *(typed(cluster, command) for command in COMMANDS)])
        except ClusterError:
            (STATE / FAILURE).write_text(evidence(cluster, namespace="default"))
            raise
        finally:
            installation.remove()


def main() -> int:
    """Write the transcript and print it."""
    transcript = tell(timed_lines())
    (STATE / TRANSCRIPT).write_text(transcript)
    print(transcript)
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main, evidence=STATE / FAILURE))
