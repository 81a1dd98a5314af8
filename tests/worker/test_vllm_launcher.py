"""Which flags a declared head becomes, as tables. What vLLM makes of them is in test_heads_on_vllm.py."""

import json
from typing import Any

import pytest

from rewardpool_worker.vllm_launcher import HeadError, head_flags

VOCABULARY = {"yes": 7, "no": 8, "Ġyes": 9, "<extra_0>": 11}
TEXTS = {" yes": [9], "yep": [7, 3], "": []}
STEPS = {"type": "TokenLevel", "stepToken": "<extra_0>", "aggregate": "min"}


def lookup(token: str) -> list[int]:
    return [VOCABULARY[token]] if token in VOCABULARY else TEXTS[token]


def spell(one: int) -> str:
    return {number: token for token, number in VOCABULARY.items()}[one]


def flags(head: dict[str, Any], *given: str, architecture: str = "LlamaForCausalLM") -> dict[str, Any]:
    """The flags with their JSON, and what the middleware gets."""
    found, told = head_flags(head, architecture, lookup, spell, given)
    return {**{name: json.loads(text) for name, text in zip(found[::2], found[1::2], strict=True)}, "head": told}


def test_a_token_becomes_the_one_row_of_a_classifier() -> None:
    head = {"type": "LMHead", "token": "no"}
    assert flags(head) == {
        "--hf-overrides": {
            "architectures": ["LlamaForSequenceClassification"],
            "method": "no_post_processing",
            "classifier_from_token": ["no"],
        },
        "head": head,
    }


@pytest.mark.parametrize(("written", "spelt"), [("yes", "yes"), (" yes", "Ġyes"), ("Ġyes", "Ġyes")])
def test_yes_less_no_names_the_token_of_no_first_as_vllm_takes_them(written: str, spelt: str) -> None:
    found = flags({"type": "LMHead", "yesToken": written, "noToken": "no"})["--hf-overrides"]
    assert (found["method"], found["classifier_from_token"]) == ("from_2_way_softmax", ["no", spelt])


def test_a_step_token_becomes_its_id_for_vllm_and_for_the_middleware() -> None:
    found = flags(STEPS, architecture="Qwen2ForProcessRewardModel")
    assert found["--pooler-config"] == {"task": "token_classify", "tok_pooling_type": "STEP", "step_tag_id": 11}
    assert found["head"] == {**STEPS, "stepTokenId": 11}


def test_without_a_step_token_every_token_is_asked_for() -> None:
    found = flags({"type": "TokenLevel", "aggregate": "last"}, architecture="Qwen2ForRewardModel")
    assert found["--pooler-config"] == {"task": "token_classify"}


def test_a_classifier_needs_no_flag() -> None:
    head = {"type": "Classifier", "weights": [1.0]}
    assert flags(head, architecture="LlamaForSequenceClassification") == {"head": head}


@pytest.mark.parametrize(
    "given", [["--hf-overrides", '{"rope_theta": 5, "method": "x"}'], ['--hf-overrides={"rope_theta": 5}']]
)
def test_the_users_own_overrides_stay_where_the_head_says_nothing(given: list[str]) -> None:
    found = flags({"type": "LMHead", "token": "no"}, *given)["--hf-overrides"]
    assert (found["rope_theta"], found["method"]) == (5, "no_post_processing")


@pytest.mark.parametrize(
    ("head", "architecture", "words"),
    [
        ({"type": "LMHead", "token": "yep"}, "LlamaForCausalLM", "spec.model.head.token 'yep' is 2 tokens"),
        ({"type": "LMHead", "token": ""}, "LlamaForCausalLM", "spec.model.head.token '' is 0 tokens"),
        ({"type": "LMHead", "yesToken": " yes", "noToken": "Ġyes"}, "LlamaForCausalLM", "are one token"),
        ({"type": "LMHead", "token": "no"}, "Qwen2ForSequenceClassification", "ends in ForCausalLM"),
        (STEPS, "Qwen2ForCausalLM", "a Qwen2ForCausalLM has none"),
        ({**STEPS, "stepToken": "yep"}, "Qwen2ForProcessRewardModel", "spec.model.head.stepToken 'yep' is 2 tokens"),
        ({"type": "TokenLevel", "aggregate": "last"}, "Qwen2ForProcessRewardModel", "stepToken must be set"),
    ],
)  # fmt: skip
def test_what_would_score_something_else_is_refused_with_its_field(
    head: dict[str, Any], architecture: str, words: str
) -> None:
    with pytest.raises(HeadError, match=words):
        flags(head, architecture=architecture)
