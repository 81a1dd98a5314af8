"""The operator as a process of its own, with exactly the rights that `permissions` lists."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from support.permissions import LEASE_RULES, RULES
from support.processes import RealProcess

from cluster.control_plane import ControlPlane
from cluster.kubectl import write_kubeconfig

ACCOUNT = "rewardpool-operator"


def restricted_kubeconfig(plane: ControlPlane, namespace: str, *, url: str) -> Path:
    """Credentials of a ServiceAccount that may do in one namespace what the operator needs, and nothing else.

    `url` is where the operator is to find the API server.
    """
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
    manifests: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [*RULES, *LEASE_RULES]},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "roleRef": role_ref,
            "subjects": [subject],
        },
    ]
    metadata = {"name": ACCOUNT, "namespace": namespace}
    documents = yaml.safe_dump_all({**manifest, "metadata": metadata} for manifest in manifests)
    plane.kubectl("apply", "-f", "-", input=documents)
    token = plane.kubectl("create", "token", ACCOUNT, "--namespace", namespace, "--duration=2h").strip()
    path = plane.directory / f"operator-{namespace}.kubeconfig"
    return write_kubeconfig(path, url=url, authority=plane.authority.certificate, token=token)


def operator_process(
    kubeconfig: Path,
    *,
    namespace: str | None = None,
    health_port: int,
    log: Path,
    lease: str | None = None,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> RealProcess:
    """`rewardpool operator run` for a namespace or all, not started yet: a context manager."""
    command = [str(Path(sys.executable).with_name("rewardpool")), "operator", "run"]
    command += [*([f"--namespace={namespace}"] if namespace else []), f"--health-port={health_port}"]
    command += [*([f"--lease={lease}"] if lease else []), *flags]
    return RealProcess(command, log=log, env={"KUBECONFIG": str(kubeconfig), **(env or {})}, cwd=log.parent)
