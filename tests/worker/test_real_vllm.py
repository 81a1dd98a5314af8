"""The score middleware in a real vLLM, behind a real sglang-router that has both keys."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.fleet import server_python
from support.ports import free_port
from support.processes import RealProcess, http
from support.vllm_server import VllmServer

from rewardpool_api.contract import CallerError, parse_answer
from rewardpool_operator.routers.flags import router_flags
from rewardpool_worker import router_launcher

pytestmark = pytest.mark.real
ADMIN_KEY = "the-routers-own-key"


@pytest.fixture(scope="module")
def router(vllm_server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a router with the worker in it."""
    folder = tmp_path_factory.mktemp("router")
    (folder / "key").write_text(vllm_server.key)
    (folder / "admin").write_text(ADMIN_KEY)
    flags = router_flags(
        flavor="sglang-router",
        host="127.0.0.1",
        port=(port := free_port()),
        metrics_host="127.0.0.1",
        metrics_port=free_port(),
        request_timeout_seconds=30,
        shutdown_grace_seconds=5,
    )
    env = {"REWARDPOOL_KEY_FILE": str(folder / "key"), "REWARDPOOL_ADMIN_KEY_FILE": str(folder / "admin")}
    argv = [server_python(), router_launcher.__file__, *flags]
    url = f"http://127.0.0.1:{port}"
    with RealProcess(argv, env=env, log=folder / "router.log", cwd=folder) as process:
        process.until(lambda: http("GET", url + "/health")[0] == 200, seconds=20, what="the router answers")
        assert http("POST", url + "/workers", {"url": vllm_server.url}, key=ADMIN_KEY)[0] == 202
        process.until(lambda: http("GET", url + "/readiness")[0] == 200, seconds=20, what="the worker has joined")
        yield url
        assert ADMIN_KEY not in process.log.read_text()
        assert vllm_server.key not in process.log.read_text()


def score(url: str, server: VllmServer, given: Any) -> Any:
    request = {"model": server.served_name, "input": given}
    status, _, answer = http("POST", url + "/v1/embeddings", request, key=server.key)
    assert status == 200
    return answer


@pytest.mark.parametrize(
    "given",
    ["a text of vowels: aeiou", ["one", "two", "aaa"], [10, 20, 30], [[10, 20, 30], [40], [50, 60]]],
    ids=["text", "texts", "token ids", "lists of token ids"],
)
def test_all_four_input_forms_score_the_raw_logit(router: str, vllm_server: VllmServer, given: Any) -> None:
    samples = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    alone = [score(router, vllm_server, sample)["data"][0]["embedding"][0] for sample in samples]
    answer = score(router, vllm_server, given)
    assert [item["embedding"][0] for item in answer["data"]] == pytest.approx(alone, abs=1e-5)
    assert any(abs(value) > 1e-4 for value in alone)


def test_the_worker_is_ready_and_says_how_long_a_sample_may_be(vllm_server: VllmServer) -> None:
    status, _, report = http("GET", vllm_server.url + "/rewardpool/ready")
    assert status == 200
    assert report["max_model_len"] == vllm_server.max_model_len
    assert 0 < report["score_seconds"] < 30


@pytest.mark.parametrize(
    ("given", "length"),
    [("y" * 600, 600), ("xx " * 5000, 15000), (["fits", "y" * 700], 700), ([[7], [7] * 513], 513)],
    ids=["one token too many for its tokenizer", "too many characters", "second of two", "token ids"],
)
def test_a_sample_that_is_too_long_has_both_lengths_in_tokens(
    router: str, vllm_server: VllmServer, given: Any, length: int
) -> None:
    error = parse_answer(json.dumps(score(router, vllm_server, given)), count=1)
    assert isinstance(error, CallerError)
    assert (error.code, error.length_tokens, error.limit_tokens) == ("sample_too_long", length, 512)


@pytest.mark.parametrize("given", ["", [4_000_000]], ids=["empty", "not in the vocabulary"])
def test_what_vllm_refuses_is_an_invalid_sample(router: str, vllm_server: VllmServer, given: Any) -> None:
    assert score(router, vllm_server, given)["error"]["code"] == "invalid_sample"


def test_bad_samples_do_not_take_the_pool_out_of_service(router: str, vllm_server: VllmServer) -> None:
    for _ in range(30):
        assert score(router, vllm_server, "y" * 600)["error"]["code"] == "sample_too_long"
    assert len(score(router, vllm_server, "still here")["data"]) == 1


@pytest.mark.parametrize("key", [None, "wrong", ADMIN_KEY])
def test_nobody_scores_without_the_pools_key(router: str, vllm_server: VllmServer, key: str | None) -> None:
    request = {"model": vllm_server.served_name, "input": "hello"}
    assert http("POST", router + "/v1/embeddings", request, key=key)[0] == 401
    assert http("POST", vllm_server.url + "/v1/embeddings", request, key=key)[0] == 401


def test_the_pools_key_does_not_open_the_routers_worker_list(router: str, vllm_server: VllmServer) -> None:
    assert http("GET", router + "/workers", key=vllm_server.key)[0] == 401
    assert http("GET", router + "/workers", key=ADMIN_KEY)[2]["total"] == 1


def test_vllm_is_started_by_no_command_that_it_is_about_to_drop(vllm_server: VllmServer) -> None:
    assert "command is deprecated" not in vllm_server.log.read_text()


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_probes_and_prometheus_need_no_key(vllm_server: VllmServer, path: str) -> None:
    assert http("GET", vllm_server.url + path)[0] == 200


def test_a_callers_mistakes_are_no_fault_of_the_worker(router: str, vllm_server: VllmServer) -> None:
    key, scored = vllm_server.key, score(router, vllm_server, "four")
    for _ in range(12):
        wrong = {"model": "Skywork/Skywork-Reward-V2", "input": "four"}
        status, _, answer = http("POST", f"{router}/v1/embeddings", wrong, key=key)
        assert (status, answer["error"]["code"]) == (200, "wrong_model")
        assert 400 <= http("POST", f"{router}/v1/embeddings", b'{"model": ', key=key)[0] < 500
        chat = {"model": vllm_server.served_name, "messages": [{"role": "user", "content": "x"}]}
        status, _, answer = http("POST", f"{router}/v1/chat/completions", chat, key=key)
        assert (status, answer["error"]["code"]) == (200, "invalid_sample")
    assert score(router, vllm_server, "four")["data"] == scored["data"]
