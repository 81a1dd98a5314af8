"""The engine `transformers`: what loads a checkpoint, which number is read out of its output, and batches."""

import json
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.custom_head import REWARD, expected
from support.fleet import ROOT, server_python
from support.patience import PATIENCE

from rewardpool_worker.diagnosis import diagnose
from rewardpool_worker.engine_side.transformers_model import (
    AmbiguousOutputError,
    ModelRefusedError,
    loader,
    own_code,
    read_scores,
)
from rewardpool_worker.mounted import write_worker_zip

KNOWN = {"LlamaForSequenceClassification", "LlamaForCausalLM", "Phi3ForSequenceClassification"}
AUTO = "AutoModelForSequenceClassification"
GATED = {"architectures": ["LlamaGated"], "auto_map": {AUTO: "modeling.LlamaGated"}}
INTERN = {"architectures": ["InternReward"], "auto_map": {"AutoConfig": "c.Config", "AutoModel": "m.InternReward"}}
PLAIN = {"architectures": ["LlamaForSequenceClassification"]}
OVERRIDDEN = {**PLAIN, "auto_map": {AUTO: "modeling.LlamaForSequenceClassification"}}
LEFT_OVER = {
    "architectures": ["Phi3ForSequenceClassification"],
    "auto_map": {"AutoModelForCausalLM": "m.Phi3ForCausalLM"},
}


@pytest.mark.parametrize(
    ("config", "own", "by"),
    [
        (GATED, f"{AUTO}: modeling.LlamaGated", AUTO),
        (INTERN, "AutoModel: m.InternReward", "AutoModel"),
        (OVERRIDDEN, f"{AUTO}: modeling.LlamaForSequenceClassification", AUTO),
        (PLAIN, None, AUTO),
        (LEFT_OVER, None, AUTO),
    ],
    ids=["gated", "intern", "overridden", "plain", "code of another head"],
)
def test_a_checkpoint_is_loaded_by_its_own_code_where_its_head_is_there(
    config: dict[str, Any], own: str | None, by: str
) -> None:
    assert own_code(config, is_known=KNOWN.__contains__) == own
    assert loader(config, is_known=KNOWN.__contains__) == by


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["LlamaForCausalLM"]},
        {"architectures": ["DebertaV2PairRM"]},
        {"architectures": ["Unheard"], "auto_map": {"AutoConfig": "c.Config"}},
        {},
    ],
    ids=["generates", "code elsewhere", "config alone", "nothing"],
)
def test_a_checkpoint_without_a_head_is_refused_by_its_architecture(config: dict[str, Any]) -> None:
    with pytest.raises(ModelRefusedError, match=config.get("architectures", ["no architecture"])[0]):
        loader(config, is_known=KNOWN.__contains__)


def tensor(*shape: int, first: float = 1.0) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + first


@pytest.mark.parametrize(
    ("output", "scores"),
    [
        (SimpleNamespace(score=tensor(2), logits=tensor(2, 3)), [1.0, 2.0]),
        ({"rewards": tensor(2, 3), "scores": tensor(2, 1)}, [1.0, 2.0]),
        (SimpleNamespace(logits=tensor(2, 1, first=-1)), [-1.0, 0.0]),
        (SimpleNamespace(score=tensor(2), scores=tensor(2, 3)), [1.0, 2.0]),
        (tensor(2, 1), [1.0, 2.0]),
        ((tensor(2),), [1.0, 2.0]),
        ([0.5, 0.25], [0.5, 0.25]),
    ],
    ids=["score beside logits", "scores", "logits", "score beside parts", "a tensor", "a tuple of one", "get_scores"],
)
def test_one_number_is_read_for_each_sample(output: Any, scores: list[float]) -> None:
    assert read_scores(output, 2) == scores


@pytest.mark.parametrize("output", [0.5, np.float32(0.5).reshape(()), SimpleNamespace(score=np.array(0.5))])
def test_the_number_of_a_single_sample_may_be_bare(output: Any) -> None:
    assert read_scores(output, 1) == [0.5]


