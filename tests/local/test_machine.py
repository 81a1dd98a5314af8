"""What one machine does with a manifest that is made for a cluster."""

from pathlib import Path

import pytest
from support.decide_builders import a_pool

from rewardpool_api import RewardPool, names
from rewardpool_local import machine
from rewardpool_local.machine import NotStartableError, check, folders_of, lacks_name, unheeded, with_code


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


def a_function(reference: str) -> RewardPool:
    return a_pool(model={"source": f"python://{reference}"}, engine={"name": "python"})


def test_a_module_is_looked_for_beside_its_manifest_then_in_pythonpath_then_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, mine, here = (tmp_path / name for name in ("a:b", "mine", "here"))
    pool = a_function("rewards:score")
    for folder in (here, mine, project):  # each one wins over those before
        folder.mkdir()
        monkeypatch.chdir(here)
        (folder / "rewards.py").write_text(f"def score(**_): return {folder.name!r}")
        found, code = with_code(pool, project, {"PYTHONPATH": str(mine)})
        assert code is not None
        assert code.own is not None
        assert folders_of(found) == (project, mine, here)
        assert folders_of(found)[code.own.place.folder] == folder


def test_a_module_that_is_installed_to_be_edited_is_code_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "source" / "my_rewards"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .words import score")
    (package / "words.py").write_text("def score(**_): return 1")
    monkeypatch.setattr(machine, "_run_python", lambda *_: f"{package}/__init__.py\n")
    found, code = with_code(a_function("my_rewards:score"), tmp_path, {})
    assert code is not None
    assert [file.module for file in code.files] == ["my_rewards", "my_rewards.words"]
    assert folders_of(found)[-1] == tmp_path / "source"


def test_a_module_that_is_installed_as_a_copy_is_no_code_of_the_pool(tmp_path: Path) -> None:
    found, code = with_code(a_function("pytest:main"), tmp_path, {})
    assert code is not None
    assert (code.files, names.ANNOTATION_CODE in found.metadata.annotations) == ((), False)
