"""A gateway before a FakeWorker with the teacher of fifty tokens; no router and no engine."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from support.fake_worker import FakeWorker
from support.local_pool import POOL, write_local_pool
from support.tiny_teacher import teaches

from rewardpool._gateway.opened import open_pool
from rewardpool._gateway.server import GatewaySettings, gateway_app
from rewardpool._policy.text import PolicyText
from rewardpool._rewards import JobFacts


@asynccontextmanager
async def teacher_gateway(
    state_dir: Path,
    *script: Any,
    model_type: Any = "Teacher",
    afterwards: Any = teaches,
    student: Any = None,
    tokenizer: str | None = None,
    vocabulary: str | None = None,
    teacher: bool = False,
    revisions: Sequence[dict[str, Any]] = (),
    **settings: Any,
) -> AsyncIterator[tuple[TestClient[Any, Any], FakeWorker]]:
    """Its client, and the worker, which answers by a script first; `state_dir` is where this process finds pools."""
    async with FakeWorker(*script, afterwards=afterwards) as worker:
        write_local_pool(state_dir, url=worker.url, model_type=model_type, revisions=revisions)
        spec = {"pool": POOL, "timeout": 10}
        opening = open_pool(
            spec,
            JobFacts(rank=0, ranks=1),
            tokenizer=tokenizer,
            policy_tokenizer=student,
            vocabulary=vocabulary,
            teacher=teacher,
            path="gateway",
        )
        app = gateway_app(opening, GatewaySettings(text=PolicyText(), **settings))
        async with TestClient(TestServer(app)) as client:
            yield client, worker
