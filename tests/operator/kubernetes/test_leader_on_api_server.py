"""The election on a real API server, under a clock of the test's own."""

from collections.abc import AsyncIterator

import pytest

from cluster.control_plane import ControlPlane
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.configuration import load_configuration
from rewardpool_operator.kubernetes.leader import DURATION_SECONDS, RENEW_SECONDS, Acting, Leadership

pytestmark = pytest.mark.real

NAMESPACE, LEASE = "default", "election"


class Clock:
    """Monotonic seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def kube(control_plane: ControlPlane) -> AsyncIterator[Kube]:
    async with Kube(await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)})) as kube:
        yield kube
        await kube.delete(resources.LEASES, NAMESPACE, LEASE)


async def test_an_operator_that_starts_after_the_lease_was_deleted_never_leads_beside_its_holder(kube: Kube) -> None:
    clock = Clock()

    def operator(name: str) -> Leadership:
        return Leadership(kube, namespace=NAMESPACE, name=LEASE, operator=name, clock=clock)

    async def leaders(*operators: Leadership) -> set[Leadership]:
        """Those that led, one at a time, while each makes an attempt again and again."""
        found = set[Leadership]()
        for _ in range(int(DURATION_SECONDS // RENEW_SECONDS) + 1):
            for one in operators:
                await one.attempt()
                full = {each for each in operators if each.acting() is Acting.FULL}
                assert len(full) <= 1
                found |= full
            clock.now += RENEW_SECONDS
        return found

    holder = operator("first")
    assert await leaders(holder) == {holder}
    for number in range(3):
        await kube.delete(resources.LEASES, NAMESPACE, LEASE)
        newcomer = operator(f"newcomer-{number}")
        assert await leaders(newcomer, holder) == {newcomer, holder}
        holder = newcomer
