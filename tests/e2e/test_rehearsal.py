"""What the rehearsal makes of this tree, and what it counts as passed."""

import json
import shutil
from pathlib import Path

import pytest

from cluster.folders import REPOSITORY
from faults.tally import Tally, TrafficLog
from rehearsal.first_scores import first_scores, this_python
from rehearsal.later_version import CRD, RENAMED, RENAMED_TO, later, make_later
from rehearsal.streams import Change, Changes, Row
from release.versions import stated_versions
from scene import StoryError

PARTS = ("pyproject.toml", "CHANGELOG.md", "charts/rewardpool/Chart.yaml", "crds", CRD)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for part in PARTS:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (REPOSITORY / part).is_dir() else shutil.copy)(REPOSITORY / part, tmp_path / part)
    return tmp_path


def version_of(tree: Path) -> str:
    return next(iter(stated_versions(lambda path: (tree / path).read_text()).values()))


def test_the_later_version_has_one_field_under_another_name(tree: Path) -> None:
    now = version_of(tree)
    assert make_later(tree, now) == version_of(tree) == later(now)
    ours, theirs = ((folder / CRD).read_text() for folder in (REPOSITORY, tree))
    assert (RENAMED_TO in ours, RENAMED in theirs) == (False, False)
    assert ours.count("\n") == theirs.count("\n")


def test_a_change_that_finds_nothing_to_change_is_named(tree: Path) -> None:
    now = version_of(tree)
    make_later(tree, now)
    with pytest.raises(StoryError, match=r"pyproject\.toml"):
        make_later(tree, now)


@pytest.mark.parametrize(
    ("samples", "failed", "wrong", "replaced", "asked", "passed"),
    [
        (9, 0, 0, 0, False, True),
        (9, 0, 0, 2, True, True),
        (0, 0, 0, 0, False, False),
        (9, 1, 0, 0, False, False),
        (9, 0, 1, 0, False, False),
        (9, 0, 0, 1, False, False),
        (9, 0, 0, 1, True, False),
    ],
)
def test_a_row_passes_with_every_score_and_only_workers_replaced_that_were_asked_for(
    samples: int, failed: int, wrong: int, replaced: int, asked: bool, passed: bool
) -> None:
    row = Row(
        where="one machine",
        change="nothing",
        client="1.0.0",
        server="1.0.0",
        seconds=1.0,
        tally=Tally(samples=samples, failed=failed, wrong=wrong, retried=0, slowest_seconds=0.1),
        workers=2,
        replaced=replaced,
        asked=asked,
    )
    assert row.passed is passed


def test_what_is_lost_between_two_changes_is_lost_by_the_first(tmp_path: Path) -> None:
    (tmp_path / "began.json").write_text(json.dumps({"began": 0.0, "rate": 1.0}))
    answer = {"seconds": 0.1, "attempts": 1, "score": 0.5, "problem": None}
    answered = (json.dumps({"index": index, **answer}) + "\n" for index in range(10) if index != 4)
    (tmp_path / "samples.jsonl").write_text("".join(answered))
    a, b, c = frozenset("ab"), frozenset("ac"), frozenset("de")
    changes = Changes(
        "one machine", [Change("upgrade", "2.0.0", False, 0, 3, a, a), Change("restart", "2.0.0", True, 5, 8, b, c)]
    )
    upgrade, restart = changes.rows("1.0.0", TrafficLog(tmp_path))
    assert (upgrade.tally.samples, upgrade.tally.failed, upgrade.replaced) == (5, 1, 1)
    assert (restart.tally.samples, restart.tally.failed, restart.replaced) == (3, 0, 2)


def test_a_python_that_is_missing_is_not_had_and_has_not_scored(tmp_path: Path) -> None:
    [row] = first_scores("http://127.0.0.1:1/simple/", "1.0.0", tmp_path, ["3.2"])
    assert (row["python"], row["result"]) == ("3.2", "not had")
    assert "3.2" in row["why"]


def test_a_python_without_the_package_has_failed(tmp_path: Path) -> None:
    [row] = first_scores("http://127.0.0.1:1/simple/", "0.0.0", tmp_path, [this_python()])
    assert row["result"] == "failed"
