"""How a Secret of keys is written, against FakeKube; a real API server is in test_key_rotation_on_control_plane."""

import base64
from typing import Any

import pytest
from support.kube_builders import a_pool

from rewardpool_api import names
from rewardpool_kube.errors import KubeError
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.secret_writer import change_secret, has_surplus

MANIFEST, _ = render.secrets(a_pool(), Keys(pool="k", in_force="k", admin="a"))


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def live(annotations: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    entries = {name.replace("_", "-"): text(value) for name, value in data.items()}
    metadata = {**MANIFEST["metadata"], "resourceVersion": "7", "annotations": annotations or {}}
    return {**MANIFEST, "metadata": metadata, "data": entries}


class FakeKube:
    """Remembers what is written, and refuses the patch with a status if one is given."""

    def __init__(self, refuses: int | None = None) -> None:
        self.patches: list[dict[str, Any]] = []
        self._refuses = refuses

    async def merge(self, _: Any, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.patches.append(patch)
        if self._refuses:
            raise KubeError("patch", status=self._refuses, reason="", message="")
        return patch

    async def get(self, _: Any, namespace: str, name: str) -> dict[str, Any]:
        return live(key="edited meanwhile")


async def test_an_entry_that_ends_goes_whoever_wrote_it_and_what_people_keep_there_stays() -> None:
    kube, found = FakeKube(), live(key="old", next_key="k", theirs="x")
    assert has_surplus(MANIFEST, found)
    await change_secret(kube, MANIFEST, found)  # type: ignore[arg-type]
    (patch,) = kube.patches
    assert patch["data"] == {"key": text("k"), names.NEXT_KEY: None}


def test_what_people_keep_in_a_secret_is_no_surplus() -> None:
    assert not has_surplus(MANIFEST, live({"mine": "x"}, key="k", theirs="x"))


def test_an_annotation_of_a_rotation_that_is_over_is_a_surplus() -> None:
    assert has_surplus(MANIFEST, live({"rewardpool.dev/rotation-step-since": "x"}, key="k"))


async def test_only_the_version_that_was_looked_at_is_changed() -> None:
    kube = FakeKube()
    await change_secret(kube, MANIFEST, live(key="old"))  # type: ignore[arg-type]
    assert kube.patches[0]["metadata"]["resourceVersion"] == "7"


async def test_a_secret_that_was_edited_meanwhile_is_looked_at_again() -> None:
    found = await change_secret(FakeKube(refuses=409), MANIFEST, live(key="old"))  # type: ignore[arg-type]
    assert found["data"] == {"key": text("edited meanwhile")}


async def test_another_refusal_is_told() -> None:
    with pytest.raises(KubeError):
        await change_secret(FakeKube(refuses=403), MANIFEST, live(key="old"))  # type: ignore[arg-type]
