"""Keep a cluster while developing.

python -m cluster up      start one in the background, print its KUBECONFIG
python -m cluster down    remove it
python -m cluster run     the same in the foreground, until Ctrl-C
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType

from cluster.binaries import BuildError
from cluster.choose import open_cluster
from cluster.folders import REPOSITORY, STATE
from cluster.leftovers import process_started
from cluster.processes import ClusterError

_KEPT = STATE / "kept.json"
"""Who keeps the developer's cluster: {"pid", "started", "kubeconfig"}; there only while it is up."""

_LOG = STATE / "kept.log"
_UP_SECONDS = 2400.0
"""The first start may build all of Kubernetes."""
_DOWN_SECONDS = 120.0


def run(gpus: int) -> None:
    """Hold a cluster until Ctrl-C or SIGTERM."""
    if (kept := _kept()) is not None:
        raise ClusterError(f"one is up already (process {kept['pid']}): python -m cluster down")
    signal.signal(signal.SIGTERM, _interrupt)
    with open_cluster() as cluster:
        if gpus:
            cluster.fake_gpus(gpus)
        me = {"pid": os.getpid(), "started": process_started(os.getpid()), "kubeconfig": str(cluster.kubeconfig)}
        try:
            _KEPT.parent.mkdir(parents=True, exist_ok=True)
            _KEPT.write_text(json.dumps(me))
            print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
            signal.pause()
        finally:
            _KEPT.unlink(missing_ok=True)


def up(gpus: int) -> None:
    """Start `run` in the background and wait until the cluster answers."""
    if (kept := _kept()) is not None:
        print(f"export KUBECONFIG={kept['kubeconfig']}")
        return
    STATE.mkdir(parents=True, exist_ok=True)
    with _LOG.open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "cluster", "run", f"--gpus={gpus}"],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY / "e2e")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _UP_SECONDS
    shown = 0
    while (kept := _kept()) is None:
        shown = _show_news(shown)
        if keeper.poll() is not None:
            raise ClusterError(f"the cluster did not start; its words are above and in {_LOG}")
        if time.monotonic() > deadline:
            keeper.terminate()
            raise ClusterError(f"the cluster did not start within {_UP_SECONDS:.0f} s; see {_LOG}")
        time.sleep(0.2)
    _show_news(shown)
    print(f"export KUBECONFIG={kept['kubeconfig']}")


def down() -> None:
    """End the kept cluster and wait until everything of it is gone."""
    kept = _kept()
    if kept is None:
        print("no cluster is up")
        return
    os.kill(int(kept["pid"]), signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while process_started(int(kept["pid"])) == kept["started"]:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"process {kept['pid']} still removes the cluster after {_DOWN_SECONDS:.0f} s; see {_LOG}"
            )
        time.sleep(0.1)
    print("the cluster is gone")


def _kept() -> dict[str, str] | None:
    try:
        kept: dict[str, str] = json.loads(_KEPT.read_text())
    except FileNotFoundError:
        return None
    return kept if process_started(int(kept["pid"])) == kept["started"] else None


def _show_news(shown: int) -> int:
    news = _LOG.read_bytes()[shown:]
    sys.stderr.write(news.decode(errors="replace"))
    return shown + len(news)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["up", "down", "run"])
    parser.add_argument("--gpus", type=int, default=8, help="GPUs that the node says it has (default 8)")
    arguments = parser.parse_args()
    try:
        with suppress(KeyboardInterrupt):
            match arguments.command:
                case "up":
                    up(arguments.gpus)
                case "run":
                    run(arguments.gpus)
                case "down":
                    down()
    except (ClusterError, BuildError, TimeoutError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
