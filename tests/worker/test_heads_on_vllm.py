"""Declared heads on the real vLLM: a process reward model, and yes against no, scored as transformers does in fp32."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.parity import run, transformers_scores
from support.processes import http
from support.replicas import numbers
from support.tiny_models import CLASSES, STEP
from support.vllm_server import QUICKSTART, VllmServer, running_vllm

from rewardpool_api import load_manifest

# test_heads.py computes the same of what vLLM's pooling gives, and test_transformers_model.py scores by such heads.
pytestmark = [pytest.mark.real, pytest.mark.long]
CLOSE = 1e-3
BEYOND = "<|beyond|>"
TEXTS = [
    f"2 + 2{STEP} = 4{STEP}",
    f"one step{STEP}",
    STEP,
    f"Größe → ≈ 日本{STEP}{STEP}",
    f"{'step by step ' * 20}{STEP}and so on{STEP}",
]


def give_tokenizer_one_token_more(folder: Path) -> None:
    """A token behind the model's last one, as of a checkpoint whose author added [PAD] and did not resize the model."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    token = json.loads((folder / "config.json").read_text())["vocab_size"]
    plain = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    tokenizer["added_tokens"].append({"id": token, "content": BEYOND, "special": True, **plain})
    path.write_text(json.dumps(tokenizer))


def scored(server: VllmServer, given: Any) -> list[dict[str, Any]]:
    request = {"model": server.served_name, "input": given}
    status, _, answer = http("POST", server.url + "/v1/embeddings", request, key=server.key)
    assert status == 200, answer
    return answer.get("data") or [answer["error"]]


@pytest.mark.parametrize("name", ["process-reward", "yes-no-capped"])
def test_a_declared_head_is_scored_as_transformers_does(name: str, tmp_path: Path) -> None:
    run("make", name, str(tmp_path / "model"))
    give_tokenizer_one_token_more(tmp_path / "model")
    expected = transformers_scores(name, tmp_path / "model", TEXTS, tmp_path)
    spec = load_manifest(QUICKSTART / "pool.yaml").spec
    model = spec.model.model_validate({"source": f"file://{tmp_path / 'model'}", "head": CLASSES[name].head})
    with running_vllm(spec.model_copy(update={"model": model}), name, tmp_path) as server:
        together = [numbers(item) for item in scored(server, TEXTS)]
        single = [numbers(scored(server, text)[0]) for text in TEXTS]
        (lost,) = scored(server, "no step at all")
        (beyond,) = scored(server, f"one step{BEYOND}{STEP}")
        assert scored(server, TEXTS[:1])[0]["embedding"]  # a model that was asked for it would be gone
    assert len({round(score, 2) for score, *_ in expected}) > 3
    for found in (together, single):
        assert found == [[pytest.approx(one, abs=CLOSE) for one in item] for item in expected]
    assert (beyond["code"], "token id" in beyond["message"]) == ("invalid_sample", True)
    if name == "process-reward":
        assert (lost["code"], f"'{STEP}'" in lost["message"]) == ("invalid_sample", True)
