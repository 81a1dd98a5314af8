"""Demands as text: what a job writes is what the operator reads, and nothing else is a demand."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rewardpool_api import names
from rewardpool_api.contract import FAULTS
from rewardpool_api.demand import (
    MAX_BYTES,
    MAX_SECONDS,
    Demand,
    DemandError,
    dump_demand,
    job_name,
    lease_manifest,
    lease_name,
    parse_demand,
)
from rewardpool_api.job_scores import FailureCounts, JobScores

JOBS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
POOLS = st.from_regex(names.POOL_NAME_PATTERN.strip("^$"), fullmatch=True)
SECONDS = st.none() | st.floats(0, MAX_SECONDS)
DEMANDS = st.builds(
    Demand,
    job=JOBS,
    phase=st.sampled_from(["Starting", "Rollout", "Update", "Ended"]),
    samples=st.none() | st.integers(0),
    starts_in_seconds=SECONDS,
    every_seconds=SECONDS,
    ends_in_seconds=SECONDS,
    stalled=st.booleans(),
    scores=st.none()
    | st.builds(JobScores, count=st.integers(0, 10**18), mean=st.floats(allow_nan=False, allow_infinity=False)),
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FIELDS = [field.alias or name for name, field in Demand.model_fields.items()]


@given(POOLS, JOBS, POOLS, JOBS)
@example("skywork", "v2-grpo", "skywork-v2", "grpo")
def test_no_two_jobs_and_pools_share_a_lease(pool: str, job: str, other_pool: str, other_job: str) -> None:
    same = (pool, job) == (other_pool, other_job)
    assert (lease_name(pool, job) == lease_name(other_pool, other_job)) == same


@given(DEMANDS)
def test_what_is_written_is_what_is_read(demand: Demand) -> None:
    assert parse_demand(dump_demand(demand)) == demand


@given(st.text() | st.builds(json.dumps, JSON | st.dictionaries(st.sampled_from(FIELDS), JSON)))
def test_any_text_is_a_demand_or_told_to_be_none(text: str) -> None:
    demand, problem = None, ""
    try:
        demand = parse_demand(text)
    except DemandError as error:
        problem = str(error)
    assert (demand is None) == bool(problem)
    assert len(problem) < 512


@pytest.mark.parametrize(
    "text", ["[" * MAX_BYTES, "1" * MAX_BYTES, '"\\ud800"', '{"job": "\\ud800", "phase": "Ended"}']
)
def test_what_breaks_parsers_is_told_to_be_none(text: str) -> None:
    with pytest.raises(DemandError):
        parse_demand(text)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"tokens": -1}, "tokens: Input should be greater than or equal to 0"),
        ({"tokens": "many"}, "tokens: Input should be a valid integer"),
        ({"samples": 10, "tokens": 9}, "tokens must not be fewer than samples"),
        ({"tokensPerSample": 0.5}, "tokensPerSample: Input should be greater than or equal to 1"),
        ({"tokensPerSample": float("nan")}, "tokensPerSample: Input should be"),
        ({"tokensPerSample": 1e300}, "tokensPerSample: Input should be less than or equal to"),
    ],
)
def test_malformed_tokens_are_refused_by_name(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(DemandError, match=problem):
        parse_demand(json.dumps({"job": "a", "phase": "Rollout", **said}))


def test_a_demand_of_before_tokens_is_one_without() -> None:
    demand = parse_demand('{"job": "a", "phase": "Rollout", "samples": 8}')
    assert (demand.samples, demand.tokens, demand.tokens_per_sample) == (8, None, None)


@given(st.text())
def test_any_text_makes_a_name_that_a_job_may_have(text: str) -> None:
    assert Demand(job=job_name(text), phase="Starting").job


@given(DEMANDS)
def test_the_lease_says_what_the_operator_checks(demand: Demand) -> None:
    lease = lease_manifest(demand, pool="rm", namespace="rl", pool_uid="u", seconds=15, now="2026-01-01T00:00:00.0Z")
    assert lease["spec"]["holderIdentity"] == demand.job
    assert lease["metadata"]["name"] == f"demand-rm.{demand.job}"
    assert lease["metadata"]["annotations"] == {names.ANNOTATION_DEMAND: dump_demand(demand)}


def test_failures_are_counted_for_each_fault() -> None:
    assert set(FailureCounts.model_fields) == set(FAULTS)
