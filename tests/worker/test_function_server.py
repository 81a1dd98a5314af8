"""The function server as a real process: contract, key, readiness, drain, and what it leaves behind."""

import json
import re
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest
from support.fleet import server_python
from support.ports import free_port
from support.processes import RealProcess, http, scrape

from rewardpool_api.contract import REQUEST_ID_HEADER, CallerError, parse_answer
from rewardpool_operator.routers.flags import router_flags
from rewardpool_worker import router_launcher
from rewardpool_worker.diagnosis import diagnose
from rewardpool_worker.engine_side.worker_metrics import FAILURES

pytestmark = pytest.mark.real

FUNCTIONS = Path(__file__).parent / "functions"
WITHOUT_GUARDS = (
    "-c",
    """
import sys
from rewardpool_runtime.guard import kernel, syscalls
from rewardpool_worker import function_server
kernel.filter_calls(syscalls.filter_refusing((444, 445, 446, 272), "x86_64"))
sys.exit(function_server.main())
""",
)
"""The server on a machine whose kernel refuses Landlock's calls, and `unshare`, which makes namespaces."""


class Server:
    def __init__(self, process: RealProcess, url: str) -> None:
        self.process, self.url = process, url

    def score(self, *samples: Any, key: str | None = None) -> tuple[int, dict[str, str], Any]:
        texts = [item if isinstance(item, str) else json.dumps(item) for item in samples]
        return http("POST", f"{self.url}/v1/embeddings", {"model": "rm", "input": texts}, key=key)


