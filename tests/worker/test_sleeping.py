"""Sleeping engines: the real middlewares and launchers, in real processes started by the real command lines.

The engines are stand-ins, StandInVllm and FakeSglang: real ones sleep on GPUs only. What the real vLLM says to the flag
on a CPU is at the end: it refuses the flag, and without it has everything but the memory. Who gets in while an engine
turns is in `test_sleep_gate.py`.
"""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.asgi import ask
from support.env_vars import env_vars
from support.launch_target import KEY, target_in
from support.processes import RealProcess, http
from support.tiny_teacher import computed
from support.vllm_server import START_SECONDS, quickstart_pool

from rewardpool_api import RewardPoolSpec, names
from rewardpool_api.contract import parse_answer
from rewardpool_api.model import ModelType
from rewardpool_api.teacher_wire import LOGPROBS_PATH, parse_values, question
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings
from rewardpool_worker.engines import Launch, engine_for

pytestmark = pytest.mark.real
HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
STAND_INS = {"vllm": HERE / "stand_in_vllm", "sglang": HERE / "fake_sglang"}
ENGINES = pytest.mark.parametrize("engine", ["vllm", "sglang"])


@contextmanager
def running(
    engine: str,
    folder: Path,
    *,
    sleeps: bool = True,
    model: ModelType = "Discriminative",
    without: str = "",
    **env: str,
) -> Iterator[str]:
    """A worker that can sleep, if `sleeps`; yields its URL. `without` is left out of its command line."""
    spec = RewardPoolSpec.model_validate(
        {
            "model": {"source": "file:///models/rm", "type": model},
            "engine": {
                "name": engine,
                "maxModelLen": 512,
                "sleep": {"enabled": sleeps},
                "env": env_vars({"PYTHONPATH": f"{STAND_INS[engine]}:{ROOT / 'tests'}", **env}),
            },
        }
    )
    target = target_in(folder, sleeps=sleeps)
    launch = engine_for(engine).launch(spec, target)
    argv = [part for part in launch.argv if part != without]
    url = f"http://127.0.0.1:{target.port}"
    with RealProcess(argv, env=launch.env, log=folder / "engine.log", cwd=folder) as server:
        server.until(lambda: http("GET", url + names.READY_PATH)[0] == 200, seconds=30, what="it scores")
        yield url


def post(url: str, content: Any = None) -> tuple[int, Any]:
    status, _, answer = http("POST", url, content, key=KEY)
    return status, answer


def score(url: str, text: str) -> float:
    status, answer = post(url + "/v1/embeddings", {"model": "rm", "input": text})
    assert status == 200, answer
    (value,) = parse_answer(json.dumps(answer), count=1)  # type: ignore[misc]
    return float(value)


@ENGINES
def test_a_worker_that_slept_scores_as_before(engine: str, tmp_path: Path) -> None:
    with running(engine, tmp_path) as url:
        before = score(url, "abc")
        for _ in range(2):
            assert post(url + names.SLEEP_PATH) == (200, {"state": "Asleep", "in_flight": 0})
            assert post(url + names.WAKE_PATH) == (200, {"state": "Awake", "in_flight": 0})
        assert score(url, "abc") == before


@ENGINES
def test_a_sleeping_worker_refuses_at_once_and_is_alive_and_not_ready(engine: str, tmp_path: Path) -> None:
    with running(engine, tmp_path) as url:
        score(url, "abc")
        post(url + names.SLEEP_PATH)
        status, answer = post(url + "/v1/embeddings", {"model": "rm", "input": "abc"})
        assert (status, answer["error"]["code"]) == (503, "asleep")
        assert http("GET", url + "/health")[0] == 200
        assert http("GET", url + names.READY_PATH)[0] == 503
        assert http("GET", url + names.LOAD_PATH, key=KEY)[2] == {"in_flight": 0}


@ENGINES
def test_asking_twice_changes_nothing(engine: str, tmp_path: Path) -> None:
    with running(engine, tmp_path) as url:
        assert [post(url + names.SLEEP_PATH)[0] for _ in range(2)] == [200, 200]
        assert http("GET", url + names.SLEEP_PATH, key=KEY)[2]["state"] == "Asleep"
        assert [post(url + names.WAKE_PATH)[0] for _ in range(2)] == [200, 200]


