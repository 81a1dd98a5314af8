"""The real SGLang on a CPU: a worker behind a real router, of a class whose head it gives a bias of its own.

`test_parity.py` compares more classes, samples and replicas, and `test_bad_input.py` has more of what is refused.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.launch_target import KEY
from support.parity import Numbers, Sample, compare, run, samples, transformers_scores
from support.patience import PATIENCE
from support.processes import http
from support.replicas import Replicas, engine_python, replicas, spec_of

from rewardpool_api.contract import CallerError, parse_answer
from rewardpool_worker.mounted import write_worker_zip

pytestmark = pytest.mark.real
CLOSE = 1e-5


@dataclass(frozen=True)
class Pool:
    """A replica of one class, with what transformers computes."""

    replicas: Replicas
    samples: list[Sample]
    expected: list[Numbers]


@pytest.fixture(scope="module", params=["Qwen3", pytest.param("Qwen2", marks=pytest.mark.long)])
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    engine_python("sglang")
    folder = tmp_path_factory.mktemp("sglang")
    run("make", request.param, str(folder / "model"))
    given = samples(60)
    expected = transformers_scores(request.param, folder / "model", given, folder)
    with replicas(spec_of("sglang", folder / "model"), folder, count=1) as started:
        yield Pool(started, given, expected)


def error(answer: Any) -> CallerError:
    found = parse_answer(json.dumps(answer), count=1)
    assert isinstance(found, CallerError)
    return found


def test_it_scores_as_transformers_does(pool: Pool) -> None:
    assert compare(pool.replicas, pool.samples, pool.expected)["max_abs_diff"] <= CLOSE


def test_a_flood_of_token_ids_beyond_the_vocabulary_costs_no_worker(pool: Pool) -> None:
    for bad in [[263], [10**9], [[1], [10**30]], [-1], [1.5], [True], [7] * 2000 + [263]] * 4:
        assert error(pool.replicas.ask(bad)).code == "invalid_sample"
    for url in pool.replicas.urls:
        native = {"input_ids": [4_000_000], "sampling_params": {"max_new_tokens": 1}}
        assert http("POST", url + "/generate", native, key=KEY)[2]["error"]["code"] == "invalid_sample"
        assert pool.replicas.scores(["still here"], url=url)


def test_a_sample_may_have_exactly_as_many_tokens_as_ready_says(pool: Pool) -> None:
    _, _, report = http("GET", pool.replicas.urls[0] + "/rewardpool/ready")
    limit = report["max_model_len"]
    assert len(pool.replicas.scores([[5] * limit, [6] * (limit - 1)])) == 2
    refused = error(pool.replicas.ask([5] * (limit + 1)))
    assert (refused.code, refused.length_tokens, refused.limit_tokens) == ("sample_too_long", limit + 1, limit)


def test_a_model_that_it_does_not_serve_is_a_wrong_model(pool: Pool) -> None:
    assert error(pool.replicas.ask("hello", url=pool.replicas.urls[0], model="another")).code == "wrong_model"


@pytest.mark.parametrize("path", ["/v1/models", "/freeze_gc", "/get_model_info", "/release_memory_occupation"])
def test_sglangs_own_routes_need_the_key(pool: Pool, path: str) -> None:
    assert http("GET", pool.replicas.urls[0] + path)[0] == 401
    assert http("GET", pool.replicas.urls[0] + path, key="wrong")[0] == 401


def test_its_collectors_are_frozen_with_the_key_and_its_log_has_no_line_per_sample(pool: Pool) -> None:
    for log in (path.read_text() for path in pool.replicas.logs):
        assert "score.bias: it is zero" in log
        assert "freeze_gc failed" not in log
        assert "not frozen" not in log
        assert "POST /v1/embeddings" not in log
        assert KEY not in log


REFUSED = [
    ["--tokenizer-worker-num", "4"],
    ["--tokenizer-worker", "4"],
    ["--grpc-port", "50051"],
    ["--grpc-mode"],
    ["--smg-grpc-mode"],
    ["--sidecar", "a.module"],
    ["--enable-http2"],
    ["--use-ray"],
    ["--encoder-only"],
    ["--disaggregation-mode", "prefill"],
    ["--remote-instance-weight-loader-start-seed-via-transfer-engine"],
    ["--allow-auto-truncate"],
    ["--load-format", "dummy"],
]
"""Flags that open a second server, and then those that score something else than the sample."""
STARTS = """
import json, sys
from rewardpool_worker.engine_side import sglang_launcher as it
print([it.main(argv) for argv in json.loads(sys.argv[1])])
"""


@pytest.mark.long  # tests/worker refuses them with a stand-in for SGLang
def test_the_launcher_refuses_each_flag_of_sglangs_that_opens_another_server_or_scores_something_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.yaml").write_text("tokenizer-worker-num: 4")
    flags = [*REFUSED, ["--config", str(tmp_path / "config.yaml")]]
    starts = [["--model-path", "/no-such-model", *some] for some in flags]
    done = subprocess.run(
        [engine_python("sglang"), "-c", STARTS, json.dumps(starts)],
        env={**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": str(write_worker_zip(tmp_path))},
        capture_output=True,
        text=True,
        timeout=300 * PATIENCE,
    )
    *said, codes = [line for line in done.stdout.splitlines() if line.startswith(("error: argument", "["))]
    assert codes == str([2] * len(flags)), done.stderr[-2000:]
    named = [*(flag for flag, *_ in REFUSED), "--tokenizer-worker-num"]
    assert all(line.split()[2].startswith(flag) for line, flag in zip(said, named, strict=True))
