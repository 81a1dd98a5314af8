"""Who gets to an engine that goes to sleep, sleeps or wakes: the real middleware around FakeEngine, in one process."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from support.asgi import Reply, ask
from support.tiny_teacher import VOCABULARY, as_sglang, as_vllm
from support.vllm_beside import vllm_beside

from rewardpool_api import names
from rewardpool_api.contract import CHAT_PATH, SCORE_PATH
from rewardpool_api.engines import EngineName
from rewardpool_api.teacher_wire import LOGPROBS_PATH, question
from rewardpool_worker.engine_side.middleware.heads import Head
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings

__all__ = ["vllm_beside"]

pytestmark = pytest.mark.usefixtures("vllm_beside")
IN_PROCESS = "in process"
"""Where FakeEngine is asked without a path."""
STEP, ONE_LABEL = 7, Head()


@dataclass(frozen=True)
class Case:
    """A kind of model on an engine."""

    engine: EngineName
    model_type: str
    path: str
    """Of a request to the worker."""
    content: Any
    work: str
    """Path by which the engine is asked for it."""
    head: Head = ONE_LABEL

    @property
    def sleep_path(self) -> str:
        return {"vllm": "/sleep", "sglang": "/release_memory_occupation"}[self.engine]

    @property
    def wake_path(self) -> str:
        return {"vllm": "/wake_up", "sglang": "/resume_memory_occupation"}[self.engine]


TEXT = {"model": "rm", "input": ["abc"]}
CHAT = {"model": "rm", "messages": [{"role": "user", "content": "abc"}]}
ASKED = question([3, 1, 4], top_k=2).to_wire()
IN_SGLANGS_WORDS = {
    "input_ids": [3, 1, 4],
    "return_logprob": True,
    "logprob_start_len": 0,
    "sampling_params": {"max_new_tokens": 0},
}
STEPS = Head(type="TokenLevel", aggregate="min", step_token="<s>", step_token_id=STEP)
CASES = {
    "a reward on vllm": Case("vllm", "Discriminative", SCORE_PATH, TEXT, "/classify"),
    "a reward on sglang": Case("sglang", "Discriminative", SCORE_PATH, TEXT, SCORE_PATH),
    "steps on vllm": Case(
        "vllm", "Discriminative", SCORE_PATH, {"model": "rm", "input": [[5, STEP]]}, "/pooling", STEPS
    ),
    "a judge on vllm": Case("vllm", "Generative", CHAT_PATH, CHAT, CHAT_PATH),
    "a judge on sglang": Case("sglang", "Generative", CHAT_PATH, CHAT, CHAT_PATH),
    "a teacher on vllm": Case("vllm", "Teacher", LOGPROBS_PATH, ASKED, IN_PROCESS),
    "a teacher on sglang": Case("sglang", "Teacher", LOGPROBS_PATH, ASKED, LOGPROBS_PATH),
    "a teacher in sglang's words": Case("vllm", "Teacher", LOGPROBS_PATH, IN_SGLANGS_WORDS, IN_PROCESS),
}
TEACHERS = [name for name in CASES if "teacher" in name]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


class FakeEngine:
    """FakeEngine answers as vLLM and SGLang do, counts its calls, and holds those to `held` until it is let go."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.offset = 0.0
        self.statuses: dict[str, int] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._reached = asyncio.Condition()

    @asynccontextmanager
    async def held(self, path: str, during: "asyncio.Task[Reply]") -> AsyncIterator[None]:
        """Within this block, which begins once a request that runs is at a path, it stays there."""
        gate = self._held[path] = asyncio.Event()
        before = self.calls[path]
        async with asyncio.timeout(10), self._reached:
            await self._reached.wait_for(lambda: self.calls[path] > before)
        try:
            assert not during.done()
            yield
        finally:
            self._held.pop(path)
            gate.set()

    async def _reach(self, path: str) -> None:
        self.calls[path] += 1
        async with self._reached:
            self._reached.notify_all()
        if path in self._held:
            await self._held[path].wait()

    async def generate(self, prompt: Any, sampling: Any, request_id: str) -> AsyncIterator[Any]:
        """As vLLM's engine, in process."""
        await self._reach(IN_PROCESS)
        flat = as_vllm(prompt["prompt_token_ids"], sampling["prompt_logprobs"])
        flat.logprobs = [one - self.offset for one in flat.logprobs]
        yield SimpleNamespace(prompt_logprobs=flat)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path, given = scope["path"], json.loads(body or b"{}")
        await self._reach(path)
        raw = json.dumps(self._answer(path, given)).encode()
        start = {"type": "http.response.start", "status": self.statuses.get(path, 200)}
        await send({**start, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": raw})

    def _answer(self, path: str, given: Any) -> Any:
        samples = range(len(given.get("input", ())))
        if path == "/v1/models":
            return {"data": [{"id": "rm", "max_model_len": 512}]}
        if path == "/wake_up":
            return {"status": "awake", "tags": None}
        if path == "/classify":
            return {"data": [{"index": one, "probs": [0.5 + self.offset]} for one in samples]}
        if path == SCORE_PATH:
            return {"data": [{"index": one, "embedding": [0.5 + self.offset]} for one in samples]}
        if path == "/pooling":
            rows = [sample.count(STEP) for sample in given["input"]]
            return {"data": [{"index": one, "data": [[0.5 + self.offset]] * rows[one]} for one in samples]}
        if path == CHAT_PATH:
            first = {"token": "The", "logprob": -0.25 - self.offset}
            return {"choices": [{"index": 0, "logprobs": {"content": [first]}}]}
        if path == LOGPROBS_PATH:
            said = as_sglang(given)
            own = said["meta_info"]["input_token_logprobs"]
            own[1:] = [[logprob - self.offset, *rest] for logprob, *rest in own[1:]]
            return said
        return {}


class Worker:
    """A worker of a case around FakeEngine."""

    def __init__(self, case: Case, *, certificate_seconds: float = 0.0) -> None:
        self.case = case
        self.engine = FakeEngine()
        settings = Settings(
            served_name="rm",
            engine=case.engine,
            model_type=case.model_type,
            head=case.head,
            certificate_seconds=certificate_seconds,
            sleep_max_abs_diff=0.01,
        )
        middleware = ScoreMiddleware(self.engine, settings=settings)
        config = SimpleNamespace(get_vocab_size=lambda: VOCABULARY)
        of_vllm = {"vllm_config": SimpleNamespace(model_config=config), "engine_client": self.engine}
        state = of_vllm if case.engine == "vllm" else {"vocabulary_size": VOCABULARY}
        app = SimpleNamespace(state=SimpleNamespace(**state))

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await middleware({**scope, "app": app}, receive, send)

        self._application = application

    async def work(self) -> Reply:
        return await ask(self._application, "POST", self.case.path, self.case.content)

    async def sleep(self) -> Reply:
        return await ask(self._application, "POST", names.SLEEP_PATH)

    async def wake(self) -> Reply:
        return await ask(self._application, "POST", names.WAKE_PATH)

    async def get(self, path: str) -> Reply:
        return await ask(self._application, "GET", path)

    async def is_shut(self) -> None:
        """Assert that nobody gets to the engine, and that it is said so."""
        before = self.engine.calls[self.case.work]
        reply = await self.work()
        assert (reply.status, reply.json()["error"]["code"]) == (503, "asleep")
        ready = await self.get(names.READY_PATH)
        assert (ready.status, ready.json()["reason"]) == (503, "the engine sleeps; POST /rewardpool/wake wakes it")
        assert self.engine.calls[self.case.work] == before


def code(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.json()["error"]["code"]


async def test_it_answers_before_a_sleep_and_after_a_wake_and_not_between(case: Case) -> None:
    worker = Worker(case)
    first = await worker.work()
    assert (first.status, "error" in first.json()) == (200, False)
    assert (await worker.sleep()).json() == {"state": "Asleep", "in_flight": 0}
    await worker.is_shut()
    assert (await worker.get("/health")).json()["state"] == "Asleep"
    assert (await worker.wake()).json() == {"state": "Awake", "in_flight": 0}
    again = await worker.work()
    assert (again.status, "error" in again.json()) == (200, False)
    assert (await worker.get(names.READY_PATH)).status == 200


Ask = Callable[[Worker], Any]


@pytest.mark.parametrize("ask_it", [Worker.work, lambda worker: worker.get(names.READY_PATH)], ids=["work", "a probe"])
async def test_an_engine_at_work_is_not_put_to_sleep(case: Case, ask_it: Ask) -> None:
    worker = Worker(case)
    asking = asyncio.create_task(ask_it(worker))
    async with worker.engine.held(case.work, asking):
        assert code(await worker.sleep()) == (409, "busy")
        assert worker.engine.calls[case.sleep_path] == 0
        assert (await worker.get(names.SLEEP_PATH)).json() == {"state": "Awake", "in_flight": 1}
    assert (await asking).status == 200
    assert (await worker.sleep()).status == 200


@pytest.mark.parametrize("name", TEACHERS)
async def test_a_teachers_certificate_is_work_too(name: str) -> None:
    case = CASES[name]
    worker = Worker(case, certificate_seconds=20.0)
    asking = asyncio.create_task(worker.get(names.READY_PATH))
    async with worker.engine.held(case.work, asking):
        pass  # the probe
    async with worker.engine.held(case.work, asking):
        assert code(await worker.sleep()) == (409, "busy")
    assert (await asking).json()["certificate"]["outcome"] == "Certified"


@pytest.mark.parametrize("turns", ["to sleep", "awake"])
async def test_nobody_gets_in_while_the_engine_turns(case: Case, turns: str) -> None:
    worker = Worker(case)
    if turns == "awake":
        await worker.sleep()
    path = case.wake_path if turns == "awake" else case.sleep_path
    turning = asyncio.create_task(worker.wake() if turns == "awake" else worker.sleep())
    async with worker.engine.held(path, turning):
        await worker.is_shut()
    assert (await turning).status == 200
    assert (await worker.get(names.SLEEP_PATH)).json()["state"] == ("Awake" if turns == "awake" else "Asleep")


async def test_an_engine_that_does_not_sleep_goes_on(case: Case) -> None:
    worker = Worker(case)
    worker.engine.statuses[case.sleep_path] = 500
    assert code(await worker.sleep()) == (502, "engine_refused")
    assert (await worker.work()).status == 200


@pytest.mark.parametrize(("off", "found"), [(0.009, 200), (0.011, 500)])
async def test_a_wake_is_believed_within_the_bound(case: Case, off: float, found: int) -> None:
    worker = Worker(case)
    await worker.sleep()
    worker.engine.offset = off
    reply = await worker.wake()
    assert reply.status == found
    if found == 500:
        assert reply.json()["error"]["code"] == "weights_lost"
        await worker.is_shut()


async def test_an_engine_without_numbers_after_its_wake_stays_shut(case: Case) -> None:
    worker = Worker(case)
    await worker.sleep()
    worker.engine.offset = float("nan")
    assert code(await worker.wake()) == (502, "engine_refused")
    await worker.is_shut()


async def test_a_worker_that_never_sleeps_has_no_such_routes() -> None:
    never = ScoreMiddleware(FakeEngine(), settings=Settings(served_name="rm"))
    for path in (names.SLEEP_PATH, names.WAKE_PATH):
        assert (await ask(never, "POST", path)).status == 404
