"""Undoing a policy's chat template."""

from collections.abc import Sequence
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool.errors import InvalidSampleError
from rewardpool.policy_text import PolicyText
from rewardpool.rewards.episode import Message

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
    """Stands in for a tokenizer: its chat template is all that is used."""

    eos_token = "<|stop|>"

    def __init__(self, template: str) -> None:
        self._template = jinja2.Template(template, keep_trailing_newline=True)

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
    with pytest.raises(InvalidSampleError, match=r"<\|image_pad\|> in it, in the place of what is no text"):
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


def test_special_tokens_at_the_end_of_a_response_are_dropped() -> None:
    assert PolicyText().response("4</s></s>") == "4"
    assert PolicyText(Tokenizer(CHATML)).response("4<|im_end|>\n<|stop|>") == "4"
    assert PolicyText().response("a < b ") == "a < b "


def test_the_response_is_what_follows_the_prompt() -> None:
    assert PolicyText().after("2+2=", "2+2=4<|im_end|>") == "4"
    with pytest.raises(InvalidSampleError, match="cut to the length limit"):
        PolicyText().after("what is 2+2=", "2+2=4")
