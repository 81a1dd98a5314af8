"""Responses of real tokenizers without what ends them."""

from typing import Any

import pytest
from support.byte_tokenizer import PAD, TEMPLATE, byte_tokenizer

from rewardpool._policy.response_end import ResponseDecoder
from rewardpool._policy.text import PolicyText, load_stop_ids
from rewardpool._policy.turns import PolicyTurns

MARKS = ["[THINK]", "[/THINK]"]


@pytest.fixture
def policy() -> Any:
    return byte_tokenizer(template=TEMPLATE, controls=["<|user|>", "<|assistant|>", *MARKS], end="<|end|>")


def ids(tokenizer: Any, text: str, *, words: bool = False) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=words)["input_ids"]
    return found


def test_special_tokens_that_mark_thoughts_are_kept(policy: Any) -> None:
    written = ids(policy, "[THINK]First 6*7.[/THINK]42<|end|>")
    assert ResponseDecoder(policy)(written) == "[THINK]First 6*7.[/THINK]42"
    assert PolicyTurns(policy).split(written)[0]["content"] == "[THINK]First 6*7.[/THINK]42"


def test_the_end_of_a_prompt_has_its_special_tokens(policy: Any) -> None:
    assert (
        ResponseDecoder(policy).tail(ids(policy, "6 * 7?<|end|><|assistant|>[THINK]")).endswith("<|assistant|>[THINK]")
    )


def test_an_end_that_is_spelt_in_words_is_kept_by_token_ids(policy: Any) -> None:
    words = ids(policy, "It writes <|end|>", words=True)
    text = PolicyText(policy)
    assert text.response("It writes <|end|>", words) == "It writes <|end|>"
    assert (
        text.response(f"It writes <|end|><|end|>{PAD}", [*words, *ids(policy, f"<|end|>{PAD}")]) == "It writes <|end|>"
    )


def test_the_stop_tokens_come_from_the_generation_config_of_the_folder(policy: Any, tmp_path: Any) -> None:
    policy.save_pretrained(tmp_path)
    assert load_stop_ids(str(tmp_path)) == ()
    stop = policy.convert_tokens_to_ids("<|user|>")
    (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": [{stop}]}}')
    assert load_stop_ids(str(tmp_path)) == [stop]
    assert PolicyText.load(str(tmp_path), field="policy").response("42<|user|>") == "42"
