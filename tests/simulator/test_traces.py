"""Trace files: what is refused, and in which words."""

from random import Random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_simulator import builtin
from rewardpool_simulator.trace import Duration, TraceError, parse_trace

GOOD = """
seconds: 100
fleet: {maxReplicas: 4, startSeconds: {seconds: 30}, serviceSeconds: {seconds: 1}, concurrency: 4}
figures: {targetPerReplica: 8}
jobs:
  - {name: job, steps: 1, samples: 1, rolloutSeconds: {seconds: 1}, arrivals: AtOnce, updateSeconds: {seconds: 1}}
"""


def text(**changed):
    return yaml.safe_dump(yaml.safe_load(GOOD) | changed)


def job(**changed):
    return {"jobs": [yaml.safe_load(GOOD)["jobs"][0] | changed]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"jobs": []}, "jobs or arrivals"),
        ({"jobs": 2 * job()["jobs"]}, "different names"),
        (job(samples=0), "jobs.0.samples"),
        (job(mode="Sometimes"), "jobs.0.mode"),
        (job(name="Not A Name"), "jobs.0.name"),
        (job(rolloutSeconds={"type": "Uniform", "seconds": 1}), "needs mostSeconds"),
        (job(rolloutSeconds={"type": "Pareto", "seconds": 1}), "needs shape"),
        (job(rolloutSeconds={"seconds": 2, "mostSeconds": 1}), "must not be greater"),
        (job(surprise=1), "jobs.0.surprise"),
        ({"seconds": float("inf")}, "seconds"),
        ({"faults": {"blind": [{"fromSeconds": 5, "untilSeconds": 5}]}}, "faults.blind.0"),
    ],
)
def test_a_wrong_trace_is_refused_by_the_field_s_path(changed, words):
    with pytest.raises(TraceError, match=words):
        parse_trace(text(**changed), name="mine.yaml")


@pytest.mark.parametrize("nonsense", ["", "[", "just words", "- 1"])
def test_what_is_no_trace_is_refused_with_the_file_s_name(nonsense):
    with pytest.raises(TraceError, match=r"mine\.yaml"):
        parse_trace(nonsense, name="mine.yaml")


def test_a_trace_may_be_a_file_and_json_is_yaml(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(parse_trace(GOOD, name="good").model_dump_json(by_alias=True))
    assert builtin.load_trace(str(path)) == parse_trace(GOOD, name="good")


def test_a_name_that_is_neither_is_refused_with_those_there_are():
    with pytest.raises(TraceError, match="sync-grpo"):
        builtin.load_trace("nowhere")


durations = st.builds(
    Duration,
    type=st.sampled_from(["Constant", "Uniform", "Lognormal", "Pareto"]),
    seconds=st.floats(0.1, 10),
    most_seconds=st.floats(10, 100),
    shape=st.floats(0.1, 5),
)


@given(durations, st.integers())
def test_what_is_drawn_is_positive_and_not_more_than_the_most(duration, seed):
    assert 0 < duration.draw(Random(seed)) <= duration.most_seconds
