"""The run of hostile code on a cluster: what it asks can be asked, and what would be an escape counts as one."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rewardpool_api import load_manifest
from sandboxed import manifests, reward
from sandboxed.samples import Answer, Asked, by_code, control, count, hostile, neighbours

HOSTILE = hostile(["/tmp/secret"])


def answer(score: float | None = 0.0, *, index: int = 0, **info: object) -> Answer:
    said = {"outcome": "raised", "message": "PermissionError: no", "version": 1, **info}
    return Answer(index=index, began=0.0, seconds=0.1, attempts=1, score=score, info=said)


def of_kind(kind: str) -> Asked:
    return next(one for one in HOSTILE if one.kind == kind)


@pytest.mark.parametrize(
    ("kind", "given", "counted"),
    [
        ("reach", answer(), set()),
        ("reach", answer(outcome="failed", message="attempt returned 'x'"), {"escaped"}),
        ("reach", answer(message="KeyError: 'x'"), {"escaped"}),
        ("reach", answer(secret_kept=False), {"escaped"}),
        ("end", answer(), {"otherwise"}),
        ("forge", answer(1.0, outcome="passed"), {"forged"}),
        ("forge", answer(None), {"failed"}),
    ],
)
def test_hostile_code_counts_as_what_it_did(kind: str, given: Answer, counted: set[str]) -> None:
    tally = count([of_kind(kind)], [given])
    assert {name for name in ("escaped", "forged", "otherwise", "failed") if getattr(tally, name)} == counted


def test_a_neighbour_without_its_own_score_failed() -> None:
    asked = [replace(neighbours()[0], score=0.5)]
    assert count(asked, [answer(0.5), answer(1.0), answer(None)], lost=1).failed == 3


def test_samples_that_the_old_code_scored_after_the_announcement_are_counted() -> None:
    given = [replace(answer(version=version), began=began) for began, version in ((1.0, 1), (3.0, 1), (4.0, 2))]
    found = by_code([replace(one, revision=f"r{one.info['version']}") for one in given], announced=2.0)
    assert found == {
        "by_version": {"1": 2, "2": 1},
        "revisions": 2,
        "of_two_versions": 0,
        "after_the_announcement": 2,
        "by_the_old_code_after_it": 1,
    }


def test_the_function_gives_the_neighbours_their_scores_and_reaches_what_the_sandbox_keeps() -> None:
    scores = [reward.compute_score("", one.code, None, one.extra_info)["score"] for one in neighbours()]
    assert scores == [one.score for one in neighbours()]
    socket = next(one for one in control() if one.name == "TCP")
    assert reward.compute_score("", socket.code, None, socket.extra_info)["outcome"] == "reached"


def test_the_api_takes_the_pools(tmp_path: Path) -> None:
    manifests.write_function(tmp_path, version=2)
    assert "VERSION = 2\n" in (tmp_path / "rewards.py").read_text()
    pool = yaml.safe_load((tmp_path / "configmap.yaml").read_text())
    assert load_manifest(yaml.safe_dump(pool)).spec.sandbox.concurrency == 2
    weak = load_manifest(yaml.safe_dump(manifests.without_landlock(pool, "weak", {"onMissing": "Weaken"})))
    assert (weak.spec.sandbox.on_missing, weak.spec.replicas) == ("Weaken", 1)
    assert load_manifest(yaml.safe_dump(manifests.without_landlock(pool, "silent", None))).spec.sandbox is None
    load_manifest(yaml.safe_dump(manifests.pool_of_wheel("0" * 64)))
    load_manifest(yaml.safe_dump(manifests.pool_of_git("0" * 40)))
