"""Every rendered object under several sets of values, as kubeconform -strict sees it, by an API server's schemas."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from cluster.control_plane import ControlPlane
from cluster.kubectl import wait_for_crd
from rewardpool_api.crd import crd_yaml

from .conftest import Render
from .schemas import TEMPLATE, write_schemas

pytestmark = pytest.mark.real

MONITORING = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
"""Kinds of the Prometheus operator, whose CRDs no test cluster here has."""

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one operator": {"replicas": 1, "metrics": {"enabled": False}, "topologySpreadConstraints": None},
    "two namespaces": {"watch": {"namespaces": ["a", "b"]}},
    "everything": {
        "crds": {"install": True, "keep": False},
        "metrics": {
            "namespaces": ["monitoring"],
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "podMonitor": {"enabled": True},
            "workerPodMonitor": {"enabled": True, "interval": "1m"},
            "alerts": {"enabled": True},
            "dashboards": {"enabled": True, "annotations": {"folder": "RL"}},
        },
        "networkPolicy": {"enabled": True},
        "page": {"enabled": True, "namespaces": ["ingress"]},
        "trainers": [{"namespace": "rl", "pools": ["skywork"], "serviceAccounts": [{"namespace": "rl", "name": "t"}]}],
        "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}],
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "podAnnotations": {"a": "b"},
        "log": {"format": "text", "verbose": True},
    },
    "defaults of all pools": {
        "poolDefaults": {
            "imageRegistry": "registry.example/mirror",
            "imagePullSecrets": [{"name": "mirror"}],
            "worker": {"tolerations": [{"key": "gpu", "operator": "Exists"}], "priorityClassName": "scoring"},
        },
    },
    "an admission policy": {
        "admissionPolicy": {
            "enabled": True,
            "actions": ["Warn", "Audit"],
            "namespaceSelector": {"matchLabels": {"a": "b"}},
            "modelSources": ["hf://org/"],
            "imageRegistries": ["registry.example/"],
            "maxReplicas": 8,
            "maxGpusPerReplica": 1,
            "requiredLabels": ["team"],
            "podTemplate": {"pod": ["securityContext"], "container": ["securityContext"], "volumes": []},
        },
    },
    "the usual names": {
        "nameOverride": "rewards",
        "commonLabels": {"team": "rl"},
        "extraArgs": ["--verbose"],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
        "podSecurityContext": {"fsGroup": 2000},
        "securityContext": {"runAsNonRoot": True},
    },
}


@pytest.fixture(scope="module")
def schemas(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    plane.kubectl("apply", "--server-side", "-f", "-", input=crd_yaml())
    wait_for_crd(plane.kubectl, "rewardpools.rewardpool.dev")
    folder = tmp_path_factory.mktemp("schemas")
    assert write_schemas(json.loads(plane.kubectl("get", "--raw", "/openapi/v2")), folder) > 100
    return folder


def complaints(schemas: Path, objects: list[dict[str, Any]]) -> list[str]:
    """What kubeconform says is wrong."""
    program = binaries.ensure("kubeconform")["kubeconform"]
    done = subprocess.run(
        [program, "-strict", "-output=json", "-verbose", f"-schema-location={schemas}/{TEMPLATE}", "-"],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    checked = json.loads(done.stdout)["resources"]
    assert len(checked) == len(objects), done.stderr
    return [f"{item['kind']} {item['name']}: {item['msg']}" for item in checked if item["status"] != "statusValid"]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_kubeconform_finds_nothing_to_complain_about(schemas: Path, render: Render, values: dict[str, Any]) -> None:
    objects = [item for item in render(**values) if item["kind"] not in MONITORING]
    assert not complaints(schemas, objects)


def test_kubeconform_would_find_a_field_that_does_not_exist(schemas: Path, render: Render) -> None:
    (deployment,) = [item for item in render() if item["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Never"
    (complaint,) = complaints(schemas, [deployment])
    assert "imagePullPolice" in complaint
