"""Prompts with fields: what they may have in them, and that values are text and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards.answers.template import Template

FIELDS = ("response", "question")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "write {{ and }}"),
        ("}", "write {{ and }}"),
        ("{}", "unknown field {}"),
        ("{0}", "unknown field {0}"),
        ("{answer}", "unknown field {answer}"),
        ("{response.__class__}", "unknown field"),
        ("{response[0]}", "unknown field"),
        ("{extra_info}", "unknown field"),
        ("{extra_info[a][b]}", "unknown field"),
        ("{response!r}", "bare name"),
        ("{response:>10}", "bare name"),
        ("{question}", "must have the field {response}"),
    ],
)
def test_anything_but_known_fields_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("{", r"\{").replace("}", r"\}")):
        Template(text, fields=FIELDS, required=("response",))


def test_fields_are_filled_and_doubled_braces_are_text() -> None:
    template = Template('{question}: {response} {{"a": 1}} {extra_info[some key]}', fields=FIELDS)
    assert template.render(lambda field: f"<{field}>") == '<question>: <response> {"a": 1} <extra_info[some key]>'


@given(st.text())
def test_a_value_is_never_read_as_a_template(value: str) -> None:
    template = Template("[{response}]", fields=FIELDS)
    assert template.render(lambda _: value) == f"[{value}]"
    assert template.render(lambda _: "{question}" + value) == "[{question}" + value + "]"
