"""What is read from a router's metrics."""

import pytest

from rewardpool_operator.routers.metrics import answered, total

OUTCOMES = """\
# TYPE smg_worker_cb_outcomes_total counter
smg_worker_cb_outcomes_total{worker="http://a:8000",outcome="success"} 42
smg_worker_cb_outcomes_total{worker="http://a:8000",outcome="failure"} 20
smg_worker_cb_outcomes_total{worker="http://b:8000",outcome="success"} 7
"""


def test_only_good_answers_count() -> None:
    assert answered(OUTCOMES) == {"http://a:8000": 42, "http://b:8000": 7}


@pytest.mark.parametrize("value", ["NaN", "-3", "+Inf"])
def test_a_count_that_is_none_is_missing_and_the_others_stay(value: str, caplog: pytest.LogCaptureFixture) -> None:
    assert answered(OUTCOMES.replace("42", value)) == {"http://a:8000": None, "http://b:8000": 7}
    assert "smg_worker_cb_outcomes_total" in caplog.text


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf"])
def test_a_sum_with_one_figure_that_is_no_count_is_missing(value: str) -> None:
    assert total(f'connections{{a="1"}} 5\nconnections{{a="2"}} {value}\n', "connections") is None


def test_what_is_not_there_is_nothing() -> None:
    assert total(OUTCOMES, "connections") == 0


def test_what_is_not_the_format_is_refused() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        total("connections five\n", "connections")
