"""The manifests of examples/ are ones that an API server takes, and name each other rightly."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rewardpool._rewards.config import parse_reward
from rewardpool._rewards.part_config import PoolPart
from rewardpool_api import load_manifest
from rewardpool_api.pool import RewardPool
from rewardpool_cli.catalogue.entries import ENTRIES

EXAMPLES = Path(__file__).parents[1] / "examples"
POOLS = EXAMPLES / "pools"
DOCUMENTS: list[tuple[Path, dict[str, Any]]] = [
    (file, document) for file in sorted(EXAMPLES.rglob("*.yaml")) for document in yaml.safe_load_all(file.read_text())
]
MANIFESTS = [(file, document) for file, document in DOCUMENTS if document.get("kind") == "RewardPool"]


def pool(name: str) -> RewardPool:
    """The pool of a file of examples/pools/."""
    [found] = [document for file, document in MANIFESTS if file == POOLS / f"{name}.yaml"]
    return load_manifest(yaml.safe_dump(found))


@pytest.mark.parametrize(("file", "document"), MANIFESTS, ids=lambda it: it.stem if isinstance(it, Path) else "")
def test_every_pool_is_one_that_is_taken(file: Path, document: dict[str, Any]) -> None:
    load_manifest(yaml.safe_dump(document), origin=str(file))


def test_no_two_pools_to_copy_have_the_same_name() -> None:
    names = [document["metadata"]["name"] for file, document in MANIFESTS if file.parent == POOLS]
    assert len(names) == len(set(names)) == 7


@pytest.mark.parametrize(("name", "model"), [("one-gpu", "skywork-reward-v2-qwen3"), ("several-gpus", "worldpm")])
def test_a_popular_model_is_served_as_the_catalogue_has_it(name: str, model: str) -> None:
    [entry] = [entry for entry in ENTRIES if entry.name == model]
    assert entry.pool is not None
    shown, known = pool(name).spec, entry.pool.spec
    assert shown.model.source == known.model.source
    assert (shown.model.head, shown.model.type) == (known.model.head, known.model.type)
    assert shown.engine.tensor_parallel_size == known.engine.tensor_parallel_size
    assert shown.worker.gpus == known.worker.gpus


def test_the_mixture_is_a_reward_of_the_pools_beside_it() -> None:
    spec = parse_reward(yaml.safe_load((POOLS / "mixture.yaml").read_text())["reward"])
    pools = [part.client.pool for part in spec.parts if isinstance(part, PoolPart)]
    assert pools == [f"rl/{pool(name).metadata.name}" for name in ("one-gpu", "judge", "function")]


def test_keda_scales_the_pool_beside_it_within_its_bounds() -> None:
    [scaled] = [document for _, document in DOCUMENTS if document.get("kind") == "ScaledObject"]
    target = pool("keda")
    assert target.spec.autoscaling is not None
    assert scaled["spec"]["scaleTargetRef"]["name"] == target.metadata.name
    assert scaled["spec"]["maxReplicaCount"] == target.spec.autoscaling.max_replicas
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    assert f'namespace="{target.metadata.namespace}",pool="{target.metadata.name}"' in query


def test_the_readme_lists_every_file() -> None:
    readme = (POOLS / "README.md").read_text()
    assert [file.name for file in sorted(POOLS.glob("*.yaml")) if f"({file.name})" not in readme] == []
