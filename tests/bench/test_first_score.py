"""`make bench-first-score`: what it makes of many first scores, whom it believes, and what it aims at."""

import json
import threading
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from first_score import asking, cluster, local, reward, vllm, warm
from first_score.aims import PARTS, aims
from first_score.asking import TooLateError, body_of, until
from first_score.bursts import Burst, read, warm_bursts
from first_score.engine_log import phases_of_log
from first_score.figures import UNSEEN, entry

from overlay import Environment
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


def test_the_pools_that_jobs_announce_to_go_by_it() -> None:
    spec = RewardPool.model_validate(warm.pool(warm.POOLS[0])).spec
    assert spec.autoscaling is not None
    assert [policy.type for policy in spec.autoscaling.policies or ()] == ["QueueDepth", "Demand"]


def test_the_pool_on_vllm_is_one_that_rewardpool_takes_and_its_pods_share_their_caches() -> None:
    server = Environment(folder=Path("/venv"), base=Path("/usr"))
    made = vllm.pool(Path("/caches"), server=server)
    spec = RewardPool.model_validate(made).spec
    assert spec.engine.variables["VLLM_CACHE_ROOT"] == "/caches/vllm"
    (worker,) = made["spec"]["worker"]["podTemplate"]["spec"]["containers"]
    assert {"name": "host-write-0", "mountPath": "/caches", "readOnly": False} in worker["volumeMounts"]


BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def test_phases_of_a_start_end_with_the_lines_of_its_log() -> None:
    log = "2026-01-01T00:00:02.500000000Z imported\n2026-01-01T00:00:03.123456789Z other\n2026-01-01T00:00:04Z loaded a"
    marks = (("imports", "imported"), ("never told", "nothing"), ("weights", "loaded"))
    found = phases_of_log(log, marks, began=BEGAN, answered=BEGAN.timestamp() + 5)
    assert found == {"imports": 2.5, "weights": 1.5, "first score": 1.0}


def burst(**differing: Any) -> dict[str, Any]:
    usual = {
        "pool": "a",
        "burst": 3,
        "announced": True,
        "ready": 1,
        "least_ready": 0,
        "first_seconds": 0.1,
        "wrong": [],
    }
    return usual | differing


@pytest.mark.parametrize(
    ("differing", "is_warm"),
    [
        ({}, True),
        ({"ready": 0}, False),
        ({"ready": 0, "first_seconds": 0.02}, True),
        ({"first_seconds": 1.4}, False),
    ],
    ids=["served", "nobody served", "served before the status said so", "answer after a start"],
)
def test_a_burst_is_warm_by_the_status_and_by_its_first_answer(differing: dict[str, Any], is_warm: bool) -> None:
    assert Burst(**burst(**differing)).is_warm is is_warm


def test_announced_bursts_alone_are_counted() -> None:
    told = [burst(announced=False), burst(), burst(least_ready=1), burst(ready=0, first_seconds=2.0)]
    log = "\n".join(["a line of the client's log", *map(json.dumps, told)])
    assert warm_bursts(read(log)) == {
        "of": 3,
        "warm": 2,
        "warm_by_status": 2,
        "from_zero": 2,
        "first_seconds": {"median": 0.1, "max": 2.0},
        "cold": [burst(ready=0, first_seconds=2.0)],
    }


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([burst(wrong=["3.0 instead of 4"])], "1 samples were not scored as they should, such as a, burst 3: 3.0"),
        ([burst(announced=False)], "no burst was announced"),
    ],
)
def test_bursts_with_wrong_scores_and_none_at_all_are_no_figure(told: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        warm_bursts([Burst(**one) for one in told])


class GivesUp(BaseHTTPRequestHandler):
    """A router, played: it refuses with the statuses given, then it answers."""

    statuses: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status = self.statuses.pop(0) if self.statuses else 200
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"embedding": [4.0]}]}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), GivesUp)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_router_that_gives_up_is_asked_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "AGAIN_SECONDS", 0.0)
    GivesUp.statuses = [503, 503]
    assert asking.ask(url, key="k", body=b"{}")[1] == 4.0


def test_a_request_that_is_refused_is_not_sent_again(url: str) -> None:
    GivesUp.statuses = [401]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        asking.ask(url, key="k", body=b"{}")


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
        ({"warm_bursts": {"of": 50, "warm": 50}}, [True]),
        ({"warm_bursts": {"of": 50, "warm": 49}}, [False]),
        ({}, []),
    ],
)
def test_an_aim_is_met_by_the_median(result: dict[str, Any], met: list[bool]) -> None:
    assert [aim["met"] for aim in aims(result)] == met
    assert result.keys() <= set(PARTS)