@ENGINES
@pytest.mark.parametrize("path", [names.SLEEP_PATH, names.WAKE_PATH])
def test_sleeping_and_waking_need_the_key(engine: str, path: str, tmp_path: Path) -> None:
    with running(engine, tmp_path) as url:
        assert http("POST", url + path)[0] == 401
        assert http("GET", url + names.SLEEP_PATH, key=KEY)[2]["state"] == "Awake"


@pytest.mark.parametrize(
    ("engine", "path", "sleeps"),
    [
        ("vllm", "/sleep", True),
        ("vllm", "/wake_up", True),
        ("vllm", "/collective_rpc", True),
        ("vllm", "/collective_rpc/", True),
        ("sglang", "/release_memory_occupation", True),
        ("sglang", "/update_weights_from_disk", True),
        ("sglang", "/update_weights_from_disk", False),
    ],
)
def test_the_key_does_not_open_the_engines_own_routes(engine: str, path: str, sleeps: bool, tmp_path: Path) -> None:
    with running(engine, tmp_path, sleeps=sleeps) as url:
        assert http("POST", url + path)[0] == 401
        assert post(url + path, {"tags": ["weights"]})[0] == 404
        assert score(url, "abc") == 3.0


def test_an_engine_at_work_is_not_put_to_sleep(tmp_path: Path) -> None:
    met = threading.Event()

    def score_until_met(url: str) -> set[int]:
        # A sample that finds the engine asleep is refused; one that is being scored is not cut off.
        statuses = set()
        while not met.is_set():
            status, answer = post(url + "/v1/embeddings", {"model": "rm", "input": "abc"})
            statuses.add(status)
            assert status == 503 or parse_answer(json.dumps(answer), count=1) == [3.0]
        return statuses

    with running("vllm", tmp_path) as url, ThreadPoolExecutor() as threads:
        scoring = [threads.submit(score_until_met, url) for _ in range(4)]
        statuses: set[int] = set()
        deadline = time.monotonic() + 30
        while 409 not in statuses and time.monotonic() < deadline:
            statuses.add(post(url + names.SLEEP_PATH)[0])
            post(url + names.WAKE_PATH)
        met.set()
        assert 409 in statuses
        assert set.union(*(one.result() for one in scoring)) <= {200, 503}


@pytest.mark.parametrize(
    ("engine", "fault"),
    [("vllm", {"STAND_IN_LOSES_WEIGHTS": "1"}), ("sglang", {"without": "--enable-weights-cpu-backup"})],
)
def test_an_engine_that_lost_its_weights_scores_nothing(engine: str, fault: dict[str, str], tmp_path: Path) -> None:
    with running(engine, tmp_path, **fault) as url:
        post(url + names.SLEEP_PATH)
        status, answer = post(url + names.WAKE_PATH)
        assert (status, answer["error"]["code"]) == (500, "weights_lost")
        assert post(url + "/v1/embeddings", {"model": "rm", "input": "abc"})[0] == 503


ASKED = question([3, 1, 4, 1, 5, 9], start=2, top_k=3)


@ENGINES
def test_a_teacher_that_slept_gives_the_same_log_probabilities_and_none_asleep(engine: str, tmp_path: Path) -> None:
    in_sglangs_words = {"input_ids": [3, 1], "return_logprob": True, "logprob_start_len": 0}
    with running(engine, tmp_path, model="Teacher") as url:
        for _ in range(2):
            assert post(url + names.SLEEP_PATH) == (200, {"state": "Asleep", "in_flight": 0})
            for words in (ASKED.to_wire(), in_sglangs_words):
                status, answer = post(url + LOGPROBS_PATH, words)
                assert (status, answer["error"]["code"]) == (503, "asleep")
            assert http("GET", url + names.READY_PATH)[0] == 503
            assert post(url + names.WAKE_PATH) == (200, {"state": "Awake", "in_flight": 0})
            assert parse_values(post(url + LOGPROBS_PATH, ASKED.to_wire())[1], ASKED) == computed(ASKED)


