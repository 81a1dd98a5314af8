"""`make bench-first-score`: what it makes of many first scores, whom it believes, and what it aims at."""

import json
from typing import Any

import pytest
from first_score import cluster, local, reward
from first_score.aims import PARTS, aims
from first_score.asking import TooLateError, body_of, until
from first_score.figures import UNSEEN, entry

from rewardpool_api import RewardPool


def first(seconds: float, since: str = "2026-01-01T00:00:00Z", **parts: float) -> dict[str, Any]:
    return {"since": since, "seconds": seconds, "parts": parts}


def test_an_entry_has_the_medians_of_the_parts_and_what_the_pool_did_not_see() -> None:
    firsts = [first(1.0, load=0.5, answer=0.5), first(2.0, load=1.5, answer=0.5), first(4.0, load=3.0, answer=1.0)]
    found = entry([1.1, 2.2, 4.1], firsts, alone=[0.4, 0.6, 0.9])
    assert found["seconds"] == {"median": 2.2, "max": 4.1}
    assert found["parts"] == {"load": 1.5, "answer": 0.5, UNSEEN: 0.1}
    assert found["engine_alone"] == {"median": 0.6, "max": 0.9}


def test_where_no_engine_was_started_alone_none_is_told() -> None:
    assert "engine_alone" not in entry([1.0], [first(1.0, load=1.0)])


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, False),
        ({"firstScore": {**first(1.0, "b"), "waitsFor": "Load"}}, False),
        ({"firstScore": first(1.0, "a")}, False),
        ({"firstScore": first(1.0, "b")}, True),
    ],
    ids=["none", "one that goes on", "the one before", "a new one"],
)
def test_a_first_score_counts_once_and_when_it_is_over(status: dict[str, Any], told: bool) -> None:
    assert local.is_told(status, [first(1.0, "a")]) is told


@pytest.mark.parametrize("parked", [0, 1])
def test_both_pools_are_ones_that_rewardpool_takes(parked: int) -> None:
    for manifest in (local.manifest(parked=parked), cluster.function_pool(parked=parked)):
        pool = RewardPool.model_validate(manifest)
        assert pool.spec.autoscaling is not None
        assert (pool.spec.autoscaling.min_replicas, pool.spec.autoscaling.parked) == (0, parked)


def test_a_text_has_its_own_score() -> None:
    sample = json.loads(json.loads(body_of("first", local.TEXT))["input"])
    assert reward.compute_score(**sample) == len(local.TEXT)


def test_what_never_comes_true_is_given_up() -> None:
    with pytest.raises(TooLateError, match="the pool is at zero: not within 0 s"):
        until(lambda: False, what="the pool is at zero", seconds=0.0, pause=0.0)


@pytest.mark.parametrize(
    ("result", "met"),
    [
        ({"function_local": {"seconds": {"median": 1.5}}}, [True]),
        ({"function_local": {"seconds": {"median": 1.6}}, "parked_local": {"seconds": {"median": 0.1}}}, [False, True]),
        ({"function_cluster": {"seconds": {"median": 4.1}}}, [False]),
        ({}, []),
    ],
)
def test_an_aim_is_met_by_the_median(result: dict[str, Any], met: list[bool]) -> None:
    assert [aim["met"] for aim in aims(result)] == met
    assert result.keys() <= set(PARTS)
