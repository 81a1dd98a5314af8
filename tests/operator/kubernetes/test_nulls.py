"""Nulls in podTemplates: which of them the status tells of, as stored and as `kubectl apply` was given them."""

import json
from typing import Any

import pytest
from support.kube_builders import a_pool

from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.desired import rendered
from rewardpool_operator.kubernetes.manifests.nulls import LAST_APPLIED, ignored_nulls

PROBE = {"spec": {"containers": [{"name": "worker", "livenessProbe": None}]}}
WITHOUT = {"spec": {"containers": [{"name": "worker"}]}}
PATH = "spec.worker.podTemplate.spec.containers[0].livenessProbe"


def said(template: dict[str, Any], *, applied: Any = None) -> str | None:
    """What is said of a pool with such a worker, which kubectl applied with another one."""
    pool = a_pool(worker={"podTemplate": template})
    if applied is not None:
        manifest = {"spec": {"worker": {"podTemplate": applied}}}
        metadata = pool.metadata.model_copy(update={"annotations": {LAST_APPLIED: json.dumps(manifest)}})
        pool = pool.model_copy(update={"metadata": metadata})
    return ignored_nulls(pool, lambda pool: render.worker_template(pool, image="own:1"))


@pytest.mark.parametrize(
    ("stored", "applied"), [(PROBE, None), (WITHOUT, PROBE), (PROBE, PROBE)], ids=["stored", "dropped", "both"]
)
def test_a_null_is_named_with_what_removes_the_field(stored: dict[str, Any], applied: Any) -> None:
    message = said(stored, applied=applied) or ""
    assert message.count(PATH) == 1
    assert "$patch: delete" in message


@pytest.mark.parametrize(
    ("stored", "applied"),
    [
        ({"spec": {"nodeSelector": None}}, None),
        ({"spec": {"containers": [{"name": "worker", "livenessProbe": {"$patch": "delete"}}]}}, PROBE),
        ({"spec": {"containers": [{"name": "worker", "livenessProbe": {"periodSeconds": 3}}]}}, PROBE),
        ({}, PROBE),
    ],
    ids=["nothing is rendered there", "it is removed now", "it is set now", "its container is gone"],
)
def test_a_null_that_would_remove_nothing_is_not_worth_a_word(stored: dict[str, Any], applied: Any) -> None:
    assert said(stored, applied=applied) is None


def test_a_null_of_a_gateway_is_named() -> None:
    template = {"spec": {"containers": [{"name": "gateway", "livenessProbe": None}]}}
    pool = a_pool(model={"source": "hf://a/b", "type": "Teacher"}, gateway={"podTemplate": template})
    found = rendered(pool, Keys(pool="a", in_force="a", admin="b", gateway="c"), image="own:1").nulls or ""
    assert "spec.gateway.podTemplate.spec.containers[0].livenessProbe" in found


@pytest.mark.parametrize("annotation", ["null", "{null", '{"spec": null}', "[null]", "[" * 100_000 + "null"])
def test_an_annotation_of_anybodys_making_is_no_reason_to_fail(annotation: str) -> None:
    pool = a_pool()
    metadata = pool.metadata.model_copy(update={"annotations": {LAST_APPLIED: annotation}})
    assert ignored_nulls(pool.model_copy(update={"metadata": metadata}), lambda pool: {}) is None
