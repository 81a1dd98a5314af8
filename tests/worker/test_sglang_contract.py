"""SGLang's side of the contract, on FakeSglang: its names and the shapes of its answers, and a start of a second.

The launcher and the middleware are the real ones, in a real process started by the real command line.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.env_vars import env_vars
from support.launch_target import KEY, target_in
from support.processes import RealProcess, http

from rewardpool_api import RewardPoolSpec
from rewardpool_api.contract import CallerError, parse_answer
from rewardpool_worker.diagnosis import diagnose
from rewardpool_worker.engines import engine_for

pytestmark = pytest.mark.real
FAKE_SGLANG = Path(__file__).parent / "fake_sglang"


def process(folder: Path, *args: str) -> tuple[RealProcess, str]:
    spec = RewardPoolSpec.model_validate(
        {
            "model": {"source": "file:///models/rm"},
            "engine": {
                "name": "sglang",
                "maxModelLen": 16,
                "sleep": {"enabled": True},
                "args": args,
                "env": env_vars({"PYTHONPATH": str(FAKE_SGLANG)}),
            },
        }
    )
    target = target_in(folder, sleeps=True)
    launch = engine_for("sglang").launch(spec, target)
    real = RealProcess(launch.argv, env=launch.env, log=folder / "sglang.log", cwd=folder)
    return real, f"http://127.0.0.1:{target.port}"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server, url = process(tmp_path_factory.mktemp("sglang"))
    with server:
        server.until(lambda: http("GET", url + "/rewardpool/ready")[0] == 200, seconds=30, what="SGLang scores")
        yield url


def score(url: str, given: Any) -> Any:
    return http("POST", url + "/v1/embeddings", {"model": "rm", "input": given}, key=KEY)


@pytest.mark.parametrize(
    ("given", "scores"), [("abc", [3.0]), (["a", "bb"], [1.0, 2.0]), ([7, 8], [2.0]), ([[7], [8, 9]], [1.0, 2.0])]
)
def test_all_four_input_forms_score(url: str, given: Any, scores: list[float]) -> None:
    status, _, answer = score(url, given)
    assert status == 200
    assert parse_answer(json.dumps(answer), count=len(scores)) == scores


def test_a_sample_that_is_too_long_is_a_200_with_both_lengths(url: str) -> None:
    status, _, answer = score(url, [1] * 17)
    error = parse_answer(json.dumps(answer), count=1)
    assert isinstance(error, CallerError)
    assert (status, error.code, error.length_tokens, error.limit_tokens) == (200, "sample_too_long", 17, 16)


def test_sglangs_own_routes_need_the_key(url: str) -> None:
    assert http("GET", url + "/v1/models")[0] == 401
    assert http("GET", url + "/v1/models", key=KEY)[0] == 200


def test_servers_that_would_ask_for_no_key_are_refused(tmp_path: Path) -> None:
    with process(tmp_path, "--tokenizer-worker-num", "4")[0] as server:
        assert server.exit_code(seconds=20) == 2
        diagnosis = diagnose(exit_code=2, log=server.log.read_text())
        assert (diagnosis.reason, "--tokenizer-worker-num" in diagnosis.message) == ("BadArguments", True)


@pytest.mark.parametrize("given", [[10**9], [[1], [2, -1]], [1.5]])
def test_what_is_no_token_id_is_an_invalid_sample(url: str, given: Any) -> None:
    assert score(url, given)[2]["error"]["code"] == "invalid_sample"


def test_a_model_that_sglang_does_not_serve_is_an_invalid_sample(url: str) -> None:
    _, _, answer = http("POST", url + "/v1/embeddings", {"model": "another", "input": "abc"}, key=KEY)
    assert answer["error"]["code"] == "invalid_sample"


def test_a_wrong_flag_is_diagnosed(tmp_path: Path) -> None:
    with process(tmp_path, "--no-such-flag")[0] as server:
        diagnosis = diagnose(exit_code=server.exit_code(seconds=20), log=server.log.read_text())
        assert diagnosis.reason == "BadArguments"
