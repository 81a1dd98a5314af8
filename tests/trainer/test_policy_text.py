"""Undoing a policy's chat template."""

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._policy.text import PolicyText, prompt_tail
from rewardpool._rewards.episode import Message
from rewardpool.errors import InvalidSampleError

CHATML = """{% if messages[0].role != 'system' %}<|im_start|>system
You are helpful.<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TRIMMED = """{% for message in messages %}{% if message.role == 'system' %}{{ raise('no system') }}{% endif %}
<start_of_turn>{{ 'model' if message.role == 'assistant' else 'user' }}
{{ message.content | trim }}<end_of_turn>{% endfor %}<start_of_turn>model
"""


class Tokenizer:
    """Stands in for a tokenizer: its chat template and its special tokens."""

    def __init__(self, template: str, *, eos: str = "<|stop|>", pad: str = "<pad>", others: Sequence[str] = ()) -> None:
        self._template = jinja2.Template(template, keep_trailing_newline=True)
        self.eos_token, self.pad_token, self.bos_token = eos, pad, "<bos>"
        special = [self.bos_token, pad, eos, "<|im_end|>", *others]
        self.added_tokens_decoder = {
            number: SimpleNamespace(content=content, special=True) for number, content in enumerate(special)
        }

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        """Ids above the special tokens are characters."""
        names = self.added_tokens_decoder
        return "".join(names[id_].content if id_ in names else chr(id_) for id_ in token_ids)

    def apply_chat_template(self, messages: list[Message], **options: Any) -> str:
        return self._template.render(messages=messages, **options)


def said(*roles: str) -> list[Message]:
    return [{"role": role, "content": f"words {index}"} for index, role in enumerate(roles)]


@pytest.mark.parametrize("template", [CHATML, TRIMMED])
@pytest.mark.parametrize("turns", [1, 2, 5, 16])
def test_a_conversation_comes_back_as_it_was(template: str, turns: int) -> None:
    tokenizer = Tokenizer(template)
    messages = said(*(("user", "assistant") * turns)[:-1])
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert PolicyText(tokenizer).prompt(text) == messages


def test_a_system_message_comes_back_and_one_of_the_template_does_not() -> None:
    tokenizer = Tokenizer(CHATML)
    text = PolicyText(tokenizer)
    for messages in (said("system", "user"), said("user"), said("system", "user", "assistant", "user")):
        assert text.prompt(tokenizer.apply_chat_template(messages, add_generation_prompt=True)) == messages


contents = st.text(st.characters(exclude_characters="<\u2060")).map(str.strip)


@given(st.lists(contents, min_size=1, max_size=7).filter(lambda words: len(words) % 2 == 1))
def test_whatever_was_said_comes_back(words: Sequence[str]) -> None:
    tokenizer = Tokenizer(CHATML)
    roles = ("user", "assistant") * len(words)
    messages = [{"role": role, "content": word} for role, word in zip(roles, words, strict=False)]
    assert PolicyText(tokenizer).prompt(tokenizer.apply_chat_template(messages, add_generation_prompt=True)) == messages


@pytest.mark.parametrize(
    ("template", "prompt", "advice"),
    [
        (None, "<|im_start|>user\nhi<|im_end|>\n", "name the policy's tokenizer"),
        (TRIMMED, "<|im_start|>user\nhi<|im_end|>\n", "not as the policy's tokenizer writes it"),
    ],
)
def test_a_template_that_cannot_be_undone_is_refused(template: str | None, prompt: str, advice: str) -> None:
    text = PolicyText(None if template is None else Tokenizer(template))
    with pytest.raises(InvalidSampleError, match=advice):
        text.prompt(prompt)
    assert text.prompt(prompt, strict=False) == prompt


def test_a_placeholder_of_a_picture_is_refused_where_a_model_would_read_it() -> None:
    prompt = "<|vision_start|><|image_pad|><|vision_end|>What is it?"
    with pytest.raises(InvalidSampleError, match=r"<\|image_pad\|> in it, in the place of what is not text"):
        PolicyText().prompt(prompt)
    assert PolicyText().prompt(prompt, strict=False) == prompt


def test_more_turns_than_are_known_are_refused_and_not_taken_for_one() -> None:
    tokenizer = Tokenizer(CHATML)
    text = tokenizer.apply_chat_template(said(*("user", "assistant") * 17, "user"), add_generation_prompt=True)
    with pytest.raises(InvalidSampleError):
        PolicyText(tokenizer).prompt(text)


def test_messages_and_plain_texts_stay_as_they_are() -> None:
    text = PolicyText(Tokenizer(CHATML))
    assert text.prompt("What is 2 + 2?") == "What is 2 + 2?"
    assert text.prompt(said("user")) == said("user")


GEMMA = {"eos": "<end_of_turn>", "pad": "<pad>"}
LLAMA_2 = {"eos": "</s>", "pad": "</s>"}


@pytest.mark.parametrize(
    ("policy", "response", "words"),
    [
        ({}, "42<|stop|>", "42"),
        ({}, "42<|im_end|>\n<|stop|>", "42"),  # the template ends a turn in the first one
        ({}, "a < b ", "a < b "),
        (GEMMA, "42<end_of_turn><pad><pad><pad>", "42"),
        ({"eos": "<|eot_id|>", "pad": "<|finetune_right_pad_id|>"}, "42<|eot_id|><|finetune_right_pad_id|>", "42"),
        ({"eos": "</s>", "pad": "[PAD]"}, "42</s>[PAD][PAD]", "42"),
        (LLAMA_2, "42</s></s>", "42"),
        (LLAMA_2, "<s>42</s>", "<s>42</s>"),
        (LLAMA_2, "<s>42</s></s></s>", "<s>42</s>"),
        (GEMMA, "<s>42</s>", "<s>42</s>"),
        (GEMMA, "It writes </s><end_of_turn>", "It writes </s>"),
        ({"eos": "<|im_end|>"}, "It writes <|im_end|><|im_end|>", "It writes <|im_end|>"),
        (GEMMA, "<end_of_turn> ends it", "<end_of_turn> ends it"),
    ],
)
def test_the_policys_own_end_and_padding_are_taken_off_at_the_end(
    policy: dict[str, Any], response: str, words: str
) -> None:
    assert PolicyText(Tokenizer(CHATML, **policy)).response(response) == words


def test_the_stop_tokens_of_the_generation_config_end_a_response() -> None:
    tokenizer = Tokenizer(TRIMMED, others=["<|user|>", "<|observation|>"])
    text = PolicyText(tokenizer, stop_ids=[4, 5])
    assert [text.response(f"42{end}") for end in ("<|user|>", "<|observation|>", "<|stop|>")] == ["42"] * 3
    assert PolicyText(tokenizer).response("42<|user|>") == "42<|user|>"


def test_token_ids_tell_an_end_from_words_that_are_spelt_like_one() -> None:
    text = PolicyText(Tokenizer(CHATML, **LLAMA_2))
    spelt = [ord(letter) for letter in "It ends in </s>"]
    end, bos = 2, 0
    assert text.response("It ends in </s>", spelt) == "It ends in </s>"
    assert text.response("It ends in </s></s></s>", [*spelt, end, end]) == "It ends in </s>"
    assert text.response("It ends in </s>", [*spelt, end]) == "It ends in </s>"
    assert text.response("4<|im_end|>\n</s>", [ord("4"), 3, ord("\n"), end]) == "4"
    assert text.response("<bos>", [bos]) == "<bos>"


def test_a_text_that_the_trainer_has_changed_is_not_replaced_by_its_tokens() -> None:
    assert PolicyText(Tokenizer(CHATML)).response("changed<|stop|>", [ord("4"), 2]) == "changed"


@pytest.mark.parametrize(
    "response",
    ["42<|im_end|>", "42<end_of_turn><pad>", "42<|eot_id|>\n", "42</s>[PAD]", "42</s>", "42<\uff5cend\uff5c>"],
)
def test_where_the_tokenizer_is_not_known_an_end_is_refused_and_never_cut(response: str) -> None:
    with pytest.raises(InvalidSampleError, match=r"is a special token or words: name the policy's tokenizer"):
        PolicyText().response(response)


@pytest.mark.parametrize("response", ["<s>42</s>", "42", "<p>42</p>", "[4]", "a |> b", " \n"])
def test_where_the_tokenizer_is_not_known_words_are_kept(response: str) -> None:
    assert PolicyText().response(response) == response


@given(st.lists(st.sampled_from(["42", " ", "\n", "</s>", "<s>", "<pad>", "<|im_end|>", "<|stop|>"]), max_size=8))
def test_a_response_is_only_shortened_at_its_end_and_by_declared_tokens(pieces: list[str]) -> None:
    text = "".join(pieces)
    words = PolicyText(Tokenizer(CHATML)).response(text)
    assert text.startswith(words)
    assert re.fullmatch(r"(\s|<pad>|<\|im_end\|>|<\|stop\|>)*", text[len(words) :])


def test_the_response_is_what_follows_the_prompt() -> None:
    assert PolicyText().after("2+2=", "2+2=4") == "4"
    with pytest.raises(InvalidSampleError, match="cut to the length limit"):
        PolicyText().after("what is 2+2=", "2+2=4")


def test_padding_and_bos_before_the_prompt_are_no_part_of_it() -> None:
    query = "<pad><pad><bos>2+2=4<end_of_turn>"
    assert PolicyText(Tokenizer(CHATML, **GEMMA)).after("2+2=", query) == "4"
    assert PolicyText(Tokenizer(CHATML, **GEMMA)).after("<bos>2+2=", query) == "4"
    with pytest.raises(InvalidSampleError, match="Then name the policy's tokenizer by --policy-tokenizer"):
        PolicyText(field="--policy-tokenizer").after("2+2=", query)


def test_a_prompt_says_whether_it_opens_thoughts() -> None:
    assert prompt_tail("x" * 100 + "<think>\n") == "x" * 72 + "<think>\n"
    assert prompt_tail(said("user")) is None
