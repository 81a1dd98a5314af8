"""What a declared head is in a checkpoint, as tables."""

from typing import Any

import pytest

from rewardpool_worker.engine_side.head_tokens import HeadCheckpoint, HeadError, resolve

VOCABULARY = {"yes": 7, "no": 8, "Ġyes": 9, "<extra_0>": 11}
TEXTS = {" yes": [9], "yep": [7, 3], "": []}
STEPS = {"type": "TokenLevel", "stepToken": "<extra_0>", "aggregate": "min"}
TOKEN = {"type": "LMHead", "token": "no"}
JUDGED_STEPS = {**STEPS, "yesToken": "yes", "noToken": "no"}


def lookup(token: str) -> list[int]:
    return [VOCABULARY[token]] if token in VOCABULARY else TEXTS[token]


def resolved(head: dict[str, Any], architecture: str = "LlamaForCausalLM", **config: Any) -> dict[str, Any]:
    return resolve(head, HeadCheckpoint({"architectures": [architecture], **config}, lookup, str))


@pytest.mark.parametrize(("written", "token"), [("yes", 7), (" yes", 9), ("Ġyes", 9)])
def test_yes_and_no_become_their_ids_in_this_order(written: str, token: int) -> None:
    head = {"type": "LMHead", "yesToken": written, "noToken": "no"}
    assert resolved(head) == {**head, "tokenIds": [token, 8]}


def test_a_token_becomes_its_id() -> None:
    assert resolved(TOKEN) == {**TOKEN, "tokenIds": [8]}


def test_a_step_token_becomes_its_id() -> None:
    assert resolved(STEPS, "Qwen2ForProcessRewardModel") == {**STEPS, "stepTokenId": 11}


def test_the_yes_of_a_step_is_the_second_of_two_labels() -> None:
    assert resolved(JUDGED_STEPS) == {**JUDGED_STEPS, "tokenIds": [8, 7], "stepTokenId": 11}


@pytest.mark.parametrize(
    ("head", "architecture"),
    [
        ({"type": "TokenLevel", "aggregate": "last"}, "Qwen2ForRewardModel"),
        ({"type": "Classifier", "weights": [1.0]}, "LlamaForSequenceClassification"),
    ],
)
def test_a_head_without_tokens_stays_as_it_is(head: dict[str, Any], architecture: str) -> None:
    assert resolved(head, architecture) == head


@pytest.mark.parametrize(("config", "softcap"), [({"final_logit_softcapping": 30.0}, 30.0), ({}, None)])
def test_a_bound_of_the_logits_is_kept_for_the_score(config: dict[str, Any], softcap: float | None) -> None:
    for head in (TOKEN, JUDGED_STEPS):
        assert resolved(head, "Gemma2ForCausalLM", **config).get("softcap") == softcap


@pytest.mark.parametrize("config", [{"logits_scaling": 8.0}, {"logit_scale": 0.0625}, {"dim_model_base": 256}])
def test_logits_that_are_scaled_outside_of_the_head_are_refused(config: dict[str, Any]) -> None:
    for head in (TOKEN, JUDGED_STEPS):
        with pytest.raises(HeadError, match=next(iter(config))):
            resolved(head, **config)
    assert resolved(TOKEN, **dict.fromkeys(config, 1.0))["tokenIds"] == [8]


@pytest.mark.parametrize(
    ("head", "architecture", "words"),
    [
        ({"type": "LMHead", "token": "yep"}, "LlamaForCausalLM", "spec.model.head.token 'yep' is 2 tokens"),
        ({"type": "LMHead", "token": ""}, "LlamaForCausalLM", "spec.model.head.token '' is 0 tokens"),
        ({"type": "LMHead", "yesToken": " yes", "noToken": "Ġyes"}, "LlamaForCausalLM", "are one token"),
        (TOKEN, "Qwen2ForSequenceClassification", "ends in ForCausalLM"),
        (STEPS, "Qwen2ForCausalLM", "a Qwen2ForCausalLM has none: .* set yesToken and noToken"),
        (JUDGED_STEPS, "Qwen2ForProcessRewardModel", "spec.model.head.yesToken takes the logits of tokens"),
        ({**JUDGED_STEPS, "noToken": "yep"}, "MistralForCausalLM", "spec.model.head.noToken 'yep' is 2 tokens"),
        ({**JUDGED_STEPS, "stepToken": "yep"}, "MistralForCausalLM", "spec.model.head.stepToken 'yep' is 2 tokens"),
        ({**STEPS, "stepToken": "yep"}, "Qwen2ForProcessRewardModel", "spec.model.head.stepToken 'yep' is 2 tokens"),
        ({"type": "TokenLevel", "aggregate": "last"}, "Qwen2ForProcessRewardModel", "stepToken must be set"),
    ],
)  # fmt: skip
def test_what_would_score_something_else_is_refused_with_its_field(
    head: dict[str, Any], architecture: str, words: str
) -> None:
    with pytest.raises(HeadError, match=words):
        resolved(head, architecture)
