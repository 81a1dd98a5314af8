"""Routers that are replaced under steady load: another program, HTTPS, another certificate.

Real API server, routers of both flavors, workers and client; the operator is a process. Stand-ins: the node, and the
Service's address.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.operator_cluster import NAMESPACE, Cluster
from support.stand_in_service import StandInService, ready_routers
from support.steady_trainer import training

from cluster.certificates import Authority
from rewardpool_api import names
from rewardpool_api.reasons import ConditionReason

pytestmark = pytest.mark.real

POOL = "routed"
SECRET = "routed-tls"
HOST = names.router_host(POOL, NAMESPACE)
SPEC = {"replicas": 2, "requestTimeoutSeconds": 10}


@pytest.fixture(scope="module")
def service(cluster: Cluster) -> Iterator[StandInService]:
    """The pool serves with two workers behind two routers of the other program."""
    cluster.apply(POOL, replicas=2, router={**SPEC, "flavor": "smg"})
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=60, what="the pool is ready")
    cluster.eventually(lambda: are_replaced(cluster, set()), seconds=20, what="both routers are ready")
    with StandInService(lambda: ready_routers(cluster.pods(POOL, "router"))) as service:
        yield service


def write_certificate(cluster: Cluster, folder: Path, *, host: str = HOST, with_ca: bool = True) -> None:
    """A new certificate by a new authority, for the pool's host and for the Service's stand-in."""
    folder.mkdir()
    authority = Authority(folder)
    certificate, key = authority.issue("server", common_name=host, hosts=[host, "127.0.0.1"])
    files = {"tls.crt": certificate, "tls.key": key} | ({"ca.crt": authority.certificate} if with_ca else {})
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET},
        "data": {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()},
    }
    cluster.kubectl("apply", "-f", "-", data=json.dumps(manifest))


def serve_https(cluster: Cluster) -> None:
    """Apply the pool with the certificate that the Secret has."""
    cluster.apply(POOL, replicas=2, router={**SPEC, "tls": {"secretName": SECRET}})


def router_names(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods(POOL, "router")}


def are_replaced(cluster: Cluster, before: set[str]) -> bool:
    pods = cluster.pods(POOL, "router")
    return len(ready_routers(pods)) == len(pods) == 2 and not before & router_names(cluster)


def reason(cluster: Cluster, kind: str) -> str:
    return str(cluster.condition(POOL, kind).get("reason"))


def test_routers_are_ready_only_with_the_operators_consent(cluster: Cluster, service: StandInService) -> None:
    for pod in cluster.pods(POOL, "router"):
        opened = [item for item in pod["status"]["conditions"] if item["type"] == names.CONDITION_HOLDS_WORKERS]
        assert [item["status"] for item in opened] == ["True"]


def test_another_router_program_costs_no_request(cluster: Cluster, service: StandInService) -> None:
    before = router_names(cluster)
    with training(cluster, POOL, service) as trainer:
        cluster.apply(POOL, replicas=2, router=SPEC)
        cluster.eventually(lambda: are_replaced(cluster, before), seconds=60, what="the routers are replaced")
    print(f"{trainer.outcomes.total()} samples, retries {dict(trainer.report.retries)}")
    assert set(trainer.outcomes) == {"right"}


def test_a_missing_certificate_is_told_and_changes_no_router(cluster: Cluster, service: StandInService) -> None:
    before = router_names(cluster)
    serve_https(cluster)
    cluster.eventually(
        lambda: reason(cluster, "RouterReady") == ConditionReason.TLS_UNUSABLE, seconds=15, what="it is told"
    )
    told = cluster.condition(POOL, "Degraded")
    assert (told["status"], told["reason"]) == ("True", ConditionReason.TLS_UNUSABLE)
    assert f"the Secret {SECRET} does not exist" in told["message"]
    assert cluster.status(POOL)["url"].startswith("http://")
    assert router_names(cluster) == before


def test_a_trainer_follows_its_pool_to_https(cluster: Cluster, service: StandInService, tmp_path: Path) -> None:
    before = router_names(cluster)
    with training(cluster, POOL, service) as trainer:
        write_certificate(cluster, tmp_path / "first")
        cluster.eventually(lambda: are_replaced(cluster, before), seconds=60, what="the routers are replaced")
        cluster.eventually(lambda: reason(cluster, "RouterReady") == "AllReady", seconds=20, what="they are verified")
    print(f"{trainer.outcomes.total()} samples, retries {dict(trainer.report.retries)}")
    assert cluster.status(POOL)["url"] == f"https://{HOST}:{names.ROUTER_PORT}"
    assert set(trainer.outcomes) == {"right"}


def test_a_certificate_for_another_host_is_refused_and_the_old_routers_stay(
    cluster: Cluster, service: StandInService, tmp_path: Path
) -> None:
    before = router_names(cluster)
    write_certificate(cluster, tmp_path / "wrong", host="elsewhere.example")
    cluster.eventually(
        lambda: reason(cluster, "Degraded") == ConditionReason.CERTIFICATE_REFUSED, seconds=30, what="it is told"
    )
    assert f"is not valid for '{HOST}'" in cluster.condition(POOL, "Degraded")["message"]
    assert {pod["metadata"]["name"] for pod in cluster.pods(POOL, "router") if is_ready(pod)} == before


def is_ready(pod: dict[str, object]) -> bool:
    return len(ready_routers([pod])) == 1


@pytest.fixture
def over_https(cluster: Cluster, service: StandInService, tmp_path: Path) -> None:
    """The pool has a certificate, by whichever test."""
    if not cluster.status(POOL)["url"].startswith("https://"):
        before = router_names(cluster)
        write_certificate(cluster, tmp_path / "first")
        serve_https(cluster)
        cluster.eventually(lambda: are_replaced(cluster, before), seconds=60, what="the routers are replaced")


@pytest.mark.usefixtures("over_https")
@pytest.mark.parametrize(
    "with_ca",
    [pytest.param(True, id="another CA"), pytest.param(False, id="none but itself", marks=pytest.mark.long)],
)
def test_another_certificate_costs_no_request(
    cluster: Cluster, service: StandInService, tmp_path: Path, with_ca: bool
) -> None:
    before, bundle = router_names(cluster), cluster.status(POOL)["auth"]["caBundle"]
    with training(cluster, POOL, service) as trainer:
        write_certificate(cluster, tmp_path / "next", with_ca=with_ca)
        cluster.eventually(lambda: are_replaced(cluster, before), seconds=60, what="the routers are replaced")
    print(f"{trainer.outcomes.total()} samples, retries {dict(trainer.report.retries)}")
    assert set(trainer.outcomes) == {"right"}

    def trusts_only_the_next() -> bool:
        now = cluster.status(POOL)["auth"]["caBundle"]
        return now != bundle and len(now) < 1.5 * len(bundle)

    cluster.eventually(trusts_only_the_next, seconds=20, what="the old certificates are trusted no longer")
    cluster.eventually(lambda: reason(cluster, "Degraded") == "AsExpected", seconds=20, what="nothing is wrong")
