"""Which flags a declared head becomes, as tables. What vLLM makes of them is in test_heads_on_vllm.py."""

import json
from typing import Any

import pytest

from rewardpool_worker.engine_side.vllm_launcher import head_flags, settle_variables

TOKEN = {"type": "LMHead", "token": "no", "tokenIds": [8]}
SPELT = {7: "Ġyes", 8: "no"}


def flags(head: dict[str, Any], *given: str) -> dict[str, Any]:
    """The flags with their JSON."""
    found = head_flags(head, "LlamaForSequenceClassification", SPELT.__getitem__, given)
    return {name: json.loads(text) for name, text in zip(found[::2], found[1::2], strict=True)}


@pytest.mark.parametrize(("ids", "spelt"), [([8], ["no"]), ([7, 8], ["Ġyes", "no"])])
def test_each_token_becomes_a_row_of_a_classifier(ids: list[int], spelt: list[str]) -> None:
    assert flags({**TOKEN, "tokenIds": ids}) == {
        "--hf-overrides": {
            "architectures": ["LlamaForSequenceClassification"],
            "method": "no_post_processing",
            "classifier_from_token": spelt,
        }
    }


def test_a_step_token_becomes_its_id() -> None:
    found = flags({"type": "TokenLevel", "stepToken": "<s>", "aggregate": "min", "stepTokenId": 11})
    assert found == {"--pooler-config": {"task": "token_classify", "tok_pooling_type": "STEP", "step_tag_id": 11}}


def test_yes_and_no_of_a_step_are_rows_of_a_classifier_that_is_asked_at_the_step_token() -> None:
    head = {"type": "TokenLevel", "stepToken": "<s>", "yesToken": " yes", "noToken": "no", "aggregate": "min"}
    found = flags({**head, "tokenIds": [8, 7], "stepTokenId": 11})
    assert found["--hf-overrides"]["classifier_from_token"] == ["no", "Ġyes"]
    assert found["--pooler-config"] == {"task": "token_classify", "tok_pooling_type": "STEP", "step_tag_id": 11}


def test_without_a_step_token_every_token_is_asked_for() -> None:
    assert flags({"type": "TokenLevel", "aggregate": "last"}) == {"--pooler-config": {"task": "token_classify"}}


def test_a_classifier_needs_no_flag() -> None:
    assert flags({"type": "Classifier", "weights": [1.0]}) == {}


@pytest.mark.parametrize(
    "given", [["--hf-overrides", '{"rope_theta": 5, "method": "x"}'], ['--hf-overrides={"rope_theta": 5}']]
)
def test_the_users_own_overrides_stay_where_the_head_says_nothing(given: list[str]) -> None:
    found = flags(TOKEN, *given)["--hf-overrides"]
    assert (found["rope_theta"], found["method"]) == (5, "no_post_processing")


@pytest.mark.parametrize("own", [{}, {"REWARDPOOL_SLEEP_MAX_ABS_DIFF": "0.01", "VLLM_SERVER_DEV_MODE": "1"}])
def test_a_key_and_a_mode_of_vllms_own_that_an_image_or_a_shell_has_are_dropped(own: dict[str, str]) -> None:
    environ = {"VLLM_API_KEY": "x", "VLLM_SERVER_DEV_MODE": "1", "PATH": "/bin", **own}
    settle_variables(environ)
    assert environ == {"PATH": "/bin", "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0", **own}
