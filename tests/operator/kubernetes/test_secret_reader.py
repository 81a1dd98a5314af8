"""When a pool's Secrets are read, and what becomes of the answer. The API server is a fake with some Secrets."""

import asyncio

import pytest

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.credentials.secret_reader import SecretReader
from rewardpool_operator.kubernetes.polls import reading
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.kubernetes.queue.requeue import SECRETS


class FakeKube:
    """Has the Secrets that it was given."""

    def __init__(self, *called: str) -> None:
        self.secrets = {name: a_secret(name) for name in called}
        self.errors: dict[str, Exception] = {}
        """Name -> what its reading ends with."""
        self.answers = asyncio.Event()
        self.answers.set()

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        assert resource == resources.SECRETS
        await self.answers.wait()
        if name in self.errors:
            raise self.errors[name]
        return self.secrets.get(name)


def a_refusal(status: int) -> KubeError:
    return KubeError("get", status=status, reason="Refused", message=f"not today, {status}")


def a_secret(name: str) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "rl",
            "uid": name,
            "resourceVersion": "1",
            "labels": {names.LABEL_POOL: "rm"},
            "ownerReferences": [{"uid": "pool", "controller": True}],
        }
    }


def a_reader(kube: FakeKube) -> tuple[SecretReader, Store]:
    store = Store()
    store.put(resources.POOLS, {"metadata": {"name": "rm", "namespace": "rl", "uid": "pool", "resourceVersion": "1"}})
    polling = Polling(session=None)  # type: ignore[arg-type]
    return SecretReader(kube, store, ("rl", "rm"), polling), store  # type: ignore[arg-type]


def known(store: Store) -> set[str]:
    objects = store.objects(("rl", "rm"))
    return {item["metadata"]["name"] for item in objects.secrets} if objects else set()


async def test_secrets_are_read_at_first_and_then_seldom() -> None:
    reader, store = a_reader(FakeKube("rm-key", "rm-router-admin"))
    assert (reader.known, reader.due(0.0, pools=1)) == (False, 0.0)
    await reader.read(100.0)
    assert known(store) == {"rm-key", "rm-router-admin"}
    assert 0.0 < reader.due(100.0, pools=1) <= SECRETS.shortest
    assert reader.due(100.0, pools=1000) > 50.0


async def test_a_gateway_that_comes_has_its_secret_read_at_once() -> None:
    reader, store = a_reader(FakeKube("rm-key", "rm-router-admin", "rm-gateway"))
    await reader.read(100.0)
    reader.expect(gateway=True)
    assert (reader.known, reader.due(100.0, pools=1)) == (False, 0.0)
    await reader.read(101.0)
    assert known(store) == {"rm-key", "rm-router-admin", "rm-gateway"}


async def test_a_suspicion_has_them_read_at_once() -> None:
    reader, _ = a_reader(FakeKube())
    await reader.read(100.0)
    reader.suspect()
    assert reader.due(100.0, pools=1) == 0.0
    await reader.read(101.0)
    assert reader.due(101.0, pools=1) > 0.0


async def test_a_secret_that_is_gone_is_gone_from_the_store() -> None:
    kube = FakeKube("rm-key", "rm-router-admin")
    reader, store = a_reader(kube)
    await reader.read(0.0)
    del kube.secrets["rm-key"]
    await reader.read(4.0)
    assert known(store) == {"rm-router-admin"}


@pytest.mark.parametrize(
    "error", [KubeUnreachableError("nobody there"), *(a_refusal(status) for status in (403, 404, 409, 429, 500))]
)
async def test_secrets_that_cannot_be_read_stay_as_they_were(error: Exception) -> None:
    kube = FakeKube("rm-key", "rm-router-admin")
    reader, store = a_reader(kube)
    assert await reader.read(0.0)
    kube.errors = {"rm-key": error, "rm-router-admin": error}
    reader.suspect()
    assert await reader.read(4.0)
    assert known(store) == {"rm-key", "rm-router-admin"}
    assert (reader.known, reader.current) == (True, False)
    assert reader.problem == f"{error}; {error}"
    assert reader.due(4.0, pools=1) == 0.0


async def test_of_two_secrets_the_one_that_can_be_read_is_known() -> None:
    kube = FakeKube("rm-key", "rm-router-admin")
    kube.errors = {"rm-key": a_refusal(403)}
    reader, store = a_reader(kube)
    assert await reader.read(0.0)
    assert known(store) == {"rm-router-admin"}
    assert (reader.opens_routers, reader.known, reader.current) == (True, False, False)


async def test_a_reading_that_hangs_goes_on_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_PATIENCE_SECONDS", 0.01)
    kube = FakeKube("rm-key", "rm-router-admin")
    kube.answers.clear()
    reader, _ = a_reader(kube)
    assert not await reader.read(0.0)
    assert (reader.pending, reader.known, reader.current) == (True, False, False)
    kube.answers.set()
    async with asyncio.timeout(5):
        while not await reader.read(1.0):  # noqa: ASYNC110 - it is the reader that is asked
            await asyncio.sleep(0)
    assert reader.current
