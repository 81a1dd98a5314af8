"""A function's code by a ConfigMap, as `kubectl apply -k examples/function` makes it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from rewardpool_api import load_manifest
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.manifests.diff import short_hash

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[3] / "examples" / "function"


def built(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap of a kustomization, and the template of its pool's workers."""
    program = binaries.ensure("kubectl")["kubectl"]
    done = subprocess.run([program, "kustomize", folder], capture_output=True, text=True, timeout=60, check=True)
    objects = {found["kind"]: found for found in yaml.safe_load_all(done.stdout)}
    pool = load_manifest(yaml.safe_dump(objects["RewardPool"]))
    return objects["ConfigMap"], render.worker_template(pool, image="own")


def test_an_edit_of_code_in_a_config_map_is_another_revision_that_mounts_it(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "function")
    revisions = set()
    for text in ("def compute_score(**_): return 1\n", "def compute_score(**_): return 2\n"):
        (folder / "rewards.py").write_text(text)
        config_map, template = built(folder)
        assert (config_map["data"], config_map["immutable"]) == ({"rewards.py": text}, True)
        (worker,) = template["spec"]["containers"]
        code = {"name": "code", "configMap": {"name": config_map["metadata"]["name"]}}
        assert code in template["spec"]["volumes"]
        assert {"name": "code", "mountPath": "/code"} in worker["volumeMounts"]
        (path,) = (one["value"] for one in worker["env"] if one["name"] == "PYTHONPATH")
        assert path.split(":")[-1] == "/code"
        revisions.add(short_hash(template))
    assert len(revisions) == 2
