"""kubectl as a function, and the kubeconfig files it reads."""

import base64
from pathlib import Path

import yaml

from cluster.processes import output_of


def kubectl(
    program: str | Path, kubeconfig: Path, *args: str, data: str | None = None, deadline_seconds: float = 60.0
) -> str:
    """Run kubectl and return what it prints; `data` becomes its standard input.

    Raises `ClusterError` with kubectl's own words when it fails or takes longer than `deadline_seconds`.
    """
    # Its discovery cache is keyed by host and port only, and a new cluster may get an old one's port.
    environment = {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(kubeconfig.parent / "kubectl-cache")}
    return output_of(program, *args, data=data, deadline_seconds=deadline_seconds, environment=environment)


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