@pytest.mark.parametrize(
    ("engine", "fault"),
    [("vllm", {"STAND_IN_LOSES_WEIGHTS": "1"}), ("sglang", {"without": "--enable-weights-cpu-backup"})],
)
def test_a_teacher_that_lost_its_weights_gives_nothing(engine: str, fault: dict[str, str], tmp_path: Path) -> None:
    with running(engine, tmp_path, model="Teacher", **fault) as url:
        post(url + names.SLEEP_PATH)
        status, answer = post(url + names.WAKE_PATH)
        assert (status, answer["error"]["code"]) == (500, "weights_lost")
        assert "differ by 0.73 from those before it slept" in answer["error"]["message"]
        assert post(url + LOGPROBS_PATH, ASKED.to_wire())[0] == 503


def real_vllm(folder: Path) -> tuple[Launch, str]:
    """How a real vLLM that can sleep is started on the quick start's reward model, and its URL."""
    pool = quickstart_pool()
    manifest = pool.spec.model_dump(by_alias=True, exclude_unset=True)
    manifest["engine"]["sleep"] = {"enabled": True}
    manifest["worker"] = {"gpus": 1}
    target = target_in(folder, sleeps=True)
    launch = engine_for("vllm").launch(RewardPoolSpec.model_validate(manifest), target)
    return launch, f"http://127.0.0.1:{target.port}"


@pytest.mark.long
def test_the_real_vllm_refuses_the_flag_on_a_cpu(tmp_path: Path) -> None:
    launch, _ = real_vllm(tmp_path)
    with RealProcess(launch.argv, env=launch.env, log=tmp_path / "log", cwd=tmp_path) as server:
        assert server.exit_code(seconds=120) == 1
        assert "Sleep mode is not supported on current platform" in server.log.read_text()


@pytest.mark.long
def test_the_real_vllm_pauses_and_goes_on_by_the_same_routes(tmp_path: Path) -> None:
    # Without the flag a CPU build serves the routes, pauses its scheduler, and moves no memory.
    launch, url = real_vllm(tmp_path)
    argv = [part for part in launch.argv if part != "--enable-sleep-mode"]
    with RealProcess(argv, env=launch.env, log=tmp_path / "log", cwd=tmp_path) as server:
        server.until(lambda: http("GET", url + names.READY_PATH)[0] == 200, seconds=START_SECONDS, what="it scores")
        before = score(url, "abc")
        assert post(url + "/collective_rpc", {"method": "sleep"})[0] == 404
        assert post(url + names.SLEEP_PATH)[0] == 200
        assert post(url + "/v1/embeddings", {"model": "rm", "input": "abc"})[0] == 503
        assert post(url + names.WAKE_PATH)[0] == 200
        assert score(url, "abc") == before
        assert "setting pause state to PAUSED" in server.log.read_text()


async def fake_judge(scope: Any, receive: Any, send: Any) -> None:
    """FakeJudge: vLLM's routes for sleeping, and a first token whose log-probability is -0.25."""
    logprobs = {"content": [{"token": "The", "logprob": -0.25}]}
    answers = {
        "/sleep": {"status": "sleeping", "level": 1},
        "/wake_up": {"status": "awake", "tags": None},
        "/v1/chat/completions": {"choices": [{"index": 0, "logprobs": logprobs}]},
        "/v1/models": {"data": [{"id": "judge", "max_model_len": 512}]},
    }
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(answers[scope["path"]]).encode()})


def judge(engine: Any) -> ScoreMiddleware:
    settings = Settings(model_type="Generative", served_name="judge", sleep_max_abs_diff=0.01)
    return ScoreMiddleware(engine, settings=settings)


async def test_a_judge_is_known_by_the_log_probability_of_its_first_token() -> None:
    sleeping = judge(fake_judge)
    assert (await ask(sleeping, "POST", names.SLEEP_PATH)).json()["state"] == "Asleep"
    assert (await ask(sleeping, "POST", names.WAKE_PATH)).json()["state"] == "Awake"


async def test_an_engine_that_says_it_is_partly_awake_is_not_believed() -> None:
    async def drowsy(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/wake_up":
            await fake_judge(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"status": "sleeping", "tags": ["weights"]}'})

    sleeping = judge(drowsy)
    await ask(sleeping, "POST", names.SLEEP_PATH)
    reply = await ask(sleeping, "POST", names.WAKE_PATH)
    assert (reply.status, reply.json()["error"]["code"]) == (502, "engine_refused")
    assert (await ask(sleeping, "GET", names.SLEEP_PATH)).json()["state"] == "Asleep"
