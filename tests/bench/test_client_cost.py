"""`make bench-client`: its figures and aims, and its stand-in worker, are what they are called."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from client_cost.aims import aims
from client_cost.figures import Latencies, Round, Setting, quantile, ratio, round_of, summary
from support.fleet import Program, server_python

STAND_IN = Path(__file__).resolve().parents[2] / "bench" / "client_cost" / "stand_in_worker.py"
SETTING = Setting(service_ms=0, concurrency=64)


def rounds(*rates: float) -> list[Round]:
    return [Round(samples_per_second=rate, p50_ms=1.0, p99_ms=2.0) for rate in rates]


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 5.0), (0.99, 10.0), (0.9, 9.0), (0.01, 1.0)], ids=lambda value: str(value)
)
def test_a_quantile_is_one_of_the_values(share: float, expected: float) -> None:
    assert quantile([float(value) for value in range(1, 11)], share) == expected


def test_a_round_is_told_by_its_rate_and_its_latencies() -> None:
    assert round_of([0.003, 0.001, 0.002], seconds=0.006) == Round(samples_per_second=500, p50_ms=2, p99_ms=3)


def test_a_round_tells_its_first_answer_and_how_its_last_fifth_compares_with_its_first() -> None:
    found = round_of([0.1] * 10, seconds=2.0, done_after=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0, 1.2, 1.4])
    assert (found.first_ms, found.last_fifth) == (100.0, pytest.approx(0.5))


def test_samples_are_timed_from_when_the_run_began() -> None:
    now = iter([10.0, 10.5, 11.0])
    found = Latencies(clock=lambda: next(now))
    found.append(0.5)
    found.append(0.7)
    assert (list(found), found.done_after) == ([0.5, 0.7], [0.5, 1.0])


@pytest.mark.parametrize(
    ("concurrency", "first_ms", "met"), [(16_384, 900, [True]), (16_384, 1100, [False]), (64, 9000, [])]
)
def test_a_flood_is_to_have_its_first_answer_soon(concurrency: int, first_ms: float, met: list[bool]) -> None:
    setting = {"service_ms": 0, "concurrency": concurrency, "kind": "text", "ratios": {}}
    ways = {"client": {"first_ms": {"median": first_ms}}}
    assert [aim["met"] for aim in aims({"http": [setting | {"ways": ways}]})] == met


def test_a_round_without_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a sample"):
        round_of([], seconds=1.0)


def test_a_ratio_is_of_each_round_and_not_of_the_medians() -> None:
    # The machine is slow in the second round, for both.
    found = ratio({"one": rounds(100, 10, 90), "other": rounds(50, 5, 100)}, "one", "other")
    assert found == {"median": 2.0, "min": 0.9, "max": 2.0}


def test_a_ratio_of_a_way_that_was_not_run_is_left_out() -> None:
    found = summary(SETTING, {"one": rounds(10), "other": rounds(5)}, {"a": ("one", "other"), "b": ("one", "gone")})
    assert found["ratios"] == {"a": {"median": 2.0, "min": 2.0, "max": 2.0}}
    assert found["ways"]["one"]["samples_per_second"]["median"] == 10


def part(**ratios: float) -> list[dict[str, Any]]:
    named = {name: {"median": value, "min": value, "max": value} for name, value in ratios.items()}
    return [{"service_ms": 0, "concurrency": 64, "kind": "text", "ratios": named, "ways": {}}]


@pytest.mark.parametrize(
    ("result", "met"),
    [
        ({"http": part(**{"client/session": 1.0})}, [True]),
        ({"http": part(**{"client/session": 0.99})}, [False]),
        ({"http": part(**{"session/direct": 0.1})}, []),
        ({"verl": part(**{"plugin/constant batch": 0.89})}, [False]),
        ({"kill": {"client": [{"victim": "the first", "slowest_seconds": 0.2, "lost": 0}]}}, [True]),
        ({"kill": {"client": [{"victim": "the first", "slowest_seconds": 1.1, "lost": 0}]}}, [False]),
        ({"kill": {"client": [{"victim": "the first", "slowest_seconds": 0.2, "lost": 1}]}}, [False]),
        ({"kill": {"verl_stock": [{"victim": "the first", "slowest_seconds": 60.0, "lost": 1}]}}, []),
        ({}, []),
    ],
)
def test_an_aim_is_met_by_the_median_and_by_every_death(result: dict[str, Any], met: list[bool]) -> None:
    assert [aim["met"] for aim in aims(result)] == met


@pytest.fixture
async def stand_in(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a stand-in worker."""
    python = server_python()
    worker = Program(lambda port: [python, str(STAND_IN), "--port", str(port)], env={}, log=tmp_path / "stand-in.log")
    await worker.start()
    try:
        yield worker.url
    finally:
        worker.kill()


@pytest.mark.real
@pytest.mark.parametrize(
    ("given", "scores"),
    [("four", [4.0]), (["one", "three"], [3.0, 5.0]), ([7, 8, 9], [3.0]), ([[7, 8], [9]], [2.0, 1.0])],
    ids=["a text", "texts", "token ids", "several of token ids"],
)
async def test_the_stand_in_scores_by_length(given: Any, scores: list[float], stand_in: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{stand_in}/v1/embeddings", json={"model": "any", "input": given}) as answer,
    ):
        assert [one["embedding"] for one in (await answer.json())["data"]] == [[score] for score in scores]


@pytest.mark.real
async def test_the_stand_in_reads_a_request_that_comes_in_pieces(stand_in: str) -> None:
    body = json.dumps({"input": "four"}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(stand_in.rpartition(":")[2]))
    for piece in (b"POST /v1/embeddings HTTP/1.1\r\n", b"Content-Length: %d\r\n\r\n" % len(body), body[:5], body[5:]):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    writer.close()
