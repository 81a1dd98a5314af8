"""The client's calls against a real API server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio.client import Configuration

from cluster.control_plane import ControlPlane
from rewardpool_kube import client, resources
from rewardpool_kube.client import Kube
from rewardpool_kube.configuration import load_configuration
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_operator.kubernetes.manifests.managed_fields import own_as_applied

pytestmark = pytest.mark.real

NAMESPACE = "default"


@pytest.fixture
async def kube(control_plane: ControlPlane) -> AsyncIterator[Kube]:
    configuration = await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)})
    async with Kube(configuration) as kube:
        yield kube


def a_config_map(*, name: str = "client-test", label: str = "client", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"test": label}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}


async def test_a_field_that_an_apply_leaves_out_goes_although_it_came_by_a_creation(kube: Kube) -> None:
    await kube.create(resources.CONFIG_MAPS, a_config_map(name="made", label="made", data={"a": "1", "b": "2"}))
    await own_as_applied(kube, resources.CONFIG_MAPS, NAMESPACE, "made")
    left = await kube.apply(resources.CONFIG_MAPS, a_config_map(name="made", label="made", data={"a": "3"}))
    assert left["data"] == {"a": "3"}
    assert [entry["operation"] for entry in left["metadata"]["managedFields"]] == ["Apply"]


async def test_an_object_is_made_found_changed_and_deleted(kube: Kube) -> None:
    await kube.apply(resources.CONFIG_MAPS, a_config_map(data={"a": "1", "b": "2"}))
    await kube.apply(resources.CONFIG_MAPS, a_config_map(data={"a": "3"}))
    (found,) = await kube.list(resources.CONFIG_MAPS, NAMESPACE, selector="test=client")
    assert found["data"] == {"a": "3"}
    for _ in range(2):
        await kube.delete(resources.CONFIG_MAPS, NAMESPACE, "client-test")
    assert await kube.get(resources.CONFIG_MAPS, NAMESPACE, "client-test") is None


async def test_an_object_that_changed_meanwhile_is_not_deleted(kube: Kube) -> None:
    seen = await kube.apply(resources.CONFIG_MAPS, a_config_map(name="versions", data={"a": "1"}))
    newer = await kube.apply(resources.CONFIG_MAPS, a_config_map(name="versions", data={"a": "2"}))
    with pytest.raises(KubeError) as caught:
        await kube.delete(resources.CONFIG_MAPS, NAMESPACE, "versions", version=seen["metadata"]["resourceVersion"])
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    await kube.delete(resources.CONFIG_MAPS, NAMESPACE, "versions", version=newer["metadata"]["resourceVersion"])
    assert await kube.get(resources.CONFIG_MAPS, NAMESPACE, "versions") is None


async def test_a_netrc_file_that_names_the_server_changes_nothing(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))

    async with Kube(await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)})) as kube:
        assert await kube.serves(resources.POOLS)


async def test_a_field_that_does_not_exist_is_refused_by_name(kube: Kube) -> None:
    with pytest.raises(KubeError, match="imagine"):
        await kube.apply(resources.CONFIG_MAPS, a_config_map(imagine=1))


async def test_only_kinds_that_are_installed_are_served(kube: Kube) -> None:
    assert await kube.serves(resources.POOLS)
    assert not await kube.serves(resources.Resource("rewardpool.dev", "v9", "rewardpools"))


@pytest.mark.parametrize("old_style", [False, True], ids=["events.k8s.io", "core"])
async def test_the_newest_warning_about_a_pod_is_found(kube: Kube, old_style: bool) -> None:
    uid = f"uid-{old_style}"
    about = {"kind": "Pod", "name": "p", "namespace": NAMESPACE, "uid": uid}
    for hour, kind in enumerate(["Warning", "Warning", "Normal"]):
        await kube.create(*an_event(f"{uid}.{hour}", about, kind, f"2026-01-01T0{hour}:00:00.000000Z", old_style))
    assert await kube.last_warning(NAMESPACE, uid) == "FailedMount: at 2026-01-01T01:00:00.000000Z"
    assert await kube.last_warning(NAMESPACE, "somebody else") is None


def an_event(
    name: str, about: dict[str, str], kind: str, time: str, old_style: bool
) -> tuple[resources.Resource, dict[str, Any]]:
    """As new components write it, or as the kubelet does."""
    event: dict[str, Any] = {"metadata": {"name": name.lower(), "namespace": NAMESPACE}, "type": kind}
    event |= {"kind": "Event", "reason": "FailedMount"}
    if old_style:
        event |= {"apiVersion": "v1", "involvedObject": about, "message": f"at {time}"}
        event |= {"firstTimestamp": time[:19] + "Z", "lastTimestamp": time[:19] + "Z", "count": 1}
        return resources.Resource("", "v1", "events"), event
    event |= {"apiVersion": "events.k8s.io/v1", "regarding": about, "note": f"at {time}", "eventTime": time}
    event |= {"action": "Mount", "reportingController": "test/controller", "reportingInstance": "one"}
    return resources.EVENTS, event


async def test_a_list_comes_in_pages_and_a_watch_goes_on_from_it(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAGE", 2)
    for name in ("page-a", "page-b", "page-c"):
        await kube.apply(resources.CONFIG_MAPS, a_config_map(name=name, label="pages"))
    pages = [page async for page in kube.pages(resources.CONFIG_MAPS, "", selector="test=pages")]
    assert [len(page.items) for page in pages] == [2, 1]
    await kube.delete(resources.CONFIG_MAPS, NAMESPACE, "page-b")
    events = kube.watch(resources.CONFIG_MAPS, "", version=pages[0].version, seconds=10, selector="test=pages")
    first = await anext(events)
    await events.aclose()
    assert (first.type, first.object["metadata"]["name"]) == ("DELETED", "page-b")


async def test_a_watch_that_is_refused_is_an_error(kube: Kube) -> None:
    with pytest.raises(KubeError, match="imagine"):
        await anext(kube.watch(resources.CONFIG_MAPS, NAMESPACE, version="imagine", seconds=1))


async def test_an_api_server_that_is_not_there_is_away_until_it_answers() -> None:
    async with Kube(Configuration(host="http://127.0.0.1:9")) as kube:
        assert not kube.is_away()
        with pytest.raises(KubeUnreachableError):
            await kube.get(resources.PODS, NAMESPACE, "p")
        assert kube.is_away()
