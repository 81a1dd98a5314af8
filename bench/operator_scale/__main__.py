"""Runs the benchmark in a network of its own: all of it is loopback, the pods' addresses too, and ends with the run.

python -m operator_scale --pools 50
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table
from support.operator_process import ACCOUNT

from cluster import binaries
from cluster.control_plane import ControlPlane
from cluster.folders import REPOSITORY
from cluster.kwok import PATIENT, Kwok
from cluster.processes import ClusterError, Daemon, kill, output_of
from cluster.progress import Say, timed_lines
from operator_scale.api import Api
from operator_scale.audit import Audit
from operator_scale.machine import Programs
from operator_scale.phases import (
    ALONE,
    WITH_OPERATOR,
    Patience,
    clear,
    measure_alone,
    measure_operator,
    read_made,
)
from operator_scale.under_test import OperatorUnderTest

RESULT: Final = REPOSITORY / ".rewardpool" / "bench" / "operator.json"
CRD: Final = REPOSITORY / "crds" / "rewardpool.dev_rewardpools.yaml"
PODS: Final = IPv4Network("10.244.0.0/16")
API_SERVER: Final = IPv4Address("10.0.0.1")
NODES: Final = 20
AIMS: Final = {
    "ratio": 1.3,
    "api_writes_a_pool": 7,
    "reconcile_own_p99_ms": 500,
    "cpu_seconds": 25,
    "rss_mb": 400,
    "api_writes_idle_60s": 0,
}
PURPOSES: Final = {
    "create secrets": "the scoring key, which trainers read, and the key of the routers' lists, which they do not",
    "create services": "the pool's URL; names the Secrets as owners, by which their deletion is noticed",
    "create deployments": "the routers, and the workers",
    "create configmaps": "the files that workers and routers mount, once for all pools of a namespace",
    "patch pods/status": "the router's readiness: its list is right",
    "patch rewardpools/status": "what users see: it starts, all its workers serve; some do, where not all come at once",
    "create poddisruptionbudgets": "what a node's drain may take of the workers, once several serve",
    "patch poddisruptionbudgets": "the same, where more serve since",
}
"""Write -> what it is for."""


def into_own_network(arguments: Sequence[str]) -> None:
    """Become the same program in a new network namespace, which the kernel removes with its last process."""
    flags = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    command = ["unshare", *flags, "--", sys.executable, "-m", "operator_scale", "--inside", *arguments]
    os.execvp(command[0], command)


def make_network() -> None:
    """Loopback, an address for the API server, and every pod's address at home on this machine."""
    output_of("ip", "link", "set", "lo", "up")
    output_of("ip", "address", "add", f"{API_SERVER}/32", "dev", "lo")
    output_of("ip", "route", "add", "local", str(PODS), "dev", "lo")


async def run(given: argparse.Namespace, folder: Path, say: Say) -> dict[str, Any]:
    """The whole measurement."""
    audit = Audit(folder, user=f"system:serviceaccount:{WITH_OPERATOR}:{ACCOUNT}")
    flags = {**PATIENT, "kube-apiserver": audit.flags}
    gpus_per_node = -(-given.pools * given.pods // NODES) + 8
    plane = ControlPlane(
        folder / "plane", scheduler=True, manifests=[CRD], address=str(API_SERVER), flags=flags, say=say
    )
    with plane, Kwok(plane, nodes=NODES, gpus=gpus_per_node, pods=PODS, say=say):
        patience = Patience(say=say, deadline_seconds=given.deadline_seconds)
        for namespace in (WITH_OPERATOR, ALONE):
            plane.kubectl("create", "namespace", namespace)
        log = folder / "stand-in-fleet.log"
        fleet = Daemon("StandInFleet", [sys.executable, "-m", "operator_scale.stand_in_fleet"], log=log)
        operator = OperatorUnderTest(plane, namespace=WITH_OPERATOR, profile=given.profile)
        try:
            async with Api(plane) as api:
                await patience.until(operator.answers, of=1, what="operators answer")
                programs = Programs({fleet.pid: "StandInFleet", operator.daemon.pid: "operator"})
                say(f"{given.pools} pools of {given.pods} workers and a router are made at once")
                figures = await measure_operator(
                    api,
                    operator,
                    audit,
                    programs,
                    pools=given.pools,
                    workers=given.pods,
                    idle_seconds=given.idle_seconds,
                    patience=patience,
                )
                made = await read_made(api)
                operator.end()
                if not given.operator_only:
                    say("the operator is ended; its pools are deleted")
                    await clear(api, patience)
                    say(f"{len(made.deployments)} Deployments and {len(made.services)} Services are made alone")
                    figures |= await measure_alone(api, made, programs, patience)
                    figures["ratio"] = figures["all_ready_seconds"] / figures["deployments_alone_seconds"]
        finally:
            kill([operator.daemon, fleet])
    return {"pools": given.pools, "pods": made.pods, "cores": psutil.cpu_count(), **figures}


def rounded(value: Any) -> Any:
    """The figures without digits that mean nothing."""
    match value:
        case float():
            return round(value, 2)
        case dict():
            return {name: rounded(entry) for name, entry in value.items()}
    return value


def show(result: dict[str, Any], *, aims: dict[str, float]) -> None:
    """Print the table."""
    table = Table("figure", "measured", "aim", title=f"{result['pools']} pools, {result['pods']} pods")
    for name, value in result.items():
        table.add_row(name, json.dumps(value), f"<= {aims[name]:g}" if name in aims else "")
    Console().print(table)
    writes = Table("write", "a pool", "what for", title="writes until all pools were Ready")
    for name, count in result["api_writes"].items():
        writes.add_row(name, f"{count / result['pools']:.2f}", PURPOSES.get(name, ""))
    Console().print(writes)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="operator_scale",
        description="What the operator adds to Kubernetes' own work.",
        epilog='example: make bench-operator BENCH_ARGS="--pools 50 --idle-seconds 10"',
    )
    parser.add_argument("--pools", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=4, help="workers of each pool; its router is one pod more")
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--deadline-seconds", type=float, default=600.0, help="of each wait")
    parser.add_argument("--operator-only", action="store_true", help="leave out the Deployments alone, and the ratio")
    parser.add_argument("--profile", type=Path, help="have cProfile write where the operator's time goes")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    say = timed_lines()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left, as at Ctrl-C
    try:
        if not given.inside:
            # Building takes the network that is left behind.
            binaries.ensure(*binaries.CONTROL_PLANE, "kwok", say=say)
            into_own_network(sys.argv[1:])
        make_network()
        with tempfile.TemporaryDirectory(prefix="rewardpool-bench-") as folder:
            result = rounded(asyncio.run(run(given, Path(folder), say)))
    except (binaries.BuildError, ClusterError) as error:
        sys.exit(f"error: {error}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    show(result, aims=AIMS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
