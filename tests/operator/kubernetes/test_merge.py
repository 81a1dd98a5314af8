"""podTemplate over the rendered template, as kubectl's strategic merge would do it."""

from typing import Any

import pytest

from rewardpool_operator.kubernetes.manifests.merge import merged


@pytest.mark.parametrize(
    ("base", "overrides", "result"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": 1, "b": 2}, {"b": {"$patch": "delete"}, "c": {"$patch": "delete"}}, {"a": 1}),
        ({"a": 1, "b": {"x": 1}}, {"a": None, "b": {"x": None}, "c": {"y": None}}, {"a": 1, "b": {"x": 1}, "c": {}}),
        (
            {"volumes": [{"name": "shm", "emptyDir": {}}, {"name": "a", "secret": {}}]},
            {"volumes": [{"name": "shm", "$patch": "delete"}, {"name": "b", "$patch": "delete"}]},
            {"volumes": [{"name": "a", "secret": {}}]},
        ),
        ({"args": ["--a"]}, {"args": ["--b"]}, {"args": ["--b"]}),
        (
            {"containers": [{"name": "worker", "image": "i"}]},
            {"containers": [{"name": "worker", "tty": True}, {"name": "sidecar", "image": "s"}]},
            {"containers": [{"name": "worker", "image": "i", "tty": True}, {"name": "sidecar", "image": "s"}]},
        ),
        (
            {"volumeMounts": [{"mountPath": "/a", "name": "x"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "y"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "y"}]},
        ),
        (
            {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "a", "secret": {}}]},
            {"volumes": [{"name": "shm", "hostPath": {"path": "/shm"}}]},
            {"volumes": [{"name": "shm", "hostPath": {"path": "/shm"}}, {"name": "a", "secret": {}}]},
        ),
        (
            {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]},
            {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]},
            {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]},
        ),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]},
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]},
        ),
        (
            {"livenessProbe": {"httpGet": {"path": "/health"}, "periodSeconds": 10}},
            {"livenessProbe": {"exec": {"command": ["true"]}}},
            {"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10}},
        ),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
    ],
    ids=[
        "value",
        "map",
        "removal",
        "null",
        "removal from a list",
        "list",
        "by name",
        "by path",
        "another volume",
        "the same volume",
        "another variable",
        "another probe",
        "atomic list",
    ],
)
def test_overrides_are_laid_over_the_base(base: Any, overrides: Any, result: Any) -> None:
    assert merged(base, overrides) == result


def test_the_base_stays_as_it_was() -> None:
    base = {"containers": [{"name": "worker", "env": [{"name": "A", "value": "1"}]}]}
    merged(base, {"containers": [{"name": "worker", "env": [{"name": "A", "value": "2"}]}]})
    assert base == {"containers": [{"name": "worker", "env": [{"name": "A", "value": "1"}]}]}


def test_a_user_who_writes_nonsense_gets_it_to_the_api_server() -> None:
    assert merged({"containers": [{"name": "worker"}]}, {"containers": "x"}) == {"containers": "x"}
