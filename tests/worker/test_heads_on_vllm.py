"""Declared heads on the real vLLM: a process reward model, and yes against no, scored as transformers does in fp32."""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.fleet import ROOT, server_python
from support.processes import http
from support.vllm_server import QUICKSTART, VllmServer, running_vllm

from rewardpool_api import load_manifest

pytestmark = pytest.mark.real
CLOSE = 1e-3


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both models, and what transformers computes with them."""
    folder = tmp_path_factory.mktemp("heads")
    script = ROOT / "tests" / "support" / "head_models.py"
    subprocess.run([server_python(), str(script), str(folder)], check=True, capture_output=True, timeout=900)
    return folder


def scored(server: VllmServer, given: Any) -> list[dict[str, Any]]:
    request = {"model": server.served_name, "input": given}
    status, _, answer = http("POST", server.url + "/v1/embeddings", request, key=server.key)
    assert status == 200, answer
    return answer.get("data") or [answer["error"]]


def start(models: Path, name: str, head: dict[str, Any], folder: Path) -> Any:
    spec = load_manifest(QUICKSTART / "pool.yaml").spec
    model = spec.model.model_validate({"source": f"file://{models / name}", "head": head})
    return running_vllm(spec.model_copy(update={"model": model}), name, folder)


def test_every_step_of_a_process_reward_model_is_scored_as_transformers_does(models: Path, tmp_path: Path) -> None:
    expected = json.loads((models / "expected.json").read_text())
    head = {"type": "TokenLevel", "stepToken": "<extra_0>", "aggregate": "product"}
    with start(models, "prm", head, tmp_path) as server:
        together = scored(server, expected["texts"])
        single = [scored(server, text)[0] for text in expected["texts"]]
        (lost,) = scored(server, "no step at all")
    values = [[1 / (1 + math.exp(no - yes)) for no, yes in steps] for steps in expected["prm"]]
    assert len({round(value, 2) for steps in values for value in steps}) > 4
    for answers in (together, single):
        for answer, steps in zip(answers, values, strict=True):
            assert answer["steps"] == pytest.approx(steps, abs=CLOSE)
            assert answer["embedding"] == [pytest.approx(math.prod(steps), abs=CLOSE)]
    assert (lost["code"], "'<extra_0>'" in lost["message"]) == ("invalid_sample", True)


def test_yes_against_no_is_scored_without_writing_a_word_as_transformers_does(models: Path, tmp_path: Path) -> None:
    expected = json.loads((models / "expected.json").read_text())
    head = {"type": "LMHead", "yesToken": "yes", "noToken": "no"}
    with start(models, "lm", head, tmp_path) as server:
        together = scored(server, expected["texts"])
        single = [scored(server, text)[0] for text in expected["texts"]]
    odds = [yes - no for no, yes in expected["lm"]]
    assert max(odds) - min(odds) > 0.1
    for answers in (together, single):
        assert [answer["embedding"] for answer in answers] == [[pytest.approx(one, abs=CLOSE)] for one in odds]