def a_sample(solution: str) -> dict[str, Any]:
    return {"data_source": "test", "solution_str": solution, "ground_truth": "4", "extra_info": None}


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a server around a function of `functions/rewards.py`; ends with the test."""
    with ExitStack() as stack:

        def started(
            function: str,
            *flags: str,
            port: int | None = None,
            answers: bool = True,
            program: tuple[str, ...] = ("-m", "rewardpool_worker.function_server"),
            **env: str,
        ) -> Server:
            port = port or free_port()
            argv = [sys.executable, *program, "--function", f"rewards:{function}"]
            argv += ["--port", str(port), "--served-name", "rm", *flags]
            log = tmp_path / f"server-{port}.log"
            process = stack.enter_context(RealProcess(argv, log=log, env=env, cwd=FUNCTIONS))
            server = Server(process, f"http://127.0.0.1:{port}")
            if answers:
                process.until(
                    lambda: http("GET", server.url + "/health")[0] == 200, seconds=30, what="the server answers"
                )
            return server

        yield started


def test_a_functions_score_says_whose_it_is(start: Start) -> None:
    server = start("detailed", REWARDPOOL_REVISION="5f1c")
    body = json.dumps({"model": "rm", "input": json.dumps(a_sample("4"))}).encode()
    headers = {"content-type": "application/json", "x-correlation-id": "r-1"}
    with urlopen(Request(f"{server.url}/v1/embeddings", body, headers), timeout=30) as reply:
        answer = json.load(reply)
    assert (answer["request_id"], answer["revision"]) == ("r-1", "5f1c")
    assert answer["worker"].keys() == {"name", "seconds", "ready_seconds"}


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, json.dumps({"model": "rm", "input": "[" * 100_000}).encode()], ids=["request", "sample"]
)
def test_json_that_is_nested_too_deeply_is_the_callers_fault(start: Start, body: bytes) -> None:
    server = start("detailed")
    with urlopen(
        Request(f"{server.url}/v1/embeddings", body, {"content-type": "application/json"}), timeout=30
    ) as said:
        assert json.load(said)["error"]["code"] == "invalid_sample"


@pytest.mark.parametrize(
    ("request_id", "code"),
    [
        ("r-1;revision=other", "other_revision"),
        ("r-1;wire=2", "other_wire"),
        ("r-1;wire=2;revision=5f1c", "other_wire"),
    ],
)
def test_a_function_is_not_called_for_another_revision_or_wire_contract(
    start: Start, request_id: str, code: str
) -> None:
    server = start("detailed", REWARDPOOL_REVISION="5f1c")
    body = json.dumps({"model": "rm", "input": json.dumps(a_sample("4"))}).encode()
    headers = {"content-type": "application/json", "x-correlation-id": request_id}
    with urlopen(Request(f"{server.url}/v1/embeddings", body, headers), timeout=30) as reply:
        answer = json.load(reply)
    assert (answer["error"]["code"], answer["revision"], answer["data"]) == (code, "5f1c", [])


def test_a_functions_score_comes_by_the_contract(start: Start) -> None:
    status, _, answer = start("detailed").score(a_sample("4"), a_sample("5"))
    assert status == 200
    assert parse_answer(json.dumps(answer), count=2) == [1.0, 1.0]
    assert [item["info"]["correct"] for item in answer["data"]] == [True, False]


def test_faults_of_samples_are_answers_that_no_breaker_counts(start: Start) -> None:
    server = start("obedient", "--max-body-bytes", "2000")
    told = []
    for given in [(a_sample("raise"),), ("plain text",), (a_sample("ok"), a_sample("raise")), (a_sample("x" * 3000),)]:
        status, _, answer = server.score(*given)
        error = parse_answer(json.dumps(answer), count=len(given))
        assert isinstance(error, CallerError)
        told.append((status, error.code, error.message))
    assert [line[:2] for line in told] == [
        (200, "function_failed"),
        (200, "invalid_sample"),
        (200, "function_failed"),
        (200, "sample_too_long"),
    ]
    assert re.fullmatch(r"KeyError: 'no such answer' \(rewards.py:\d+ obedient\)", told[0][2])
    assert told[2][2] == f"input 1: {told[0][2]}"
    assert "Traceback (most recent call last):" in server.process.log.read_text()


def test_the_key_guards_scores_and_not_the_probes(start: Start, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    server = start("length", REWARDPOOL_KEY_FILE=str(tmp_path / "key"))
    assert server.score(a_sample("four"))[0] == 401
    assert server.score(a_sample("four"), key="k")[0] == 200
    assert http("GET", server.url + "/v1/models")[0] == 401
    assert http("GET", server.url + "/rewardpool/ready")[0] == 200


def test_the_function_cannot_read_the_pools_key(start: Start, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    server = start("keyless", REWARDPOOL_KEY_FILE=str(tmp_path / "key"))
    _, _, answer = server.score(a_sample(str(tmp_path / "key")), key="k")
    assert answer["error"]["message"].startswith("PermissionError: "), answer
    _, _, report = http("GET", server.url + "/rewardpool/ready")
    assert report["sandbox"] == {"missing": []}


def test_a_server_that_lacks_landlock_and_namespaces_says_so_or_does_not_serve(start: Start, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    given = {"REWARDPOOL_KEY_FILE": str(tmp_path / "key")}
    weak = start("keyless", program=WITHOUT_GUARDS, **given)
    assert weak.score(a_sample(str(tmp_path / "key")), key="k")[2]["data"][0]["embedding"] == [1.0]
    _, _, report = http("GET", weak.url + "/rewardpool/ready")
    missing = report["sandbox"]["missing"]
    assert missing[0].startswith("this machine lacks Landlock")
    assert "the function reaches the pool's key" in missing
    refusing = start("keyless", "--on-missing", "Refuse", program=WITHOUT_GUARDS, answers=False, **given).process
    diagnosis = diagnose(exit_code=refusing.exit_code(seconds=30), log=refusing.log.read_text())
    assert (diagnosis.reason, "lacks Landlock" in diagnosis.message) == ("SandboxUnavailable", True)


@pytest.mark.parametrize(("solution", "status"), [("score", 200), ("raise", 503)])
def test_ready_means_that_the_probe_sample_scores(start: Start, tmp_path: Path, solution: str, status: int) -> None:
    (tmp_path / "probe.json").write_text(json.dumps(a_sample(solution)))
    server = start("obedient", "--probe-sample", str(tmp_path / "probe.json"))
    answered, _, report = http("GET", server.url + "/rewardpool/ready")
    assert (answered, report["ready"]) == (status, status == 200)
    assert status == 200 or "by a fault of the function, or of that sample: " in report["reason"]


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_probe_sample_that_is_none_is_blamed_on_its_file(start: Start, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "probe.json"
    if text is not None:
        file.write_text(text)
    process = start("obedient", "--probe-sample", str(file), answers=False).process
    diagnosis = diagnose(exit_code=process.exit_code(seconds=30), log=process.log.read_text())
    assert (diagnosis.reason, f"--probe-sample {file}: " in diagnosis.message) == ("BadArguments", True)


def test_sigterm_finishes_what_is_in_flight_and_refuses_the_rest(start: Start, tmp_path: Path) -> None:
    server = start("obedient")
    answers: list[Any] = []
    slow = a_sample(f"announce {tmp_path / 'begun'} 1.5")
    asking = threading.Thread(target=lambda: answers.append(server.score(slow)))
    asking.start()
    server.process.until((tmp_path / "begun").exists, seconds=20, what="the slow sample is in flight")
    server.process.signal(signal.SIGTERM)
    server.process.until(lambda: http("GET", server.url + "/health")[0] == 503, seconds=10, what="it drains")
    assert scrape(server.url)["rewardpool_worker_in_flight"] == 1
    status, headers, _ = server.score(a_sample("late"))
    assert (status, headers["connection"]) == (503, "close")
    asking.join(20)
    assert answers[0][0] == 200
    assert server.process.exit_code(seconds=10) == 0


def test_it_tells_how_many_requests_it_holds(start: Start, tmp_path: Path) -> None:
    server = start("obedient")
    assert http("GET", server.url + "/rewardpool/load")[2] == {"in_flight": 0}
    slow = a_sample(f"announce {tmp_path / 'begun'} 1.5")
    asking = threading.Thread(target=lambda: server.score(slow))
    asking.start()
    server.process.until((tmp_path / "begun").exists, seconds=20, what="the slow sample is in flight")
    assert http("GET", server.url + "/rewardpool/load")[2] == {"in_flight": 1}
    asking.join(20)


def test_prometheus_is_told_without_a_key_what_the_server_did(start: Start, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    server = start("obedient", REWARDPOOL_KEY_FILE=str(tmp_path / "key"))
    for given in [(a_sample("a"), a_sample("b")), (a_sample("raise"),), ("plain text",)]:
        server.score(*given, key="k")
    server.score(a_sample("refused"))
    told = scrape(server.url)
    assert told["rewardpool_worker_requests_total"] == 3
    assert told["rewardpool_worker_samples_total"] == 2
    assert told["rewardpool_worker_in_flight"] == 0
    assert told["rewardpool_worker_request_seconds_count"] == 3
    failures = {
        kind: told[f'rewardpool_worker_failures_total{{fault="{faults[0]}",kind="{kind}"}}']
        for kind, faults in FAILURES.items()
    }
    assert failures == dict.fromkeys(FAILURES, 0) | {"invalid_sample": 1, "function_failed": 1}


def test_the_drain_ends_at_its_deadline(start: Start, tmp_path: Path) -> None:
    server = start("obedient", "--drain-seconds", "0.2")
    hung = a_sample(f"announce {tmp_path / 'begun'} 60")
    threading.Thread(target=lambda: server.score(hung), daemon=True).start()
    server.process.until((tmp_path / "begun").exists, seconds=20, what="the slow sample is in flight")
    server.process.signal(signal.SIGTERM)
    assert server.process.exit_code(seconds=10) == 0
    assert "1 requests were still in flight" in server.process.tail()


def test_a_server_that_is_killed_leaves_no_process(start: Start) -> None:
    server = start("obedient", "--concurrency", "2")
    children = psutil.Process(server.process.pid).children(recursive=True)
    server.process.signal(signal.SIGKILL)
    server.process.exit_code(seconds=10)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert len(children) >= 2
    assert not alive


def test_a_misspelt_function_has_a_reason_of_its_own(start: Start) -> None:
    process = start("nothing", answers=False).process
    diagnosis = diagnose(exit_code=process.exit_code(seconds=30), log=process.log.read_text())
    assert diagnosis.reason == "FunctionNotFound"
    assert "rewards:nothing" in diagnosis.message


def test_a_function_with_other_parameters_has_a_reason_and_the_way_out(start: Start) -> None:
    process = start("needs_level", answers=False).process
    diagnosis = diagnose(exit_code=process.exit_code(seconds=30), log=process.log.read_text())
    assert diagnosis.reason == "FunctionNotLoadable"
    assert "names a function with other parameters" in diagnosis.message
    assert "missing a required argument: 'level'" in diagnosis.message


def test_a_port_in_use_is_diagnosed(start: Start) -> None:
    port = int(start("length").url.rsplit(":", 1)[1])
    process = start("length", port=port, answers=False).process
    assert diagnose(exit_code=process.exit_code(seconds=30), log=process.log.read_text()).reason == "PortInUse"


def test_a_wrong_flag_is_diagnosed(start: Start) -> None:
    process = start("length", "--concurency", "2", answers=False).process
    assert diagnose(exit_code=process.exit_code(seconds=30), log=process.log.read_text()).reason == "BadArguments"


def test_scores_and_extras_pass_through_the_real_router(start: Start, tmp_path: Path) -> None:
    server = start("detailed")
    port = free_port()
    flags = router_flags(
        flavor="sglang-router",
        host="127.0.0.1",
        port=port,
        metrics_host="127.0.0.1",
        metrics_port=free_port(),
        request_timeout_seconds=30,
        shutdown_grace_seconds=5,
    )
    url = f"http://127.0.0.1:{port}"
    argv = [server_python(), router_launcher.__file__, *flags]
    with RealProcess(argv, log=tmp_path / "router.log", cwd=tmp_path) as router:
        router.until(lambda: http("GET", url + "/health")[0] == 200, seconds=20, what="the router answers")
        http("POST", url + "/workers", {"url": server.url})
        router.until(lambda: http("GET", url + "/readiness")[0] == 200, seconds=20, what="the worker has joined")
        status, _, answer = http("POST", url + "/v1/embeddings", {"model": "rm", "input": json.dumps(a_sample("4"))})
        assert (status, answer["data"][0]["info"]["correct"]) == (200, True)
    assert "Traceback" not in server.process.log.read_text()  # the router also asked it whether it speaks gRPC


def ask(server: Server, sample: dict[str, Any], request_id: str) -> dict[str, Any]:
    """The answer to one attempt of a request."""
    content = json.dumps({"model": "rm", "input": json.dumps(sample)}).encode()
    headers = {"Content-Type": "application/json", REQUEST_ID_HEADER: request_id}
    request = urllib.request.Request(f"{server.url}/v1/embeddings", content, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())  # type: ignore[no-any-return]


def test_an_attempt_that_comes_while_another_runs_gets_that_ones_answer(start: Start, tmp_path: Path) -> None:
    server = start("counted")
    slow = a_sample(f"{tmp_path / 'calls'} 1.5")
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(ask, server, slow, "trainer-1-7") for _ in range(2)]
        other = threads.submit(ask, server, slow, "trainer-1-8")
        answers = [one.result() for one in asked]
        other.result()
    # Each says how long the worker had been ready when it came.
    assert len({json.dumps({**answer, "worker": None}) for answer in answers}) == 1
    assert (tmp_path / "calls").read_text() == "call\n" * 2


def test_requests_in_work_are_listed_and_prometheus_gets_none_of_the_lines(start: Start, tmp_path: Path) -> None:
    server = start("obedient", "--concurrency", "1")
    with ThreadPoolExecutor(2) as threads:
        threads.submit(ask, server, a_sample(f"announce {tmp_path / 'begun'} 2"), "trainer-1-7")
        server.process.until((tmp_path / "begun").exists, seconds=20, what="the slow sample is in flight")
        threads.submit(ask, server, a_sample("score"), "trainer-1-8")
        series = 'rewardpool_request_seconds{request="trainer-1-8"}'
        server.process.until(lambda: series in scrape(server.url), seconds=1, what="the second one is listed")
        told = scrape(server.url)
        request = urllib.request.Request(f"{server.url}/metrics", headers={"X-Prometheus-Scrape-Timeout-Seconds": "10"})
        scraped = urllib.request.urlopen(request, timeout=10).read().decode()
    assert told["rewardpool_worker_places"] == 1
    assert told['rewardpool_request_seconds{request="trainer-1-7"}'] > 0
    assert told[series] == 0
    assert "rewardpool_worker_places 1" in scraped
    assert "rewardpool_request_seconds" not in scraped


def test_what_a_function_prints_is_in_the_log_with_the_requests_id(start: Start) -> None:
    server = start("printing")
    assert ask(server, a_sample("hello"), "trainer-1-7")["data"][0]["embedding"] == [1.0]
    assert "INFO trainer-1-7: hello" in server.process.log.read_text()


def test_a_crash_names_its_signal_to_who_asks(start: Start) -> None:
    error = start("obedient").score(a_sample("crash"))[2]["error"]
    assert (error["code"], error["fault"]) == ("function_failed", "verifier")
    assert "was killed by SIGSEGV" in error["message"]


def test_a_function_sees_neither_the_key_nor_variables_that_it_was_not_given(start: Start, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    given = {"REWARDPOOL_KEY_FILE": str(tmp_path / "key"), "HF_TOKEN": "secret", "WANTED": "1"}
    server = start("environment", "--env", "WANTED", **given)
    environ = server.score(a_sample(""), key="k")[2]["data"][0]["info"]
    assert environ["WANTED"] == "1"
    assert not set(environ) & {"REWARDPOOL_KEY_FILE", "HF_TOKEN"}


def test_a_call_whose_machine_is_at_fault_is_answered_so_that_it_is_tried_elsewhere(start: Start) -> None:
    server = start("obedient")
    status, _, answer = server.score(a_sample("no-sandbox"))
    assert (status, answer["error"]["code"]) == (503, "starved")
    assert server.score(a_sample("score"))[0] == 200
    assert scrape(server.url)['rewardpool_worker_failures_total{fault="infra",kind="starved"}'] == 1
