"""What our launcher of SGLang decides, as tables. What SGLang itself does with it is tested on the real one."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rewardpool_worker.engine_side.sglang_launcher import (
    bound_requests,
    head_flags,
    headless,
    shows_media,
    way_past_the_key,
    with_rows_as_head,
    wrong_scores,
)

ONE_SERVER = {"tokenizer_worker_num": 1, "grpc_port": None, "enable_http2": False, "disaggregation_mode": "null"}


@pytest.mark.parametrize(
    ("argument", "value", "named"),
    [
        ("tokenizer_worker_num", 4, "--tokenizer-worker-num"),
        ("grpc_port", 50051, "--grpc-port"),
        ("smg_grpc_mode", True, "--smg-grpc-mode"),
        ("grpc_mode", True, "--grpc-mode"),
        ("sidecar", "a.module", "--sidecar"),
        ("enable_http2", True, "--enable-http2"),
        ("encoder_only", True, "--encoder-only"),
        ("disaggregation_mode", "prefill", "--disaggregation-mode"),
    ],
)
def test_an_argument_that_starts_a_second_server_is_named(argument: str, value: Any, named: str) -> None:
    assert way_past_the_key(SimpleNamespace(**{**ONE_SERVER, argument: value}), {}) == named


@pytest.mark.parametrize(("variable", "value"), [("SGLANG_GRPC_PORT", "50051"), ("SGLANG_RUST_SERVER", "1")])
def test_a_variable_that_starts_a_second_server_is_named(variable: str, value: str) -> None:
    assert way_past_the_key(SimpleNamespace(**ONE_SERVER), {variable: value}) == variable


@pytest.mark.parametrize("environ", [{}, {"SGLANG_RUST_SERVER": "0"}, {"SGLANG_RUST_SERVER": "false"}])
def test_one_server_is_let_start(environ: dict[str, str]) -> None:
    assert way_past_the_key(SimpleNamespace(**ONE_SERVER), environ) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"allow_auto_truncate": True}, "--allow-auto-truncate: a sample"),
        ({"load_format": "dummy"}, "--load-format dummy: the weights"),
    ],
)
def test_an_argument_that_would_score_something_else_is_named(arguments: dict[str, Any], words: str) -> None:
    assert str(wrong_scores(SimpleNamespace(**arguments))).startswith(words)
    assert wrong_scores(SimpleNamespace(allow_auto_truncate=False, load_format="auto")) is None


@pytest.mark.parametrize(
    ("served", "architectures", "words"),
    [
        (
            "TransformersForSequenceClassification",
            ["MistralForSequenceClassification"],
            "no class for MistralForSequenceClassification .* spec.engine.name vllm",
        ),
        ("Qwen3ForCausalLM", ["Qwen3ForCausalLM"], "Qwen3ForCausalLM has no reward head"),
        ("Qwen3ForCausalLM", [], "no class for no architecture"),
    ],
)
def test_a_model_without_its_reward_head_is_refused_by_name(served: str, architectures: list[str], words: str) -> None:
    refusal = headless(served, architectures)
    assert refusal is not None
    with pytest.raises(ValueError, match=words):
        raise ValueError(refusal)


@pytest.mark.parametrize(
    "name", ["Qwen3ForSequenceClassification", "LlamaForSequenceClassification", "Qwen2ForRewardModel"]
)
def test_a_reward_model_that_sglang_has_is_served(name: str) -> None:
    assert headless(name, [name]) is None


def test_a_language_models_head_becomes_a_label_for_each_token() -> None:
    given = ["--json-model-override-args", '{"rope_theta": 5, "num_labels": 9}']
    flag, text = head_flags({"type": "LMHead", "tokenIds": [7, 8]}, "LlamaForSequenceClassification", given)
    assert flag == "--json-model-override-args"
    expected = {"rope_theta": 5, "architectures": ["LlamaForSequenceClassification"], "num_labels": 2}
    assert json.loads(text) == expected
    assert head_flags({"type": "Classifier", "weights": [1.0]}, "", given) == []


class FakeTensor(list[int]):
    """Rows that are taken by a list of their indices, as torch takes them."""

    def __getitem__(self, rows: Any) -> Any:
        return [list.__getitem__(self, row) for row in rows]


@pytest.mark.parametrize(("head", "rows"), [("lm_head", [13, 10]), ("model.embed_tokens", [23, 20])])
def test_the_rows_of_the_tokens_become_the_classifiers(head: str, rows: list[int]) -> None:
    weights = [("model.embed_tokens.weight", FakeTensor([20, 21, 22, 23])), ("model.norm.weight", FakeTensor([1]))]
    weights += [("lm_head.weight", FakeTensor([10, 11, 12, 13]))]
    found = dict(with_rows_as_head(weights, [3, 0], head))
    assert found.pop("score.weight") == rows
    assert set(found) == {"model.embed_tokens.weight", "model.norm.weight"}


class FakeManager:
    """A tokenizer manager with SGLang's check of lengths: less than the context, the reserved tokens counted."""

    def __init__(self, *, is_generation: bool) -> None:
        self.model_config = SimpleNamespace(vocab_size=100)
        self.is_generation = is_generation
        self.num_reserved_tokens = 0

    def _validate_one_request(self, request: object, token_ids: list[int] | None) -> None:
        if len(token_ids or ()) + self.num_reserved_tokens >= 16:
            raise ValueError("is longer than the model's context length")


def takes(token_ids: list[int] | None, *, is_generation: bool = False) -> bool:
    manager = FakeManager(is_generation=is_generation)
    bound_requests(manager)
    try:
        manager._validate_one_request(object(), token_ids)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("token_ids", "taken"), [([0, 99], True), ([100], False), ([-1], False), ([1, 10**30], False), (None, True)]
)
def test_sglang_is_given_no_token_id_beyond_its_vocabulary(token_ids: list[int] | None, taken: bool) -> None:
    assert takes(token_ids) == taken


@pytest.mark.parametrize(
    ("is_generation", "length", "taken"), [(False, 16, True), (False, 17, False), (True, 15, True), (True, 16, False)]
)
def test_a_sample_may_be_as_long_as_the_context_and_a_prompt_leaves_a_token(
    is_generation: bool, length: int, taken: bool
) -> None:
    assert takes([1] * length, is_generation=is_generation) == taken


@pytest.mark.parametrize(
    ("is_multimodal", "by_name", "content", "shown"),
    [
        (True, None, "openai", True),
        (True, None, "string", False),  # a template that reads text alone
        (True, "llava", "string", True),
        (False, None, "openai", False),
        (False, "llava", "openai", False),
    ],
)
def test_pictures_reach_a_model_that_takes_them_by_a_template_that_writes_them(
    is_multimodal: bool, by_name: str | None, content: str, shown: bool
) -> None:
    templates = SimpleNamespace(chat_template_name=by_name, jinja_template_content_format=content)
    assert shows_media(is_multimodal, templates) is shown
