"""What is taken in, what is left out, and whose news it is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kube_builders import a_pod

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.cache.owned import OWNED
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.revisions import files_of

KEY = ("rl", "rm")


def an_object(
    name: str = "rm-pins", *, version: int = 1, pool: str | None = "rm", revision: str | None = None, **fields: Any
) -> Object:
    metadata: Object = {"namespace": "rl", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    metadata["labels"] = {names.LABEL_POOL: pool} if pool else {}
    metadata["labels"] |= {names.LABEL_REVISION: revision} if revision else {}
    metadata["ownerReferences"] = [{"kind": names.KIND, "name": pool, "uid": f"uid-{pool}", "controller": True}]
    return {"metadata": metadata, **fields}


def a_store(**fields: Any) -> Store:
    store = Store()
    store.put(resources.POOLS, an_object("rm", pool=None))
    store.put(resources.CONFIG_MAPS, an_object(data={"a": "1"}, **fields))
    return store


def data(store: Store) -> Any:
    objects = store.objects(KEY)
    return [item["data"] for item in objects.config_maps] if objects else None


def test_an_object_is_found_with_its_pool() -> None:
    assert data(a_store()) == [{"a": "1"}]


def test_a_pool_that_was_never_seen_has_no_objects() -> None:
    store = Store()
    store.put(resources.CONFIG_MAPS, an_object())
    assert store.objects(KEY) is None
    assert store.pools() == []


def test_only_a_newer_version_replaces_what_is_there() -> None:
    store = a_store(version=5)
    assert store.put(resources.CONFIG_MAPS, an_object(version=4, data={"a": "old"})) == []
    assert store.put(resources.CONFIG_MAPS, an_object(version=5, data={"a": "echo"})) == []
    assert store.put(resources.CONFIG_MAPS, an_object(version=6, data={"a": "new"})) == [KEY]
    assert data(store) == [{"a": "new"}]


def test_what_kubernetes_notes_of_a_deployments_rollout_is_no_news() -> None:
    store = a_store()
    made, noted = (an_object("rm-router", version=version, spec={}) for version in (2, 3))
    noted["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "1"}
    assert store.put(resources.DEPLOYMENTS, made) == [KEY]
    assert store.put(resources.DEPLOYMENTS, noted) == []


def test_what_two_objects_have_alike_is_kept_once_and_true_is_not_taken_for_one() -> None:
    store = a_store()
    for name, flag in (("a", True), ("b", True), ("c", 1)):
        store.put(
            resources.DEPLOYMENTS, an_object(f"rm-worker-{name}", revision=name, spec={"replicas": 4, "paused": flag})
        )
    objects = store.objects(KEY)
    assert objects is not None
    one, other, third = (deployment["spec"] for deployment in objects.deployments)
    assert one is other
    assert (one["paused"], third["paused"]) == (True, 1)
    assert third["paused"] is not True


def test_what_did_not_change_from_one_version_to_the_next_is_kept_and_what_did_is_not() -> None:
    store = Store()
    specs = []
    for version, image in ((1, "old"), (2, "old"), (3, "new")):
        spec = {"containers": [{"image": image, "env": [{"name": "A"}]}]}
        store.put(resources.POOLS, an_object("rm", version=version, pool=None, spec=spec, status={"replicas": version}))
        pool = store.pool(KEY)
        assert pool is not None
        assert (pool["spec"], pool["status"]) == (spec, {"replicas": version})
        specs.append(pool["spec"])
    assert specs[0] is specs[1]


def test_the_version_of_what_did_not_change_is_written_into_no_other_object() -> None:
    def bare(version: str) -> Object:
        return {"metadata": {"namespace": "rl", "name": "a", "resourceVersion": version}, "spec": {}}

    changed, other = Store(), Store()
    for store, version in ((changed, "1"), (changed, "2"), (other, "1")):
        store.put(resources.POOLS, bare(version))
    assert other.pool(("rl", "a")) == bare("1")


def test_a_change_of_what_nobody_reads_is_no_news() -> None:
    store = a_store()
    changed = an_object(version=2, data={"a": "1"})
    changed["metadata"]["managedFields"] = [{"manager": "somebody"}]
    assert store.put(resources.CONFIG_MAPS, changed) == []
    assert store.put(resources.CONFIG_MAPS, an_object(version=1, data={"a": "late"})) == []


def test_a_deleted_object_does_not_come_back_with_a_late_answer() -> None:
    store = a_store(version=5)
    assert store.remove(resources.CONFIG_MAPS, an_object(version=8)) == [KEY]
    assert store.put(resources.CONFIG_MAPS, an_object(version=7)) == []
    assert data(store) == []


def test_an_object_made_anew_is_taken_in() -> None:
    store = a_store(version=5)
    store.remove(resources.CONFIG_MAPS, an_object(version=8))
    assert store.put(resources.CONFIG_MAPS, an_object(version=9, data={"a": "2"})) == [KEY]


def test_a_late_word_of_deletion_does_not_remove_what_was_made_since() -> None:
    store = a_store(version=9)
    assert store.remove(resources.CONFIG_MAPS, an_object(version=8)) == []
    assert data(store) == [{"a": "1"}]


def test_what_a_list_does_not_have_is_dropped_unless_it_is_newer_than_the_list() -> None:
    store = a_store(version=5)
    store.put(resources.CONFIG_MAPS, an_object("made-since", version=12, data={"b": "1"}))
    assert store.keep_only(resources.CONFIG_MAPS, "rl", ["rl/other"], version="10") == [KEY]
    assert data(store) == []
    assert store.find(resources.CONFIG_MAPS, "rl", "made-since") is not None


@pytest.mark.parametrize("called", ["theirs", "rm-router", "rm-worker-a"])
@pytest.mark.parametrize("resource", sorted([*OWNED, resources.PODS], key=str), ids=lambda resource: resource.plural)
def test_of_what_only_has_our_label_nothing_is_kept_but_its_name(resource: Resource, called: str) -> None:
    store = Store()
    store.put(resources.POOLS, an_object("rm", pool=None))
    foreign = an_object(called, revision="a", data={"a": "x" * 1000})
    foreign["metadata"] |= {"ownerReferences": [], "annotations": {"note": "x" * 250_000}}
    foreign["metadata"]["labels"]["note"] = "x" * 60
    foreign["spec"] = {
        "containers": [{"name": "x" * 1000}],
        "template": {"metadata": {"annotations": {"a": "x" * 1000}}},
    }
    assert store.put(resource, foreign) == [KEY]
    assert len(str(store.find(resource, "rl", called))) < 400
    objects = store.objects(KEY)
    assert objects is not None
    assert (objects.deployments, objects.pods, objects.services, objects.config_maps) == ((), (), (), ())
    assert set(objects.others.values()) <= {()}


def test_a_pod_is_kept_with_what_is_ours_to_read_and_no_more() -> None:
    store = a_store()
    pod = a_pod("w0")
    long = "x" * 250_000
    pod["metadata"] |= {"namespace": "rl", "resourceVersion": "1"}
    pod["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: long, "note": long, names.ANNOTATION_SPEC: long}
    pod["spec"]["containers"] += [{"name": "sidecar", "ports": [{"name": "http", "containerPort": 1}] * 1000}]
    store.put(resources.PODS, pod)
    (kept,) = store.objects(KEY).pods  # type: ignore[union-attr]
    assert len(str(kept)) < 1500


@pytest.mark.parametrize("resource", [resources.PODS, resources.DEPLOYMENTS])
def test_mounted_files_that_somebody_else_mounts_are_known(resource: Resource) -> None:
    store = Store()
    volumes = [{"name": "v", "configMap": {"name": name}} for name in ("rewardpool-files-1", "x" * 1000)]
    pod_spec = {"containers": [], "volumes": [*volumes, {"name": "w", "emptyDir": {}}]}
    spec = pod_spec if resource == resources.PODS else {"template": {"spec": pod_spec}}
    store.put(resource, an_object("theirs", spec=spec))
    (found,) = store.mounting("rl")
    assert files_of(found) | files_of(found["spec"].get("template") or {}) == {"rewardpool-files-1"}


def test_a_list_of_one_namespace_leaves_the_others_alone() -> None:
    store = a_store()
    assert store.keep_only(resources.CONFIG_MAPS, "elsewhere", [], version="10") == []
    assert store.keep_only(resources.CONFIG_MAPS, "", [], version="10") == [KEY]


def test_an_object_given_to_another_pool_is_news_for_both() -> None:
    store = a_store()
    news = store.put(resources.CONFIG_MAPS, an_object(version=2, pool="other", data={}))
    assert news == [KEY, ("rl", "other")]
    assert data(store) == []


def test_an_object_that_lost_its_label_is_no_longer_the_pools() -> None:
    store = a_store()
    assert store.put(resources.CONFIG_MAPS, an_object(version=2, pool=None)) == [KEY]
    assert data(store) == []


def test_a_pool_that_is_gone_has_no_objects() -> None:
    store = a_store()
    assert store.remove(resources.POOLS, an_object("rm", version=2)) == [KEY]
    assert store.objects(KEY) is None


def test_the_secrets_of_a_pool_that_is_gone_are_forgotten_though_no_watch_tells_of_them() -> None:
    store = a_store()
    store.put(resources.SECRETS, an_object("rm-key"))
    store.remove(resources.POOLS, an_object("rm", pool=None, version=2))
    assert store.find(resources.SECRETS, "rl", "rm-key") is None
    assert store.find(resources.CONFIG_MAPS, "rl", "rm-pins") is not None


def test_of_a_pod_only_what_is_read_is_kept() -> None:
    store = a_store()
    pod = a_pod("w0")
    pod["metadata"] |= {"namespace": "rl", "resourceVersion": "1", "managedFields": [{}]}
    pod["spec"]["tolerations"] = [{"key": "a"}]
    store.put(resources.PODS, pod)
    (kept,) = store.objects(KEY).pods  # type: ignore[union-attr]
    assert "managedFields" not in kept["metadata"]
    assert "tolerations" not in kept["spec"]
    assert kept["status"]["podIP"] == "10.0.0.7"


@given(st.lists(st.tuples(st.sampled_from(["put", "remove"]), st.integers(1, 20)), max_size=12))
def test_words_that_come_in_any_order_leave_the_newest_one(words: list[tuple[str, int]]) -> None:
    store = Store()
    store.put(resources.POOLS, an_object("rm", pool=None))
    for kind, version in words:
        getattr(store, kind)(resources.CONFIG_MAPS, an_object(version=version, data={"version": version, "kind": kind}))
    newest = max((version for _, version in words), default=0)
    kinds = [kind for kind, version in words if version == newest]
    if len(set(kinds)) == 1:
        assert data(store) == ([{"version": newest, "kind": "put"}] if kinds[0] == "put" else [])
