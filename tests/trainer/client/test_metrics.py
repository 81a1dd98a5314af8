"""What a trainer's process tells Prometheus, and the trace that goes on behind its requests."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from support.fake_worker import FakeWorker, says
from support.pauses import no_pause
from support.score_waits import waits_on

from rewardpool import Pool, Report, RewardConfig, Sample
from rewardpool._client import tracing
from rewardpool._client.metrics import COUNTS, ReportCollector, ScoreWaitCollector
from rewardpool._client.pool import injected_pool


async def test_a_report_is_told_to_prometheus_as_it_is_when_scraped() -> None:
    registry = CollectorRegistry()
    async with FakeWorker(says("", status=500)) as worker:
        config = RewardConfig(url=worker.url, pool="rl/skywork")
        async with injected_pool(config, call_later=no_pause) as pool:
            registry.register(ReportCollector(pool))
            await pool.score(Sample(text="four"))
            text = generate_latest(registry).decode()
    assert 'rewardpool_client_scored_total{pool="rl/skywork"} 1.0' in text
    assert 'rewardpool_client_retries_total{kind="worker",pool="rl/skywork"} 1.0' in text
    assert 'rewardpool_client_concurrency{pool="rl/skywork"} 64.0' in text
    assert 'rewardpool_client_latency_seconds{pool="rl/skywork",quantile="0.99"}' in text


def test_the_parts_of_the_latest_step_are_exported_to_prometheus() -> None:
    times = iter([6.0, 10.0, 10.0])  # it waits from the one to the other, and the step ends
    waits = waits_on(times.__next__, begin=0.0)
    registry = CollectorRegistry()
    registry.register(ScoreWaitCollector(waits))
    assert "rewardpool_client_score_wait{" not in generate_latest(registry).decode()
    with waits.waiting():
        waits.spent("serving", 0.0, 8.0)
    waits.lap()
    text = generate_latest(registry).decode()
    assert 'rewardpool_client_score_wait{part="serving"} 0.2' in text
    assert 'rewardpool_client_score_wait{part="other"} 0.2' in text


def test_every_count_is_one_of_the_reports() -> None:
    assert set(COUNTS) <= set(Report.__dataclass_fields__)


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def headers_sent(monkeypatch: pytest.MonkeyPatch, import_module: Callable[[str], Any]) -> dict[str, str]:
    """With a sample, in a process whose modules are imported like this."""
    monkeypatch.setattr(tracing.importlib, "import_module", import_module)
    tracing._inject.cache_clear()
    try:
        async with FakeWorker() as worker, Pool(RewardConfig(url=worker.url)) as pool:
            await pool.score(Sample(text="four"))
    finally:
        tracing._inject.cache_clear()
    return worker.headers[0]


async def test_the_trace_context_is_sent_where_opentelemetry_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = SimpleNamespace(inject=lambda headers: headers.update(traceparent=TRACEPARENT))
    headers = await headers_sent(monkeypatch, {"opentelemetry.propagate": stand_in}.__getitem__)
    assert headers["traceparent"] == TRACEPARENT


async def test_the_trace_of_a_sample_that_waited_is_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    span: ContextVar[str] = ContextVar("span")

    async def score(pool: Pool, name: str) -> float:
        span.set(name)
        return await pool.score(Sample(text=name))

    stand_in = SimpleNamespace(inject=lambda headers: headers.update(traceparent=span.get("none")))
    monkeypatch.setattr(tracing, "_inject", lambda: stand_in.inject)
    async with FakeWorker() as worker, Pool(RewardConfig(url=worker.url, concurrency=1)) as pool:
        await asyncio.gather(*(score(pool, name) for name in "abc"))
    assert [headers["traceparent"] for headers in worker.headers] == ["a", "b", "c"]


async def test_without_opentelemetry_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    assert "traceparent" not in await headers_sent(monkeypatch, missing)
