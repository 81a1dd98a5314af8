"""A function's code by a git repository, as `examples/function/git.yaml` names it."""

from pathlib import Path

import yaml

from rewardpool_api import load_manifest
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.manifests.diff import short_hash

EXAMPLE = Path(__file__).parents[3] / "examples" / "function" / "git.yaml"


def test_another_commit_is_another_revision_that_fetches_it() -> None:
    manifest = yaml.safe_load(EXAMPLE.read_text())
    (container,) = manifest["spec"]["worker"]["podTemplate"]["spec"]["initContainers"]
    revisions = set()
    for commit in ("1" * 40, "2" * 40):
        container["args"][1] = commit
        template = render.worker_template(load_manifest(yaml.safe_dump(manifest)), image="own")
        (fetching,) = template["spec"]["initContainers"]
        assert fetching["args"][1] == commit
        revisions.add(short_hash(template))
    assert len(revisions) == 2
