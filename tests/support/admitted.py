"""What the default lists of the admission policy have, written apart from it, and the pods that pools become."""

import re
from collections.abc import Iterator
from typing import Any, Final

from pydantic import ValidationError

from rewardpool_api import RewardPool
from rewardpool_operator.kubernetes.render import gateway_deployment, router_deployment, worker_template

_POD: Final = r"spec\.(worker|router|gateway)\.podTemplate"
_CONTAINER: Final = rf"{_POD}\.spec\.(containers|initContainers)\[\]"
_SECURITY: Final = rf"({_CONTAINER}|{_POD}\.spec)\.securityContext"
ON_THE_LISTS: Final = tuple(
    re.compile(line)
    for line in (
        r"spec\.model\.source=hf://org/model",
        r"spec\.model\.type=Teacher",
        r"spec\.(worker|router|gateway|engine)=\{\}",
        r"spec\.engine\.(args|env)=\[\]",
        r"spec\.engine\.args\[\]=(--enforce-eager|--max-num-seqs=2|[0-9.]+)",
        r"spec\.engine\.env\[\]\.name=(TZ|OMP_NUM_THREADS)",
        r"spec\.engine\.env\[\]\.value=.*",
        r"spec\.worker\.gpuResource=nvidia\.com/gpu",
        r"spec\.worker\.(labels|annotations)=\{\}",
        r"spec\.worker\.labels\.kueue\.x-k8s\.io/queue-name=a",
        rf"{_POD}(\.(metadata|spec))?=(None|\{{\}})",
        rf"{_POD}\.metadata\.(labels|annotations)=(None|\{{\}})",
        rf"{_POD}\.metadata\.labels\.kueue\.x-k8s\.io/queue-name=.*",
        rf"{_POD}\.spec\.(affinity|nodeSelector|tolerations|topologySpreadConstraints)[.=\[].*",
        rf"{_POD}\.spec\.(containers|initContainers|volumes)=(None|\[\])",
        rf"{_CONTAINER}\.name=(worker|router|gateway|download)",
        rf"{_CONTAINER}\.resources(\.(requests|limits))?=(None|\{{\}})",
        rf"{_CONTAINER}\.resources\.(requests|limits)\.(cpu|memory|ephemeral-storage)=.*",
        rf"{_SECURITY}=(None|\{{\}})",
        rf"{_SECURITY}\.(runAsNonRoot|readOnlyRootFilesystem)=True",
        rf"{_SECURITY}\.allowPrivilegeEscalation=False",
        rf"{_SECURITY}\.(runAsUser|runAsGroup|fsGroup)=[1-9][0-9]*",
        rf"{_SECURITY}\.fsGroupChangePolicy=(Always|OnRootMismatch)",
        rf"{_SECURITY}\.capabilities\.drop\[\]=ALL",
        rf"{_SECURITY}\.seccompProfile\.type=RuntimeDefault",
        rf"{_POD}\.spec\.volumes\[\]=\{{\}}",
        rf"{_POD}\.spec\.volumes\[\]\.name=.*",
        rf"{_POD}\.spec\.volumes\[\]\.emptyDir[.=].*",
    )
)
"""Every leaf that a pool may have by the default lists, as `PATH=VALUE`."""


def leaves(value: Any, path: str) -> Iterator[str]:
    """What a manifest has, as `PATH=VALUE`."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield f"{path}={value}"


def not_on_the_lists(spec: dict[str, Any]) -> list[str]:
    """What of a pool's spec no list has."""
    return [leaf for leaf in leaves(spec, "spec") if not any(line.fullmatch(leaf) for line in ON_THE_LISTS)]


def pods_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods that the operator would have made; none where it refuses the pool itself."""
    try:
        pool = RewardPool.model_validate(manifest)
    except ValidationError:
        return []
    deployments = [router_deployment(pool, fingerprint="a", image="rewardpool:1")]
    if pool.spec.gateway is not None:
        deployments.append(gateway_deployment(pool, pool.spec.gateway, key="a", image="rewardpool:1"))
    templates = [worker_template(pool, image="rewardpool:1"), *(one["spec"]["template"] for one in deployments)]
    metadata = {"name": "pod", "namespace": manifest["metadata"]["namespace"]}
    return [
        {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], **metadata}}
        for template in templates
    ]
