"""What the workers have in work: read from the router, and what it decides about a slow request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.fake_worker import hangs, right
from support.quick_hedging import quick

from rewardpool import Endpoint, FunctionSample, Pool, RewardConfig, Sample
from rewardpool._client.connections.exchange import HttpAnswer
from rewardpool._client.pool import injected_pool
from rewardpool._client.rules.in_work import (
    ARRIVAL_SECONDS,
    LEAST_AGE_SECONDS,
    MOST_AGE_SECONDS,
    MOST_PLACES,
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    QUESTION_SECONDS,
    QUESTIONS_PER_SECOND,
    Inquiry,
    InWork,
    Verdict,
    pause_between,
    read_listing,
)
from rewardpool.errors import DeadlineError
from rewardpool_api.contract import REQUEST_ID_HEADER, SCORE_PATH
from rewardpool_api.names import FUNCTION_LIMIT, ROUTER_LIMIT, WORKERS_METRICS_PATH

SAID = b"""# TYPE rewardpool_worker_places gauge
rewardpool_worker_places{worker_addr="http://10.0.0.1:8000"} 32
rewardpool_worker_places{worker_addr="http://10.0.0.2:8000"} 4
rewardpool_request_seconds{request="a-1-7",worker_addr="http://10.0.0.1:8000"} 3.25
rewardpool_request_seconds{worker_addr="http://10.0.0.2:8000",request="a-1-8"} 0
rewardpool_request_seconds{request="a-1-9"} NaN
rewardpool_request_seconds{request="a 1"} 1
vllm:num_requests_running{model_name="rm"} 5
"""


def test_places_are_added_up_and_requests_listed() -> None:
    listing = read_listing(SAID, asked_at=1.0)
    assert (listing.places, listing.seconds) == (36, {"a-1-7": 3.25, "a-1-8": 0.0})


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"rewardpool_worker_places{} many\n", b"<html></html>", b"{}"])
def test_what_is_not_a_listing_is_of_another_server(body: bytes) -> None:
    assert not read_listing(body, asked_at=1.0).is_ours


class Asked:
    """InWork on an injected clock; its questions wait to be answered."""

    def __init__(self) -> None:
        self.now = 10.0
        self.questions: list[Inquiry] = []
        self.in_work = InWork(ask=self.questions.append, clock=lambda: self.now)

    def verdict(self, request: str = "a-1-7", *, sent_at: float = 5.0) -> Verdict:
        return self.in_work.verdict(request, sent_at=sent_at)

    def answer(self, body: bytes = SAID, status: int = 200) -> None:
        self.questions[-1].ends(HttpAnswer(status, body, None))


@pytest.mark.parametrize(("request_id", "verdict"), [("a-1-7", "in_work"), ("a-1-8", "in_work"), ("a-1-5", "lost")])
def test_a_request_is_in_work_where_a_worker_lists_it_and_lost_where_none_does(
    request_id: str, verdict: Verdict
) -> None:
    asked = Asked()
    assert asked.verdict(request_id) == "asking"
    asked.answer()
    assert asked.verdict(request_id) == verdict
    assert len(asked.questions) == 1


def test_workers_that_do_not_answer_in_time_are_silent_until_they_answer() -> None:
    asked = Asked()
    asked.verdict()
    asked.now += PATIENCE_SECONDS
    assert asked.verdict() == "silent"
    asked.answer(b"", status=500)
    assert asked.verdict() == "silent"
    asked.now += PAUSE_SECONDS
    asked.verdict()
    asked.answer()
    assert asked.verdict() == "in_work"


def test_a_question_that_is_never_answered_is_given_up_and_asked_again() -> None:
    asked = Asked()
    asked.verdict()
    asked.now += QUESTION_SECONDS
    assert asked.verdict() == "silent"
    assert [one.is_over for one in asked.questions] == [True, False]


@pytest.mark.parametrize("status", [500, 503])
def test_questions_after_an_error_keep_a_distance(status: int) -> None:
    asked = Asked()
    for _ in range(320):
        asked.verdict()
        if asked.questions and not asked.questions[-1].is_over:
            asked.answer(b"", status=status)
        asked.now += 1 / 32
    assert len(asked.questions) <= 10 / PAUSE_SECONDS + 1


def test_the_longest_work_counts_where_two_workers_list_a_request() -> None:
    lines = "".join(f'rewardpool_request_seconds{{request="a-1-7",w="{w}"}} {s}\n' for w, s in (("a", 50), ("b", 0)))
    assert read_listing(lines.encode(), asked_at=1.0).seconds == {"a-1-7": 50.0}


def test_endless_places_are_bounded() -> None:
    body = b'rewardpool_worker_places{w="a"} 1e308\nrewardpool_worker_places{w="b"} 1e308\n'
    assert read_listing(body, asked_at=1.0).places == MOST_PLACES


@pytest.mark.parametrize("is_urgent", [True, False])
def test_a_late_answer_is_no_silence_to_a_request_that_was_in_work(is_urgent: bool) -> None:
    asked = Asked()
    asked.verdict()
    asked.answer()
    asked.now += 20
    assert asked.verdict() == "asking"
    asked.now += 4
    assert asked.in_work.verdict("a-1-7", sent_at=5.0, is_urgent=is_urgent) == "asking"
    assert asked.in_work.verdict("a-1-5", sent_at=5.0, is_urgent=is_urgent) == ("silent" if is_urgent else "asking")
    asked.now += 1
    asked.answer(b"", status=500)
    assert asked.verdict() == "silent"


@pytest.mark.parametrize(("body", "status"), [(b"", 404), (b"vllm:x{} 1\n", 200)])
def test_a_server_that_lists_nothing_is_not_asked_for_every_request(body: bytes, status: int) -> None:
    asked = Asked()
    asked.verdict()
    asked.answer(body, status)
    assert [asked.verdict(f"a-1-{number}") for number in range(3)] == ["unknown"] * 3
    assert len(asked.questions) == 1


def test_an_answer_says_nothing_of_a_request_that_was_sent_after_it() -> None:
    asked = Asked()
    asked.verdict()
    asked.answer()
    asked.now += 0.01
    assert asked.verdict("a-1-5", sent_at=asked.now - ARRIVAL_SECONDS / 2) == "asking"


def fleet(*, trainers: int, workers: int) -> bytes:
    """What a pool lists whose every trainer has one slow request, named a-TRAINER-1."""
    places = "".join(f'rewardpool_worker_places{{w="{worker}"}} 32\n' for worker in range(workers))
    lines = "".join(f'rewardpool_request_seconds{{request="a-{one}-1"}} 60\n' for one in range(trainers))
    return (places + lines).encode()


def questions_of(*, trainers: int, workers: int, seconds: int, status: int = 200) -> list[int]:
    """Questions in each second, where every trainer looks at its slow request four times in it."""
    body = fleet(trainers=trainers, workers=workers)
    all_asked = [Asked() for _ in range(trainers)]
    found = []
    for second in range(seconds):
        before = sum(len(asked.questions) for asked in all_asked)
        for number, asked in enumerate(all_asked):
            for _ in range(4):
                asked.verdict(f"a-{number}-1", sent_at=5.0)
                asked.in_work.refresh(asked.now, older_than=1.0)
                if asked.questions and not asked.questions[-1].is_over:
                    asked.answer(body, 200 if second == 0 else status)
                asked.now += 1 / 4
        found.append(sum(len(asked.questions) for asked in all_asked) - before)
    return found


@pytest.mark.parametrize("status", [200, 503])
def test_all_trainers_together_ask_a_router_a_hundred_times_a_second(status: int) -> None:
    found = questions_of(trainers=200, workers=4, seconds=12, status=status)
    assert found[0] == 200  # nobody knows of the others yet
    assert sum(found[1:]) <= 1.1 * QUESTIONS_PER_SECOND * len(found[1:])


def test_the_more_workers_there_are_the_more_seldom_they_are_asked() -> None:
    pauses = [pause_between(read_listing(fleet(trainers=20, workers=many), asked_at=0.0)) for many in (1, 10, 50)]
    assert pauses == [0.2, 0.2, 1.0]
    assert sum(questions_of(trainers=20, workers=2_000, seconds=60)[1:]) <= 20 * 60 / MOST_AGE_SECONDS


def test_one_trainer_is_not_slowed_down() -> None:
    assert pause_between(read_listing(fleet(trainers=1, workers=100), asked_at=0.0)) < LEAST_AGE_SECONDS


# With a client.


@asynccontextmanager
async def serving(score: Any, listing: Any) -> AsyncIterator[str]:
    """A router that scores and lists as it is told."""
    application = web.Application()
    application.router.add_post(SCORE_PATH, score)
    application.router.add_get(WORKERS_METRICS_PATH, listing)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


def listing_of(asked: list[str], seconds: float) -> Any:
    """Lists the requests that came, each with so many seconds of work."""

    async def listing(_: web.Request) -> web.Response:
        lines = [f'rewardpool_request_seconds{{request="{one}"}} {seconds}\n' for one in asked]
        return web.Response(text="rewardpool_worker_places{} 1\n" + "".join(lines))

    return listing


def pool_at(url: str, **settings: Any) -> Pool:
    return injected_pool(RewardConfig(url=url, **settings), hedging=lambda **given: quick(None, **given))


async def test_a_request_in_work_is_not_asked_for_again_however_long_it_takes() -> None:
    asked: list[str] = []

    async def slow(request: web.Request) -> web.Response:
        asked.append(request.headers[REQUEST_ID_HEADER])
        await asyncio.sleep(0.5)
        return await right(request)

    async with serving(slow, listing_of(asked, 0.1)) as url, pool_at(url) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        assert pool.report().hedges == 0


async def test_a_request_that_no_worker_has_is_asked_for_again() -> None:
    script = [hangs]

    async def score(request: web.Request) -> web.StreamResponse:
        return await (script.pop() if script else right)(request)

    async with serving(score, listing_of([], 0)) as url, pool_at(url) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        assert pool.report().hedges_won == 1


async def test_what_a_request_waits_for_a_place_does_not_count_against_its_deadline() -> None:
    asked: list[str] = []

    async def slow(request: web.Request) -> web.Response:
        asked.append(request.headers[REQUEST_ID_HEADER])
        await asyncio.sleep(2.5)
        return await right(request)

    async with serving(slow, listing_of(asked, 0)) as url, pool_at(url, timeout=1.5) as pool:
        assert await pool.score(Sample(text="four")) == 4.0


async def test_a_deadline_that_passes_in_work_is_the_verifiers_and_says_so() -> None:
    asked: list[str] = []

    async def never(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers[REQUEST_ID_HEADER])
        return await hangs(request)

    async with serving(never, listing_of(asked, 60)) as url, pool_at(url, timeout=0.4) as pool:
        with pytest.raises(
            DeadlineError, match=r"within 0\.4 s, its timeout.*a worker had worked on it for 60"
        ) as caught:
            await pool.score(Sample(text="four"))
    assert caught.value.fault == "verifier"


def found_at(url: str, *, is_fixed_size: bool) -> Any:
    """Discovery that finds a pool of functions there."""

    async def find(_: RewardConfig, **__: Any) -> Endpoint:
        names = {"pool": "rl/checker", "served_name": "checker", "origin": "a test"}
        return Endpoint(url=url, model_type="Function", is_fixed_size=is_fixed_size, **names)

    return find


@pytest.mark.parametrize(("is_fixed_size", "most"), [(True, 2), (False, 8)])
async def test_requests_wait_in_the_job_for_a_place_unless_the_pool_grows_by_those_that_wait(
    is_fixed_size: bool, most: int
) -> None:
    async def listing(_: web.Request) -> web.Response:
        return web.Response(text="rewardpool_worker_places{} 2\n")

    in_flight, seen = 0, 0
    all_came = asyncio.Event()

    async def score(request: web.Request) -> web.Response:
        nonlocal in_flight, seen
        in_flight += 1
        seen = max(seen, in_flight)
        if in_flight == most:
            all_came.set()
        await all_came.wait()
        await asyncio.sleep(0.05)
        in_flight -= 1
        return web.json_response({"data": [{"index": 0, "embedding": [1.0]}]})

    sample = Sample(function=FunctionSample(data_source="", solution_str="x", ground_truth=None))
    async with serving(score, listing) as url:
        config = RewardConfig(pool="rl/checker", concurrency=8, batch=1, hedge=False)
        async with injected_pool(config, find=found_at(url, is_fixed_size=is_fixed_size)) as pool:
            assert await asyncio.gather(*(pool.score(sample) for _ in range(16))) == [1.0] * 16
    assert seen == most


@pytest.mark.parametrize(
    ("limits", "timeout", "says"),
    [
        ({FUNCTION_LIMIT: 60.0, ROUTER_LIMIT: 300.0}, 120.0, []),
        ({FUNCTION_LIMIT: 60.0, ROUTER_LIMIT: 300.0}, 60.0, []),
        ({FUNCTION_LIMIT: 60.0, ROUTER_LIMIT: 300.0}, 20.0, ["spec.sandbox.cpuSeconds plus spec.sandbox.idleSeconds"]),
        ({ROUTER_LIMIT: 300.0}, 600.0, ["spec.router.requestTimeoutSeconds"]),
        ({FUNCTION_LIMIT: 400.0, ROUTER_LIMIT: 300.0}, 350.0, ["Make timeout at least 400", "more than that"]),
        ({}, 1.0, []),
    ],
)
def test_limits_that_disagree_are_named(limits: dict[str, float], timeout: float, says: list[str]) -> None:
    endpoint = Endpoint(url="http://a", pool="a", served_name="a", origin="a test", limits=limits)
    found = endpoint.disagreements(timeout)
    assert [words in sentence for words, sentence in zip(says, found, strict=True)] == [True] * len(says)
