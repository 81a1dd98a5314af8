"""The operator as a process of its own, with exactly the rights that `permissions.RULES` lists."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from support.processes import RealProcess

from cluster.control_plane import ControlPlane
from rewardpool_operator.kubernetes.permissions import RULES

ACCOUNT = "rewardpool-operator"


def restricted_kubeconfig(plane: ControlPlane, namespace: str) -> Path:
    """Credentials of a ServiceAccount that may do in one namespace what the operator needs, and nothing else."""
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
    manifests: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": list(RULES)},
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
    return plane.kubeconfig_for(f"operator-{namespace}", token)


def operator_process(kubeconfig: Path, *, namespace: str, log: Path) -> RealProcess:
    """Not started yet: a context manager."""
    program = f"from rewardpool_operator.main import run; run(namespaces={json.dumps([namespace])})"
    return RealProcess([sys.executable, "-c", program], log=log, env={"KUBECONFIG": str(kubeconfig)}, cwd=log.parent)
