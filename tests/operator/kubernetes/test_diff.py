"""When a live object is to be applied again."""

from typing import Any

import pytest

from rewardpool_operator.kubernetes.ensure import needs_apply, version_of
from rewardpool_operator.kubernetes.manifests.diff import ANNOTATION_MANIFEST, stamped

MANIFEST = stamped(
    {
        "metadata": {"name": "d", "labels": {"pool": "rm"}},
        "spec": {"replicas": 2, "containers": [{"name": "worker", "cpu": "1000m", "args": ["-a"]}], "volumes": []},
    }
)
DIGEST = MANIFEST["metadata"]["annotations"][ANNOTATION_MANIFEST]


def live(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """The object as an API server gives it back: with more fields, and without empty ones."""
    container = {"name": "worker", "cpu": "1000m", "args": ["-a"], "terminationMessagePath": "/dev/termination-log"}
    return {
        "metadata": {**MANIFEST["metadata"], "uid": "u", "generation": 1, "resourceVersion": "9", **metadata},
        "spec": {"replicas": 2, "containers": [container], "dnsPolicy": "ClusterFirst", **(spec or {})},
        "status": {"replicas": 2},
    }


def test_what_the_api_server_added_is_no_difference() -> None:
    assert not needs_apply(MANIFEST, live(), None)


def test_what_a_list_gives_back_without_its_kind_is_no_difference() -> None:
    assert not needs_apply({"apiVersion": "apps/v1", "kind": "Deployment", **MANIFEST}, live(), None)


@pytest.mark.parametrize(
    "changed",
    [
        live({"replicas": 3}),
        live({"containers": []}),
        live({"containers": [{"name": "worker", "cpu": "1000m", "args": ["-a", "-b"]}]}),
        live(labels={}),
        live(annotations={}),
        live(annotations={ANNOTATION_MANIFEST: "of another manifest"}),
    ],
    ids=["value", "container gone", "argument added", "label gone", "never stamped", "field left the manifest"],
)
def test_a_hand_edit_or_another_manifest_is_a_difference(changed: dict[str, Any]) -> None:
    assert needs_apply(MANIFEST, changed, None)


NORMALISED = live({"containers": [{"name": "worker", "cpu": "1", "args": ["-a"]}]})


def test_a_value_written_in_another_way_is_applied_once() -> None:
    assert needs_apply(MANIFEST, NORMALISED, None)
    assert not needs_apply(MANIFEST, NORMALISED, (DIGEST, version_of(NORMALISED)))


@pytest.mark.parametrize("edit", [{"generation": 2}, {"labels": {}}], ids=["spec", "metadata"])
def test_an_edit_beside_such_a_value_is_seen(edit: dict[str, Any]) -> None:
    edited = {**NORMALISED, "metadata": {**NORMALISED["metadata"], **edit}}
    assert needs_apply(MANIFEST, edited, (DIGEST, version_of(NORMALISED)))
