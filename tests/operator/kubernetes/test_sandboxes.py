"""Claims of a Deployment whose workers are sandboxes: how many there are to be, and which of them go."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.kube_builders import FUNCTION, a_pod, a_pool

from rewardpool_api import RewardPool
from rewardpool_kube.resources import SANDBOX_CLAIMS
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.owned import trimmed
from rewardpool_operator.kubernetes.render.worker import Revision
from rewardpool_operator.kubernetes.settings.agent_sandbox import NO_AGENT_SANDBOX, is_needed
from rewardpool_operator.kubernetes.workload import sandboxes
from rewardpool_operator.kubernetes.workload.pods import ANNOTATION_DELETION_COST
from rewardpool_operator.kubernetes.workload.sandboxes import AGAIN, ClaimChanges
from rewardpool_operator.kubernetes.workload.scale_down_order import COST_STOPPED

MADE = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_claim(name: str, *, sandbox: str | None = None, reason: str = "DependenciesReady") -> dict[str, Any]:
    condition = {"type": "Ready", "status": "False", "reason": reason, "message": "words"}
    status = {"conditions": [condition], "sandbox": {"name": sandbox, "podIPs": []} if sandbox else {}}
    metadata = {"name": name, "namespace": "rl", "creationTimestamp": "2026-01-01T12:00:00Z"}
    return trimmed(SANDBOX_CLAIMS, {"metadata": metadata, "status": status})


def its_pod(name: str, **metadata: Any) -> dict[str, Any]:
    pod = a_pod(name)
    pod["metadata"] |= {"ownerReferences": [{"kind": "Sandbox", "name": name, "uid": "x"}], **metadata}
    return pod


def changes(
    claims: list[Any], workers: list[Any], *, replicas: int, stop: tuple[str, ...] = (), age: timedelta = AGAIN
) -> ClaimChanges:
    return sandboxes.changes(claims, workers, replicas=replicas, stop=stop, now=MADE + age)


def of_sandboxes(**spec: Any) -> RewardPool:
    return a_pool(**FUNCTION, sandbox={"runtime": "AgentSandbox"}, **spec)


def revision_of(pool: RewardPool) -> Revision:
    return render.worker_revision(pool, image="own")


def test_a_claim_is_made_for_each_replica_that_has_none() -> None:
    assert changes([a_claim("a", sandbox="a")], [its_pod("a")], replicas=3).make == 2


def test_the_claims_of_those_who_left_every_router_go_before_those_without_a_worker() -> None:
    claims = [a_claim("early"), a_claim("left", sandbox="left"), a_claim("serves", sandbox="serves")]
    found = changes(claims, [its_pod("left"), its_pod("serves")], replicas=2, stop=("left",))
    assert (found.delete, found.make) == (("left",), 0)
    assert changes(claims, [its_pod("left"), its_pod("serves")], replicas=1, stop=("left",)).delete == ("left", "early")


def test_one_that_was_stopped_in_an_earlier_pass_still_goes() -> None:
    stopped = its_pod("a", annotations={ANNOTATION_DELETION_COST: str(COST_STOPPED)})
    assert changes([a_claim("a", sandbox="a")], [stopped], replicas=0).delete == ("a",)


def test_a_claim_whose_worker_serves_is_not_deleted_however_small_the_set_is_to_be() -> None:
    assert changes([a_claim("a", sandbox="a")], [its_pod("a")], replicas=0).delete == ()


def test_a_claim_whose_pod_somebody_deletes_is_replaced() -> None:
    deleted = its_pod("a", deletionTimestamp="2026-01-01T12:00:01Z")
    assert changes([a_claim("a", sandbox="a")], [deleted], replicas=1) == ClaimChanges(
        delete=("a",), make=1, waits=False
    )


@pytest.mark.parametrize("reason", sorted(sandboxes.ENDED))
def test_a_claim_that_ended_is_replaced_and_not_at_once(reason: str) -> None:
    ended = [a_claim("a", reason=reason)]
    assert changes(ended, [], replicas=1) == ClaimChanges(delete=("a",), make=1, waits=False)
    assert changes(ended, [], replicas=1, age=AGAIN / 2) == ClaimChanges(delete=(), make=0, waits=True)


def test_a_claim_that_is_refused_stays_and_says_why() -> None:
    refused = [a_claim("a", reason="InvalidMetadata")]
    assert changes(refused, [], replicas=1) == ClaimChanges(delete=(), make=0, waits=False)
    assert sandboxes.refusal_of(refused) == "SandboxClaim a: InvalidMetadata: words"
    assert sandboxes.refusal_of([a_claim("b", reason="DependenciesNotReady")]) is None


def test_kubernetes_makes_no_pods_of_a_deployment_of_sandboxes_whatever_its_pod_template_says() -> None:
    pod_template = {"metadata": {"annotations": {"$patch": "delete"}}}
    pool = of_sandboxes(worker={"podTemplate": pod_template})
    assert render.worker_deployment(pool, revision_of(pool), replicas=1)["spec"]["paused"] is True
    pool = a_pool(**FUNCTION, sandbox={})
    assert "paused" not in render.worker_deployment(pool, revision_of(pool), replicas=1)["spec"]


def test_sandboxes_and_pods_of_one_pool_are_two_revisions() -> None:
    assert revision_of(of_sandboxes()).name != revision_of(a_pool(**FUNCTION, sandbox={})).name


def test_a_sandbox_has_the_pods_key_code_and_labels_and_no_network_policy_but_the_pools() -> None:
    pool = of_sandboxes()
    deployment = render.worker_deployment(pool, revision_of(pool), replicas=1)
    deployment["metadata"]["uid"] = "deployment-uid"
    spec = sandboxes.template(deployment)["spec"]
    pod = deployment["spec"]["template"]
    assert spec["podTemplate"] == {"metadata": pod["metadata"], "spec": pod["spec"]}
    assert spec["networkPolicyManagement"] == "Unmanaged"


def test_an_operator_without_the_setting_names_it_where_sandboxes_are_wanted() -> None:
    objects = Objects(pool={})
    assert is_needed(of_sandboxes(), objects)
    assert not is_needed(a_pool(**FUNCTION, sandbox={}), objects)
    assert "agentSandbox.enabled" in (NO_AGENT_SANDBOX.problem("rl") or "")
