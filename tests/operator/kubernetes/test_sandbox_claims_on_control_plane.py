"""A pool whose replicas are sandboxes of agent-sandbox.

Real API server with controllers, real routers and function workers, the real client of agent-sandbox; the node is a
stand-in, and agent-sandbox's controller a fake.
"""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml
from k8s_agent_sandbox.k8s_helper import K8sHelper
from support.fake_agent_sandbox import FakeAgentSandbox, crds
from support.operator_cluster import NAMESPACE, Cluster, names_of, new_cluster
from support.operator_process import ACCOUNT
from support.permissions import SANDBOX_RULES
from support.processes import http

from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "held"
RUNTIME = {"runtime": "AgentSandbox"}
SECONDS = 90


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The operator has the rights and the setting, and there is no agent-sandbox yet."""
    with new_cluster(tmp_path_factory.mktemp("sandboxes")) as cluster:
        allow(cluster)
        cluster.stop_operator()
        cluster.start_operator(**{names.ENV_AGENT_SANDBOX: "true"})
        yield cluster


def allow(cluster: Cluster) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "sandboxes", "namespace": NAMESPACE}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sandboxes"}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    rules = {**role, "kind": "Role", "rules": list(SANDBOX_RULES)}
    binding = {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
    cluster.kubectl("apply", "-f", "-", data=yaml.safe_dump_all([rules, binding]))


@pytest.fixture(scope="module")
def agent_sandbox(cluster: Cluster) -> Iterator[FakeAgentSandbox]:
    cluster.kubectl("apply", "--server-side", "-f", "-", data=yaml.safe_dump_all(crds()))
    with FakeAgentSandbox(cluster.plane, NAMESPACE) as fake:
        yield fake


def declare(cluster: Cluster, *, replicas: int, **spec: Any) -> None:
    cluster.apply(POOL, replicas=replicas, **{"sandbox": RUNTIME, **spec})


def serves(cluster: Cluster, *, replicas: int) -> None:
    holds = lambda: cluster.is_ready(POOL, replicas=replicas)  # noqa: E731
    cluster.eventually(holds, seconds=SECONDS, what=f"{replicas} replicas serve")


def degraded(cluster: Cluster) -> str:
    found = cluster.condition(POOL, "Degraded")
    return f"{found.get('reason')}: {found.get('message')}"


def workers(cluster: Cluster) -> set[str]:
    return names_of([pod for pod in cluster.pods(POOL, "worker") if "deletionTimestamp" not in pod["metadata"]])


def test_where_there_is_no_agent_sandbox_the_pool_says_what_to_install(cluster: Cluster) -> None:
    declare(cluster, replicas=2)
    cluster.eventually(lambda: "NoAgentSandbox" in degraded(cluster), seconds=SECONDS, what="the pool says so")
    assert "sandboxclaims.extensions.agents.x-k8s.io/v1beta1" in degraded(cluster)
    assert "install agent-sandbox" in degraded(cluster)
    assert not cluster.all("deployment")


def test_each_replica_is_a_claim_that_agent_sandboxs_own_client_finds_ready(
    cluster: Cluster, agent_sandbox: FakeAgentSandbox
) -> None:
    serves(cluster, replicas=2)
    theirs = K8sHelper(agent_sandbox.api_client)
    claims = theirs.list_sandbox_claims(NAMESPACE, label_selector=f"{names.LABEL_POOL}={POOL}")
    assert {theirs.wait_for_claim_ready(claim, NAMESPACE, timeout=10) for claim in claims} == workers(cluster)
    assert len(claims) == 2
    assert not [one for one in cluster.all("replicaset") if names.LABEL_REVISION in one["metadata"]["labels"]]


def test_a_sandbox_that_nobody_claimed_is_no_worker(cluster: Cluster, agent_sandbox: FakeAgentSandbox) -> None:
    (pool,) = {claim["spec"]["warmPoolRef"]["name"] for claim in agent_sandbox.claims()}
    agent_sandbox.keep_warm(pool, "spare")
    pod = lambda: (cluster.get("pod", "spare") or {"status": {}})["status"].get("conditions", [])  # noqa: E731
    ready = lambda: {"Ready": "True"}.items() <= {one["type"]: one["status"] for one in pod()}.items()  # noqa: E731
    cluster.eventually(ready, seconds=SECONDS, what="the spare one is ready")
    declare(cluster, replicas=3)
    serves(cluster, replicas=3)
    assert len(agent_sandbox.claims()) == 3
    # Its warm pool stays with the revision, for a rollback.
    cluster.kubectl("delete", "sandboxes.agents.x-k8s.io", "spare")


def test_a_claim_is_deleted_once_its_worker_has_answered_everything(
    cluster: Cluster, agent_sandbox: FakeAgentSandbox
) -> None:
    (router,) = cluster.pods(POOL, "router")
    secret = cluster.get("secret", names.key_secret(POOL)) or {}
    key = base64.b64decode(secret["data"][names.SECRET_KEY]).decode()
    url = f"http://{router['status']['podIP']}:{names.ROUTER_PORT}/v1/embeddings"
    sample = {"data_source": "", "solution_str": "x", "ground_truth": "", "extra_info": {"seconds": 3}}
    body = {"model": POOL, "input": json.dumps(sample)}
    with ThreadPoolExecutor(12) as threads:
        asked = [threads.submit(http, "POST", url, body, key=key) for _ in range(12)]
        declare(cluster, replicas=1)
        answers = [one.result(timeout=SECONDS) for one in asked]
    assert {answer[0] for answer in answers} == {200}
    serves(cluster, replicas=1)
    cluster.eventually(lambda: len(agent_sandbox.claims()) == 1, seconds=SECONDS, what="one claim is left")


def test_a_claim_that_expired_is_replaced(cluster: Cluster, agent_sandbox: FakeAgentSandbox) -> None:
    (before,) = agent_sandbox.claims()
    agent_sandbox.expire(before)
    new = lambda: before["metadata"]["name"] not in names_of(agent_sandbox.claims())  # noqa: E731
    cluster.eventually(new, seconds=SECONDS, what="the claim is gone")
    serves(cluster, replicas=1)


def test_why_a_claim_has_no_sandbox_is_said_in_agent_sandboxs_words(
    cluster: Cluster, agent_sandbox: FakeAgentSandbox
) -> None:
    agent_sandbox.refusal = ("InvalidMetadata", 'label domain "x" is not in the allowlist')
    declare(cluster, replicas=2)
    words = 'InvalidMetadata: label domain "x" is not in the allowlist'
    cluster.eventually(lambda: words in degraded(cluster), seconds=SECONDS, what="the pool says why")
    assert degraded(cluster).startswith("FailedCreate: ")
    agent_sandbox.refusal = None
    serves(cluster, replicas=2)


def test_without_the_runtime_pods_of_a_deployment_take_the_sandboxes_place(
    cluster: Cluster, agent_sandbox: FakeAgentSandbox
) -> None:
    declare(cluster, replicas=2, sandbox={})
    serves(cluster, replicas=2)
    cluster.eventually(lambda: not agent_sandbox.claims(), seconds=SECONDS, what="no claim is left")
    pods = lambda: cluster.pods(POOL, "worker")  # noqa: E731
    owners = lambda: {owner["kind"] for pod in pods() for owner in pod["metadata"]["ownerReferences"]}  # noqa: E731
    cluster.eventually(lambda: owners() == {"ReplicaSet"}, seconds=SECONDS, what="no sandbox is left")
