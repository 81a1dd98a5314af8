"""The manifests of examples/outside/, as an API server with the real CRDs takes them."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cluster.control_plane import ControlPlane
from cluster.kubectl import wait_for_crd
from cluster.processes import ClusterError

pytestmark = pytest.mark.real

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "outside"
MANIFESTS: Final = sorted(EXAMPLES.glob("*.yaml"))
MODULES: Final = {
    "sigs.k8s.io/gateway-api@v1.4.0": ("h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ=", "config/crd/standard"),
    "github.com/cert-manager/cert-manager@v1.19.1": (
        "h1:Txh8L/nLWTDcb7ZnXuXbTe15BxQnLbLirXmbNk0fGgY=",
        "deploy/crds",
    ),
}
"""Go modules, their digests, and the folder that has their CRDs."""
CRDS: Final = (
    "gateways.gateway.networking.k8s.io",
    "httproutes.gateway.networking.k8s.io",
    "certificates.cert-manager.io",
)


def sources(module: str, digest: str, empty: Path) -> Path:
    """The folder of a Go module, as the module proxy gives it out."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=empty,
        env=os.environ | {"GOFLAGS": "", "GO111MODULE": "on"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found.get("Sum") == digest, found.get("Error")
    return Path(found["Dir"])


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    for module, (digest, folder) in MODULES.items():
        place = sources(module, digest, tmp_path_factory.mktemp("no-module")) / folder
        crds = [file for file in sorted(place.glob("*.yaml")) if _name(file) in CRDS]
        for crd in crds:
            plane.kubectl("apply", "--server-side", "-f", str(crd))
    for name in CRDS:
        wait_for_crd(plane.kubectl, name)
    plane.kubectl("create", "namespace", "team-a")
    yield plane
    plane.kubectl("delete", "crd", *CRDS)


def _name(crd: Path) -> str:
    group, _, plural = crd.stem.partition("_")
    return f"{plural}.{group}"


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_an_example_is_taken(cluster: ControlPlane, file: Path) -> None:
    cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(file))


@pytest.mark.parametrize(
    ("file", "kind", "field"),
    [
        ("certificate.yaml", "Certificate", "issuerRef"),
        ("gateway.yaml", "HTTPRoute", "rules"),
        ("ingress.yaml", "Ingress", "rules"),
    ],
)
def test_a_field_that_does_not_exist_would_be_found(cluster: ControlPlane, file: str, kind: str, field: str) -> None:
    [wrong] = [document for document in documents(EXAMPLES / file) if document["kind"] == kind]
    wrong["spec"][f"{field}x"] = wrong["spec"].pop(field)
    with pytest.raises(ClusterError, match=f"{field}x"):
        cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=yaml.safe_dump(wrong))


def test_all_lead_to_the_routers_of_one_pool_by_names_of_one_certificate() -> None:
    found = {document["kind"]: document["spec"] for file in MANIFESTS[:3] for document in documents(file)}
    [route], [ingress] = found["HTTPRoute"]["rules"], found["Ingress"]["rules"]
    [path] = ingress["http"]["paths"]
    service = path["backend"]["service"]
    assert route["backendRefs"] == [{"name": service["name"], "port": service["port"]["number"]}]
    [listener] = found["Gateway"]["listeners"]
    assert {listener["hostname"], ingress["host"]} == {*found["Certificate"]["dnsNames"]}
    secrets = {listener["tls"]["certificateRefs"][0]["name"], found["Ingress"]["tls"][0]["secretName"]}
    assert secrets == {found["Certificate"]["secretName"]}
