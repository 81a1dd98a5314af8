"""The manifests of docs/autoscaling.md are what the tests run, and what the API takes."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.external_scaling import hpa

from rewardpool_api import RewardPool, names

PAGE = (Path(__file__).parents[2] / "docs" / "autoscaling.md").read_text()
BLOCKS: list[dict[str, Any]] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
MANIFESTS = {block["kind"]: block for block in BLOCKS if "kind" in block}


def test_the_pool_of_the_page_is_a_pool() -> None:
    pool = RewardPool.model_validate(MANIFESTS[names.KIND])

    assert pool.spec.autoscaling is not None
    assert pool.spec.autoscaling.is_external
    assert pool.spec.replicas is None


def test_the_hpa_of_the_page_is_the_one_that_is_tested() -> None:
    assert MANIFESTS["HorizontalPodAutoscaler"] == hpa("skywork", target=32, maximum=16)


@pytest.mark.parametrize("kind", ["HorizontalPodAutoscaler", "ScaledObject"])
def test_what_scales_names_the_pool(kind: str) -> None:
    target = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "skywork"}

    assert MANIFESTS[kind]["spec"]["scaleTargetRef"] == target