@pytest.mark.parametrize(
    ("output", "seen"),
    [
        (SimpleNamespace(logits=tensor(2, 3)), r"logits \(2, 3\)"),
        (SimpleNamespace(score=tensor(2, 5), logits=tensor(2, 1)), r"score \(2, 5\)"),
        (SimpleNamespace(score=tensor(2), scores=tensor(2, first=3)), "score and scores differ"),
        (SimpleNamespace(last_hidden_state=tensor(2, 4, 8)), r"last_hidden_state \(2, 4, 8\)"),
        (SimpleNamespace(logits=tensor(1, 1)), r"for 2 samples"),
        ((tensor(2), tensor(2)), "tuple"),
        ([0.5], "list"),
        (None, "NoneType"),
    ],
    ids=["labels", "wide score", "two that differ", "embedding", "too few", "two tensors", "short list", "nothing"],
)
def test_anything_else_is_refused_with_what_was_seen(output: Any, seen: str) -> None:
    with pytest.raises(AmbiguousOutputError, match=seen):
        read_scores(output, 2)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What real transformers made of the tiny checkpoints, and what the process that loaded them printed."""
    folder = tmp_path_factory.mktemp("checkpoints")
    job = [server_python(), str(ROOT / "tests/support/transformers_job.py"), str(folder)]
    path = f"{write_worker_zip(folder)}:{ROOT / 'tests'}"
    environ = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(folder / "modules")}
    ran = subprocess.run(job, capture_output=True, text=True, timeout=120 * PATIENCE, env=environ, cwd=folder)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads((folder / "results.json").read_text()) | {"log": ran.stderr}


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "batches", "suffix"),
    [("gated", True, []), ("last position", True, []), ("deaf to padding", False, []), ("own way", False, [REWARD])],
)
def test_a_head_of_its_own_scores_in_batches_as_alone(loaded: Any, kind: str, batches: bool, suffix: list[int]) -> None:
    found = loaded[kind]
    assert found["batches"] == batches
    assert found["together"] == pytest.approx(found["alone"], abs=1e-5)
    scored = [expected([*ids, *suffix], last_position=kind == "last position") for ids in found["ids"]]
    assert found["alone"] == pytest.approx(scored, abs=1e-5)


@pytest.mark.real
@pytest.mark.parametrize(("name", "most"), [("one label", 1e-6), ("no pad", 1e-6), ("bf16", 0.01)])
def test_a_class_of_transformers_scores_in_batches_as_transformers_does_alone(
    loaded: Any, name: str, most: float
) -> None:
    found = loaded[name]
    assert found["batches"]
    assert found["together"] == pytest.approx(found["transformers"], abs=most)


@pytest.mark.real
def test_a_head_in_bfloat16_is_computed_in_float32(loaded: Any) -> None:
    def fits_bfloat16(score: float) -> bool:
        return int(np.float32(score).view(np.uint32)) & 0xFFFF == 0

    assert not all(map(fits_bfloat16, loaded["bf16"]["alone"]))
    assert all(map(fits_bfloat16, loaded["bf16"]["transformers"]))


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("not trusted", "spec.model.trustRemoteCode"),
        ("not trusted", "modeling_gated.GatedRewardModel"),
        ("lacking", "lacks gate.weight: its scores would come from random numbers"),
        ("more weights", "has gate.weight, for which Qwen2ForSequenceClassification has no place"),
        ("NaN", "has NaN in score.weight"),
        ("several labels", "AmbiguousOutputError: the model returned GatedOutput(logits (1, 3))"),
        ("too long a limit", "spec.engine.maxModelLen is 100000, and the model has 512 positions"),
        ("no head", "config.json names Qwen2Model"),
    ],
)
def test_what_cannot_be_scored_rightly_is_refused_by_name(loaded: Any, name: str, words: str) -> None:
    assert words in loaded[name]


@pytest.mark.real
def test_a_classifier_needs_no_language_model_head(loaded: Any) -> None:
    assert loaded["a language model's head"] == "bfloat16"


@pytest.mark.real
def test_a_refused_checkpoint_ends_the_server_with_words_that_reach_the_conditions(loaded: Any) -> None:
    diagnosis = diagnose(exit_code=loaded["exit code"], log=loaded["log"])
    assert (diagnosis.reason, "trustRemoteCode" in diagnosis.message) == ("ModelRefused", True)


@pytest.mark.real
@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("empty", "has no tokens"),
        ("no ids", "has no tokens"),
        ("surrogate", "the tokenizer does not take the text"),
        ("too large", "token id 258 is out of vocabulary"),
        ("negative", "token id -1 is out of vocabulary"),
    ],
)
def test_a_sample_that_the_model_cannot_take_is_refused_by_name(loaded: Any, sample: str, words: str) -> None:
    assert words in loaded["samples"][sample]
