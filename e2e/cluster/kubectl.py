"""kubectl as a function, and the kubeconfig files it reads."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import yaml

from cluster.processes import output_of, wait_until

_ESTABLISHED_SECONDS = 30.0


def kubectl(
    program: str | Path, kubeconfig: Path, *args: str, data: str | None = None, deadline_seconds: float = 60.0
) -> str:
    """Run kubectl and return what it prints; `data` becomes its standard input.

    Raises `ClusterError` with kubectl's own words when it fails or takes longer than `deadline_seconds`.
    """
    # Its discovery cache is keyed by host and port only, and a new cluster may get an old one's port.
    environment = {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(kubeconfig.parent / "kubectl-cache")}
    return output_of(program, *args, data=data, deadline_seconds=deadline_seconds, environment=environment)


def wait_for_crd(run: Callable[..., str], name: str) -> None:
    """Return when the API server serves the CRD `name`; `run` is a cluster's `kubectl`. Raises `ClusterError`.

    Trap: `kubectl wait --for=condition=Established` ends with an error, instead of waiting, when it looks in the
    moments after the CRD was made, in which its status has `conditions: null`.
    """

    def established() -> bool:
        status = json.loads(run("get", "crd", name, "-o", "json")).get("status", {})
        conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
        return conditions.get("Established") == "True"

    wait_until(established, what=f"the API server serves {name}", deadline_seconds=_ESTABLISHED_SECONDS)


def write_kubeconfig(path: Path, *, url: str, authority: Path, token: str) -> Path:
    """Write a kubeconfig (mode 0600) that trusts the certificate `authority` and presents the bearer `token`."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority.read_bytes()).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rewardpool", "cluster": cluster}],
        "users": [{"name": "rewardpool", "user": {"token": token}}],
        "contexts": [{"name": "rewardpool", "context": {"cluster": "rewardpool", "user": "rewardpool"}}],
        "current-context": "rewardpool",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path
