"""`make bench-client`: its figures and aims, and its stand-in worker, are what they are called."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from client_cost.aims import aims
from client_cost.figures import Round, Setting, quantile, ratio, round_of, summary
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
    return [{"service_ms": 0, "concurrency": 64, "ratios": named}]


@pytest.mark.parametrize(
    ("result", "met"),
    [
        ({"http": part(**{"client/session": 0.95})}, [True]),
        ({"http": part(**{"client/session": 0.949})}, [False]),
        ({"http": part(**{"session/direct": 0.1})}, []),
        ({"verl": part(**{"plugin/constant batch": 0.9})}, [False]),
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
