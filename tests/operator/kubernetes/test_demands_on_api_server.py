"""Leases of demands on a real API server, read and removed by the operator's code under a clock of the test's own."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from cluster.control_plane import ControlPlane
from rewardpool_api.demand import Demand, lease_manifest
from rewardpool_api.times import from_rfc3339
from rewardpool_control.announcements import RETENTION
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.configuration import load_configuration
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.owned import selector_of, trimmed
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.demands import Demands

pytestmark = pytest.mark.real

NAMESPACE = "default"
WRONG_CLOCK = "2001-01-01T00:00:0{}.000000Z"


@pytest.fixture
async def kube(control_plane: ControlPlane) -> AsyncIterator[Kube]:
    async with Kube(await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)})) as kube:
        yield kube
        for lease in await leases(kube):
            await kube.delete(resources.LEASES, NAMESPACE, lease["metadata"]["name"])


async def announce(kube: Kube, *, renewal: int = 1) -> None:
    """As a trainer whose clock is decades behind."""
    demand = Demand(job="grpo", phase="Rollout")
    now = WRONG_CLOCK.format(renewal)
    lease = lease_manifest(demand, pool="rm", namespace=NAMESPACE, pool_uid=None, seconds=15, now=now)
    await kube.apply(resources.LEASES, lease)


async def leases(kube: Kube) -> list[Object]:
    """As the store would keep them."""
    found = await kube.list(resources.LEASES, NAMESPACE, selector=selector_of(resources.LEASES))
    return [trimmed(resources.LEASES, lease) for lease in found]


async def test_the_api_server_says_when_a_lease_was_renewed(kube: Kube) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    await announce(kube)
    (lease,) = await leases(kube)
    assert before <= from_rfc3339(lease["renewed"]) <= datetime.now(UTC)


async def test_a_lease_that_is_no_demand_is_not_looked_at(kube: Kube) -> None:
    metadata = {"name": "election", "namespace": NAMESPACE}
    await kube.apply(resources.LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})
    assert await leases(kube) == []
    await kube.delete(resources.LEASES, NAMESPACE, "election")


@pytest.mark.parametrize("is_renewed", [False, True])
async def test_what_lapsed_long_ago_is_removed_unless_it_was_renewed_since_the_look(
    kube: Kube, is_renewed: bool
) -> None:
    await announce(kube)
    seen = await leases(kube)
    demands = Demands(kube, Store())
    late = datetime.now(UTC) + RETENTION + timedelta(seconds=16)
    await demands.observe(seen, now=late)
    if is_renewed:
        await announce(kube, renewal=2)
    await demands.remove_old(seen, now=late)
    assert len(await leases(kube)) == is_renewed
