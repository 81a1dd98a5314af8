"""How many requests wait, by tables of figures and a clock of the test's own."""

import pytest
from support.fleet import loopback_flags

from rewardpool_api.contract import WAITING_PAUSE_SECONDS
from rewardpool_operator.routers.sglang_router import RETRY_WINDOW_SECONDS, RetriedRequests, RouterMetrics
from rewardpool_operator.routers.smg import REFUSAL_WINDOW_SECONDS, RefusedRequests


def waits(*readings: tuple[float, int, int, int]) -> int | None:
    """The last answer for readings of (seconds, connections, in flight, retries)."""
    waiting, answer = RetriedRequests(), None
    for now, connections, in_flight, retries in readings:
        answer = waiting.update(RouterMetrics(connections=connections, in_flight=in_flight, retries=retries), now=now)
    return answer


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param([(0, 0, 0, 0)], 0, id="an idle router"),
        pytest.param([(0, 8, 8, 0)], 0, id="all at workers"),
        pytest.param([(0, 0, 0, 0), (1, 7, 0, 20)], 7, id="retries and nobody there"),
        pytest.param([(0, 9, 4, 0), (1, 9, 4, 6)], 5, id="some at workers, others retrying"),
        pytest.param([(0, 0, 0, 0), (9, 40, 0, 0), (10, 40, 0, 50)], 40, id="a burst seen before its first retry"),
        pytest.param([(0, 5, 0, 90)], None, id="seen for the first time, so nothing is known of the retries"),
        pytest.param([(0, 5, 0, 90), (4, 5, 0, 90)], 0, id="a window without a retry: all were leaked"),
        pytest.param([(0, 5, 0, 90), (4, 5, 0, 90), (5, 8, 0, 95)], 3, id="leaked ones are not counted again"),
        pytest.param([(0, 0, 0, 0), (1, 60, 0, 60), (5, 60, 0, 62)], 2, id="no more than the retries of the window"),
        pytest.param([(0, 5, 0, 90), (4, 5, 0, 90), (5, 0, 0, 0)], 0, id="a restarted router"),
        pytest.param([(0, 9, 0, 5), (4, 9, 0, 5), (5, 3, 0, 6)], 1, id="a retry is at least one request"),
    ],
)
def test_waiting(readings: list[tuple[float, int, int, int]], expected: int | None) -> None:
    assert waits(*readings) == expected


@pytest.mark.parametrize("value", ["NaN", "-3", "+Inf"])
def test_a_figure_that_is_no_number_of_requests_is_missing(value: str, caplog: pytest.LogCaptureFixture) -> None:
    assert RouterMetrics.parse(f"smg_http_connections_active {value}\n") is None
    assert "smg_http_connections_active" in caplog.text


def test_figures_are_summed_over_their_series() -> None:
    at_workers = 'smg_worker_requests_active{worker="a"} 2\nsmg_worker_requests_active{worker="b"} 3\n'
    text = at_workers + "smg_http_connections_active 9\n"
    assert RouterMetrics.parse(text) == RouterMetrics(connections=9, in_flight=5, retries=0)


def test_the_window_is_longer_than_the_routers_longest_pause() -> None:
    flags = loopback_flags("sglang-router", 1, metrics_port=2)
    longest_ms = float(flags[flags.index("--retry-max-backoff-ms") + 1])
    assert longest_ms / 1000 * 1.2 < RETRY_WINDOW_SECONDS


def refused(*readings: tuple[float, int]) -> int | None:
    """The last answer of an smg's reader for readings of (seconds, refusals)."""
    waiting, answer = RefusedRequests(), None
    for now, refusals in readings:
        answer = waiting.update(refusals, now=now)
    return answer


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param([(0, 0)], 0, id="an idle router"),
        pytest.param([(0, 0), (1, 10)], 5, id="ten came: as if they had come all the time"),
        pytest.param([(0, 0), (1, 10), (4, 20)], 10, id="ten who come every two seconds"),
        pytest.param([(0, 0), (4, 20), (8, 40), (12, 60)], 10, id="and go on"),
        pytest.param([(0, 0), (4, 20), (8, 20)], 0, id="a window without a refusal"),
        pytest.param([(0, 50)], None, id="seen for the first time"),
        pytest.param([(0, 50), (4, 51)], 1, id="one is one"),
        pytest.param([(0, 50), (1, 0)], 0, id="a restarted router"),
        pytest.param([(0, 50), (20, 150)], 10, id="an operator that looks rarely"),
    ],
)
def test_waiting_at_a_router_that_refuses(readings: list[tuple[float, int]], expected: int | None) -> None:
    assert refused(*readings) == expected


def test_whoever_waits_is_refused_within_the_window() -> None:
    assert max(WAITING_PAUSE_SECONDS) < REFUSAL_WINDOW_SECONDS


def test_only_refusals_for_lack_of_a_worker_count() -> None:
    lines = (
        'smg_http_responses_total{path="/v1/embeddings",status_code="404",error_code="model_not_found"} 3',
        'smg_http_responses_total{path="/v1/embeddings",status_code="503",error_code="no_available_workers"} 5',
        'smg_http_responses_total{path="/v1/embeddings",status_code="401",error_code=""} 99',
    )
    assert RefusedRequests().read("\n".join(lines[2:]) + "\n", now=0) == 0
    waiting = RefusedRequests()
    waiting.read("", now=0)
    assert waiting.read("\n".join(lines) + "\n", now=4) == 4
