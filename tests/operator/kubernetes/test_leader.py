"""The election over a stand-in for the API server that has one Lease, refuses stale writes and can be away."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_operator.kubernetes import leader as leader_module
from rewardpool_operator.kubernetes.cache.reflector import EtcdRestoredError
from rewardpool_operator.kubernetes.leader import DURATION_SECONDS, Acting, Leadership, holder_of


class FakeLeases:
    """One Lease, and the time it takes to reach it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.version = 0
        self.lease: dict[str, Any] | None = {"metadata": {"resourceVersion": "0"}, "spec": {"holderIdentity": ""}}
        """At first one that was given back."""
        self.gets = 0
        self.real_delay_seconds = 0.0
        self.delay_seconds = 0.0
        self.away = False
        self.refused: int | None = None
        """HTTP status with which every call is refused."""
        self.answer_lost = False
        self.onlooker: Leadership | None = None
        """Who looks right after a write was taken in, while the answer is on its way."""

    def clock(self) -> float:
        return self.now

    async def get(self, *_: Any) -> dict[str, Any] | None:
        await self._reach()
        self.gets += 1
        return self.lease

    async def create(self, _: Any, manifest: dict[str, Any]) -> dict[str, Any]:
        await self._reach()
        if self.lease is not None:
            raise KubeError("POST", status=409, reason="AlreadyExists", message="there is one")
        return await self._store(manifest["spec"])

    async def merge(self, _resource: Any, _namespace: str, _name: str, patch: dict[str, Any]) -> dict[str, Any]:
        await self._reach()
        if self.lease is None:
            raise KubeError("PATCH", status=404, reason="NotFound", message="there is none")
        if patch["metadata"]["resourceVersion"] != str(self.version):
            raise KubeError("PATCH", status=409, reason="Conflict", message="changed meanwhile")
        spec = self.lease["spec"] if isinstance(self.lease["spec"], dict) else {}
        return await self._store({**spec, **patch["spec"]})

    async def _reach(self) -> None:
        if self.real_delay_seconds:
            await asyncio.sleep(self.real_delay_seconds)
        self.now += self.delay_seconds
        if self.away:
            raise KubeUnreachableError("no route")
        if self.refused is not None:
            raise KubeError("GET", status=self.refused, reason="Refused", message="not now")

    async def _store(self, spec: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = stored = {"metadata": {"resourceVersion": str(self.version)}, "spec": spec}
        delay_seconds = self.delay_seconds
        if self.onlooker is not None:
            self.delay_seconds, onlooker, self.onlooker = 0.0, self.onlooker, None
            await onlooker.attempt()
        self.now += delay_seconds
        if self.answer_lost:
            raise KubeUnreachableError("the answer was lost")
        return stored


@pytest.fixture
def leases() -> FakeLeases:
    return FakeLeases()


def candidate(leases: FakeLeases, operator: str) -> Leadership:
    return Leadership(leases, namespace="system", name="rewardpool", operator=operator, clock=leases.clock)  # type: ignore[arg-type]


async def test_the_first_to_come_leads_and_the_second_waits(leases: FakeLeases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    assert (await first.attempt(), await second.attempt()) == (True, False)
    assert (first.acting(), second.acting()) == (Acting.FULL, Acting.NONE)


async def test_a_lease_that_is_renewed_is_never_taken(leases: FakeLeases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    for _ in range(20):
        assert await first.attempt()
        assert not await second.attempt()
        leases.now += 2


async def test_the_lease_of_a_dead_operator_is_taken_when_its_time_is_over(leases: FakeLeases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.attempt()
    await second.attempt()
    leases.now += DURATION_SECONDS - 0.1
    assert not await second.attempt()
    leases.now += 0.1
    assert await second.attempt()
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseTransitions"] == 2


async def test_of_two_that_take_an_old_lease_one_leads(leases: FakeLeases) -> None:
    await candidate(leases, "dead").attempt()
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.attempt()
    await second.attempt()
    leases.now += DURATION_SECONDS
    assert [await first.attempt(), await second.attempt()] == [True, False]


async def test_an_operator_that_was_started_again_is_another_one(leases: FakeLeases) -> None:
    await candidate(leases, "a").attempt()
    assert not await candidate(leases, "a").attempt()


async def test_a_leader_without_an_api_server_keeps_to_the_routers(leases: FakeLeases) -> None:
    leader = candidate(leases, "a")
    await leader.attempt()
    leases.away = True
    leases.now += DURATION_SECONDS
    await leader.attempt()
    assert leader.acting() is Acting.ROUTERS
    leases.away = False
    await leader.attempt()
    assert leader.acting() is Acting.FULL


@pytest.mark.parametrize("status", [429, 500, 503, 403])
async def test_a_leader_whose_lease_is_refused_leads_to_the_end_of_its_time_and_then_keeps_to_the_routers(
    leases: FakeLeases, status: int
) -> None:
    leader = candidate(leases, "a")
    await leader.attempt()
    leases.refused = status
    leases.now += 5
    await leader.attempt()
    assert leader.acting() is Acting.FULL
    leases.now += 5
    await leader.attempt()
    assert leader.acting() is Acting.ROUTERS
    leases.refused = None
    await leader.attempt()
    assert leader.acting() is Acting.FULL


async def test_an_operator_that_never_led_does_nothing_without_an_api_server(leases: FakeLeases) -> None:
    leases.away = True
    waiting = candidate(leases, "a")
    await waiting.attempt()
    assert waiting.acting() is Acting.NONE


async def test_a_leader_that_was_replaced_while_cut_off_does_nothing_more(leases: FakeLeases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.attempt()
    await second.attempt()
    leases.now += DURATION_SECONDS
    await second.attempt()
    assert not await first.attempt()
    assert (first.acting(), second.acting()) == (Acting.NONE, Acting.FULL)


async def test_a_lease_whose_version_went_back_ends_the_operator(leases: FakeLeases) -> None:
    one = candidate(leases, "one")
    for _ in range(3):
        await one.attempt()
    leases.version = 1
    leases.lease = {"metadata": {"resourceVersion": "1"}, "spec": leases.lease["spec"]}
    assert not await one.attempt()
    with pytest.raises(EtcdRestoredError, match="from 3 to 1"):
        await one.attempt()


async def test_a_lease_that_was_given_back_is_taken_at_once(leases: FakeLeases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.attempt()
    await second.attempt()
    await first.release()
    assert first.acting() is Acting.NONE
    assert await second.attempt()


async def test_a_waiting_operator_gives_back_nothing(leases: FakeLeases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.attempt()
    await second.attempt()
    await second.release()
    assert leases.lease is not None
    assert holder_of(leases.lease) == first.identity


async def test_a_renewal_costs_one_call(leases: FakeLeases) -> None:
    leader = candidate(leases, "a")
    for _ in range(3):
        assert await leader.attempt()
    assert leases.gets == 1


async def test_calls_that_are_slow_and_succeed_make_a_leader(
    leases: FakeLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_module, "CALL_SECONDS", 2.0)
    leases.real_delay_seconds = 1.1  # reading and writing: together longer than one call may take
    assert await candidate(leases, "a").attempt()


async def test_whoever_makes_the_lease_acts_when_a_holder_of_a_deleted_one_has_stopped(leases: FakeLeases) -> None:
    old, new = candidate(leases, "old"), candidate(leases, "new")
    await old.attempt()
    leases.lease = None
    assert await new.attempt()
    assert (old.acting(), new.acting()) == (Acting.FULL, Acting.NONE)
    leases.now += DURATION_SECONDS - 0.1
    assert await new.attempt()
    assert (old.acting(), new.acting()) == (Acting.NONE, Acting.NONE)
    leases.now += 0.1
    assert (old.acting(), new.acting()) == (Acting.NONE, Acting.FULL)


async def test_a_holder_makes_its_deleted_lease_anew_and_waits_as_anybody(leases: FakeLeases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.attempt()
    leases.lease = None
    await first.attempt()
    assert await first.attempt()
    assert not await second.attempt()
    assert first.acting() is Acting.NONE
    leases.now += DURATION_SECONDS
    await first.attempt()
    assert first.acting() is Acting.FULL


async def test_an_operator_that_made_the_lease_and_had_no_answer_waits_too(leases: FakeLeases) -> None:
    leases.lease = None
    leases.answer_lost, one = True, candidate(leases, "a")
    assert not await one.attempt()
    leases.answer_lost = False
    assert await one.attempt()
    assert one.acting() is Acting.NONE


async def test_an_operator_that_waits_after_making_the_lease_gives_it_not_back(leases: FakeLeases) -> None:
    leases.lease = None
    one = candidate(leases, "a")
    await one.attempt()
    await one.release()
    assert holder_of(leases.lease or {}) == one.identity


@pytest.mark.parametrize(
    "spec", [None, [], "text", {"holderIdentity": {}}, {"leaseTransitions": "many"}, {"leaseDurationSeconds": "long"}]
)
async def test_a_lease_whose_fields_are_odd_is_one_of_no_holder(leases: FakeLeases, spec: Any) -> None:
    leases.lease = {"metadata": {"resourceVersion": "0"}, "spec": spec}
    assert await candidate(leases, "a").attempt()


TURN = st.tuples(
    st.sampled_from([0, 1]),
    st.sampled_from([0.0, 2.0, 5.0, 9.0, 11.0]),
    st.sampled_from([0.0, 3.0]),
    st.sampled_from(["fine", "fine", "away", "answer lost"]),
    st.booleans(),
    st.sampled_from(["there", "there", "deleted"]),
)


@settings(max_examples=500)
@given(st.lists(TURN, max_size=12))
async def test_two_never_lead_at_once(turns: list[tuple[int, float, float, str, bool, str]]) -> None:
    leases = FakeLeases()
    candidates = [candidate(leases, name) for name in "ab"]
    for who, pause_seconds, leases.delay_seconds, network, looked_at, lease in turns:
        leases.now += pause_seconds
        if lease == "deleted":
            leases.lease = None
        leases.away, leases.answer_lost = network == "away", network == "answer lost"
        leases.onlooker = candidates[1 - who] if looked_at else None
        await candidates[who].attempt()
        assert sum(one.acting() is Acting.FULL for one in candidates) <= 1
