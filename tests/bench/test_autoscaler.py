"""`make bench-autoscaler`: that its figures are what they are called. The node itself is run by the target alone."""

from typing import Any

import pytest
from autoscaler.aims import aims
from autoscaler.course import Course, Size
from autoscaler.manifests import STEP
from autoscaler.real import Answer, figures_of, is_answered, is_down, is_wanted
from autoscaler.simulated import measure, summary
from autoscaler.step import StepResponse

from rewardpool_simulator import builtin

AT = 100.0
"""When the step comes."""


def a_course(*sizes: tuple[float, int, int]) -> Course:
    """From time, wanted and ready replicas."""
    return Course([Size(at=at, wanted=wanted, ready=ready) for at, wanted, ready in sizes])


def an_answer(seconds: float | None) -> Answer:
    return Answer(before=1, wanted_seconds=seconds, ready_seconds=None, most_wanted=8)


def test_the_response_runs_from_the_step_to_the_first_size_that_answers_it() -> None:
    course = a_course((90, 8, 8), (95, 1, 1), (101, 4, 1), (103, 8, 1), (104, 9, 8))

    assert course.seconds_until(is_wanted, since=AT) == 3
    assert course.seconds_until(is_answered, since=AT) == 4
    assert course.seconds_until(is_down, since=AT) is None


def test_overshoot_is_seen_where_the_size_was_too_large_before_the_step() -> None:
    assert a_course((90, 12, 1), (101, 8, 1)).most_wanted(since=AT) == 12
    assert a_course((90, 12, 1), (95, 1, 1), (101, 8, 1), (102, 9, 1)).most_wanted(since=AT) == 9
    assert a_course().most_wanted(since=AT) == 0


@pytest.mark.parametrize(
    ("policy", "spec", "status", "wanted"),
    [
        ("QueueDepth", {}, {"scaling": {"desired": 8}}, 8),
        ("QueueDepth", {}, {}, 0),
        ("External", {"replicas": 4}, {"scaling": {"desired": 1}}, 4),
    ],
)
def test_an_hpa_asks_by_the_spec_and_the_operator_by_the_status(
    policy: str, spec: dict[str, Any], status: dict[str, Any], wanted: int
) -> None:
    course = Course()
    course.note({"spec": {**spec, "autoscaling": {"policy": {"type": policy}}}, "status": status}, at=1.0)

    assert course.sizes == [Size(at=1.0, wanted=wanted, ready=0)]


def test_the_figure_is_the_median_of_the_steps_that_were_answered() -> None:
    steps = [{"ours": an_answer(ours), "hpa": an_answer(None)} for ours in (1.0, 5.0, 2.0)]
    result = figures_of(steps)

    assert result["real_step_response_seconds"] == 2.0
    assert result["real_hpa_step_response_seconds"] is None
    assert [step["ours"]["wanted_seconds"] for step in result["real_steps"]] == [1.0, 5.0, 2.0]


def a_response(seconds: float | None, *, peak: int = 8) -> StepResponse:
    return StepResponse(seconds=seconds, peak=peak)


def test_a_step_on_paper_is_told_by_the_median_of_its_moments_and_the_largest_overshoot() -> None:
    told = summary([a_response(1.0), a_response(4.0, peak=12), a_response(2.0)])

    assert told == {"median_seconds": 2.0, "least_seconds": 1.0, "most_seconds": 4.0, "most_wanted": 12}


def test_a_policy_that_once_does_not_answer_the_step_has_no_figure() -> None:
    assert summary([a_response(1.0), a_response(None, peak=5)])["median_seconds"] is None


def test_the_half_on_paper_has_the_figures_that_are_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "NAMES", ())
    result = measure(say=lambda _: None)

    assert list(result["step_response_seconds"]) == ["ours", "hpa", "keda", "knative", "kubeai", "aibrix"]
    assert result["step_response_seconds"]["ours"] <= 1.0
    assert result["steps"]["ours"]["most_wanted"] == STEP
    assert result["traces"] == {}


def figures(stall: float, gpu: float) -> dict[str, float]:
    return {"stall_seconds": stall, "gpu_seconds": gpu}


@pytest.mark.parametrize(
    ("demand", "met"),
    [
        (figures(5, 60), [True, True, True]),
        (figures(6, 61), [False, False, True]),
        (figures(101, 91), [False, False, False]),
    ],
)
def test_a_trace_has_three_aims(demand: dict[str, float], met: list[bool]) -> None:
    trace = {"demand": demand, "hpa": figures(100, 90), "knative": figures(500, 50), "always-on-8": figures(0, 100)}
    result = {"real_step_response_seconds": None, "traces": {"grpo": trace}}

    assert [aim.met for aim in aims(result)] == met


def test_the_step_on_the_node_is_to_be_quick_and_exact() -> None:
    step = {"ours": {"most_wanted": 9}}
    result = {"real_step_response_seconds": 2.0, "real_steps": [step], "traces": None}

    assert [aim.met for aim in aims(result)] == [True, False]
