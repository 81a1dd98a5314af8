"""What a reflector makes of lists and watches, of a fake API server that says what the test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import pytest
from support.scripted_kube import NAMESPACE, ScriptedKube, an_object

from rewardpool_kube import resources
from rewardpool_kube.answers import WatchEvent
from rewardpool_kube.errors import KubeError, KubeUnreachableError, WatchSilentError
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache import reflector
from rewardpool_operator.kubernetes.cache.reflector import EtcdRestoredError, Reflector
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.queue.backoff import pause_seconds

KEY = (NAMESPACE, "rm")


class Watched:
    """A reflector that runs, and what it told."""

    def __init__(self, kube: ScriptedKube, resource: resources.Resource = resources.CONFIG_MAPS) -> None:
        self.kube = kube
        self.store = Store()
        self.store.put(resources.POOLS, an_object("rm"))
        self.news: list[Key] = []
        self.moved_on: list[Key] = []
        self.reflector = Reflector(
            kube,  # type: ignore[arg-type]
            resource,
            NAMESPACE,
            selector="label",
            store=self.store,
            changed=self._changed,
            moved_on=self.moved_on.extend,
        )
        self.task = asyncio.create_task(self.reflector.run())

    def _changed(self, keys: Iterable[Key]) -> None:
        self.news += keys

    def names(self) -> list[str]:
        return (
            [name for resource, _, name in self.store._keys if resource == resources.CONFIG_MAPS]
            if self.store.pool(KEY)
            else []
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - a reflector tells nobody but the store
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "SHORTEST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    kube = ScriptedKube()
    kube.objects[resources.CONFIG_MAPS] = [an_object(name) for name in ("a", "b", "c")]
    watched = Watched(kube)
    await watched.reflector.synced.wait()
    yield watched
    watched.task.cancel()


async def test_all_pages_of_a_list_are_taken_in(watched: Watched) -> None:
    assert watched.names() == ["a", "b", "c"]
    assert set(watched.news) == {KEY}


async def test_what_a_watch_says_is_taken_in(watched: Watched) -> None:
    watched.kube.words.put_nowait(WatchEvent("ADDED", an_object("d", version=11)))
    watched.kube.words.put_nowait(WatchEvent("DELETED", an_object("a", version=12)))
    await watched.until(lambda: watched.names() == ["b", "c", "d"])


async def test_a_watch_that_ended_goes_on_where_it_was(watched: Watched) -> None:
    watched.kube.words.put_nowait(WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "17"}}))
    watched.kube.words.put_nowait(None)
    await watched.until(lambda: len(watched.kube.watches) == 2)
    assert [version for _, version in watched.kube.watches] == ["10", "17"]
    assert len(watched.kube.lists) == 1


async def test_a_connection_that_broke_goes_on_where_it_was(watched: Watched) -> None:
    watched.kube.words.put_nowait(KubeUnreachableError("reset"))
    await watched.until(lambda: len(watched.kube.watches) == 2)
    assert len(watched.kube.lists) == 1


async def test_an_object_that_makes_no_sense_ends_no_watch(watched: Watched) -> None:
    watched.kube.words.put_nowait(WatchEvent("ADDED", {"metadata": {"resourceVersion": "none"}}))
    await watched.until(lambda: len(watched.kube.lists) == 2)
    watched.kube.words.put_nowait(WatchEvent("ADDED", an_object("d", version=11)))
    await watched.until(lambda: "d" in watched.names())


async def test_a_silent_watch_is_no_trouble_and_all_is_listed_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.kube.words.put_nowait(WatchSilentError("nothing was said"))
    await watched.until(lambda: len(watched.kube.watches) == 2)
    assert len(watched.kube.lists) == 2
    assert caplog.records == []


async def test_a_list_of_older_versions_than_before_is_of_a_restored_backup_and_ends_the_reflector(
    watched: Watched,
) -> None:
    watched.kube.words.put_nowait(WatchEvent("MODIFIED", an_object("rm-pins", version=5000, data={"a": "lost"})))
    await watched.until(lambda: "lost" in str(watched.store.objects(KEY)))
    watched.kube.version = 20
    watched.kube.words.put_nowait(WatchSilentError("nothing was said"))
    with pytest.raises(EtcdRestoredError, match="went back from 5000 to 20"):
        await watched.task


async def test_one_object_that_makes_no_sense_does_not_keep_the_others_from_being_listed() -> None:
    kube = ScriptedKube()
    odd = an_object("odd")
    odd["metadata"]["labels"] = ["no", "labels"]
    kube.objects[resources.CONFIG_MAPS] = [an_object("a"), odd, an_object("b")]
    watched = Watched(kube)
    await watched.reflector.synced.wait()
    assert watched.names() == ["a", "b"]
    watched.task.cancel()


async def test_a_version_that_is_too_old_is_listed_anew_and_what_is_gone_is_dropped(watched: Watched) -> None:
    watched.kube.objects[resources.CONFIG_MAPS] = [an_object("b")]
    watched.kube.version = 40
    watched.news.clear()
    watched.kube.words.put_nowait(KubeError("watch", status=410, reason="Expired", message="too old"))
    await watched.until(lambda: watched.names() == ["b"])
    assert watched.news == [KEY, KEY]
    await watched.until(lambda: watched.kube.watches[-1] == (resources.CONFIG_MAPS, "40"))


async def test_an_api_server_that_is_away_leaves_the_store_as_it_was_and_is_no_dead_watch(watched: Watched) -> None:
    watched.kube.away = True
    seen, alive = watched.reflector.seen_at, watched.reflector.alive_at
    watched.kube.words.put_nowait(KubeError("watch", status=410, reason="Expired", message="too old"))
    await watched.until(lambda: len(watched.kube.lists) >= 3)
    assert watched.names() == ["a", "b", "c"]
    assert watched.reflector.seen_at == seen
    assert watched.reflector.alive_at > alive
    watched.kube.away = False
    await watched.until(lambda: len(watched.kube.watches) == 2)


@pytest.mark.parametrize(("failed", "least", "most"), [(0, 0.0, 0.0), (1, 0.25, 0.5), (3, 1.0, 2.0), (50, 1.5, 3.0)])
def test_pauses_grow_to_a_bound(failed: int, least: float, most: float) -> None:
    assert least <= pause_seconds(failed, shortest=0.5, longest=3.0) <= most


@pytest.mark.parametrize(
    ("before", "after", "can_wait"),
    [
        (None, {}, True),
        ({}, {"phase": "Pending"}, True),
        ({}, {"podIP": "10.0.0.7"}, False),
        ({"podIP": "10.0.0.7"}, {}, False),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no GPU"}]}, {}, False),
    ],
)
async def test_a_pod_that_moves_on_can_wait_for_what_follows(
    before: Object | None, after: Object, can_wait: bool
) -> None:
    kube = ScriptedKube()
    kube.spoken_of = resources.PODS
    kube.objects[resources.PODS] = [] if before is None else [a_bare_pod(before, version=1)]
    watched = Watched(kube, resources.PODS)
    await watched.reflector.synced.wait()
    watched.news.clear()
    watched.moved_on.clear()
    kube.words.put_nowait(WatchEvent("MODIFIED", a_bare_pod(after, version=11)))
    await watched.until(lambda: bool(watched.news or watched.moved_on))
    assert (watched.moved_on, watched.news) == (([KEY], []) if can_wait else ([], [KEY]))
    watched.task.cancel()


def a_bare_pod(status: Object, *, version: int) -> Object:
    """A pod of which no container was started, with this in its status."""
    pod = an_object("w0", version=version)
    pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": "set"}]
    return {**pod, "spec": {"containers": []}, "status": status}
