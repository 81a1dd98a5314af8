"""What one machine does with a manifest that is made for a cluster."""

from pathlib import Path

import pytest
from support.decide_builders import a_pool

from rewardpool_local.machine import NotStartableError, check, lacks_name, unheeded


def test_a_golden_set_is_said_not_to_be_compared_here():
    parity = {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.05}
    (line,) = unheeded(a_pool(rollout={"parity": parity}))
    assert line.startswith("spec.rollout.parity is not checked here")


def test_a_budget_is_said_to_be_shared_with_nobody_here():
    budget = {"name": "gpus", "maxReplicas": 4}
    (line,) = unheeded(a_pool(autoscaling={"maxReplicas": 8, "policy": {"type": "External"}, "budget": budget}))
    assert line.startswith("spec.autoscaling.budget is shared with nobody here")


def test_a_manifest_for_one_machine_means_all_it_says():
    assert unheeded(a_pool()) == ()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("pvc://claim/safe", "pvc:// needs Kubernetes"),
        ("file:///nowhere/safe", "there is no folder /nowhere/safe on this machine"),
    ],
)
def test_an_adapter_that_is_not_here_is_refused_before_anything_starts(source, words):
    adapters = [{"name": "safe", "source": source}]
    pool = a_pool(model={"source": "hf://org/model", "adapters": adapters})
    with pytest.raises(NotStartableError, match=rf"spec\.model\.adapters\[safe\]\.source: {words}"):
        check(pool, port=None, environ={})


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("def score(): ...", False),
        ("async def score(): ...", False),
        ("score = lambda: 1", False),
        ("from elsewhere import score", False),
        ("import elsewhere as score", False),
        ("if 1:\n    def score(): ...", False),
        ("try:\n    from a import score\nexcept ImportError:\n    score = None", False),
        ("from elsewhere import *", False),
        ("def __getattr__(name): ...", False),
        ("globals()['score'] = print", False),
        ("def score(: ...", False),
        ("def scroe(): ...", True),
        ("class Other:\n    def score(self): ...", True),
        ("print(score)", True),
        ("", True),
    ],
)
def test_a_module_is_known_to_lack_a_function_without_being_run(tmp_path: Path, text: str, lacks: bool) -> None:
    source = tmp_path / "rewards.py"
    source.write_text(text)
    assert lacks_name(source, "score") is lacks
