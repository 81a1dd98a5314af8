"""Record a run on a cluster, or draw the dashboards of the recorded one."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from autoscaling.manifests import NAMESPACE
from autoscaling.play import FAILURE, play_all
from cluster.choose import open_cluster
from cluster.folders import REPOSITORY, STATE
from cluster.packages import DASHBOARD_PACKAGES, require
from cluster.progress import Say, timed_lines
from dashboards.panels import dashboards
from dashboards.picture import draw
from dashboards.prometheus import prometheus
from dashboards.recording import RECORDED, asking, keep, recorder, restore
from exit_status import exit_status
from installation import Installation, refuse_used_cluster

PICTURES: Final = REPOSITORY / "docs" / "images"


def record(say: Say) -> int:
    """Play the job that trains, with Prometheus beside it, and keep the recording."""
    STATE.mkdir(parents=True, exist_ok=True)
    with open_cluster(nodes=1, say=say) as cluster, tempfile.TemporaryDirectory() as scratch:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        try:
            installation.load_image()
            with recorder(cluster, namespace=NAMESPACE, folder=Path(scratch), say=say):
                play_all(cluster, installation, folder=STATE, say=say, only="training")
            keep(Path(scratch), RECORDED)
        finally:
            installation.remove()
    print(f"recorded: {RECORDED} ({RECORDED.stat().st_size / 1000:.0f} kB)")
    return 0


def draw_all(say: Say) -> int:
    """Draw each dashboard as it is for the recorded run."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run = restore(RECORDED, folder)
        with prometheus(run.storage, log=folder / "prometheus.log") as server:
            for dashboard in dashboards():
                path = PICTURES / f"dashboard-{dashboard.name}.png"
                draw(dashboard, asking(server, run), path, start=run.start, end=run.end)
                say(f"drawn: {path.relative_to(REPOSITORY)}")
    return 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--record", action="store_true", help="a new run, on a cluster (5 minutes; needs the same as e2e)"
    )
    given = parser.parse_args()
    say = timed_lines()
    require(DASHBOARD_PACKAGES, say=say)
    return exit_status(lambda: record(say) if given.record else draw_all(say), evidence=STATE / FAILURE)


if __name__ == "__main__":
    sys.exit(main())
