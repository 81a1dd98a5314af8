"""Thoughts are one block at the beginning, in declared tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards import Episode
from rewardpool._rewards.answers.reasoning import KNOWN, Reasoned, Reasoning, Tags, opens_reasoning, split_reasoning

DECLARED = Tags("<reasoning>", "</reasoning>")
PIECES = [tag for pair in KNOWN for tag in pair if tag] + ["42", " ", "\n", "a < b", "`", "'"]
texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


@pytest.mark.parametrize(
    "text",
    [
        "<think>First 6*7.</think>42",
        "\n<think>\nFirst 6*7.\n</think>\n\n42",
        "[THINK]First 6*7.[/THINK]42",
        "<seed:think>First 6*7.</seed:think>42",
        "\u25c1think\u25b7First 6*7.\u25c1/think\u25b742",
        "<|START_THINKING|>First 6*7.<|END_THINKING|>42",
        "<|channel|>analysis<|message|>First 6*7.<|end|><|start|>assistant<|channel|>final<|message|>42",
        "<|channel|>final<|message|>42",
    ],
)
def test_the_tags_of_known_models_are_left_out_with_the_thoughts(text: str) -> None:
    assert split_reasoning(text).answer == "42"
    assert Reasoning().problem(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "print('<think>')\nx = 1",
        "42. (A model ends its thoughts with `</think>`.)",
        "It is 4.<think>or",
        "It is 4 <think>so</think> 4",
        " as it was \n",
    ],
)
def test_a_tag_further_on_is_words(text: str) -> None:
    assert split_reasoning(text) == Reasoned(None, text)
    assert Reasoning().problem(text) is None


@pytest.mark.parametrize(("text", "opened"), [("<think>First 6", False), ("First 6", True), ("<think>First 6", True)])
def test_thoughts_that_do_not_end_have_no_answer(text: str, opened: bool) -> None:
    assert split_reasoning(text, opened=opened) == Reasoned("First 6", None)
    assert Reasoning(prompt_opens=opened).answer(text) == ""


def test_a_prompt_that_opens_thoughts_has_them_end_at_the_first_closing_tag() -> None:
    assert split_reasoning("so\n</think>\nWrite </think>", opened=True) == Reasoned("so\n", "Write </think>")


@pytest.mark.parametrize("text", ["so\n</think>\n42", "so</think>\n42"])
def test_an_end_of_thoughts_whose_beginning_is_not_declared_is_refused_by_name(text: str) -> None:
    assert "declare strip_reasoning: {prompt_opens: true}" in str(Reasoning().problem(text))
    assert Reasoning().answer(text) == text
    assert [Reasoning(prompt_opens=opens).problem(text) for opens in (True, False)] == [None, None]
    assert [Reasoning().answer(text, prompt_tail=tail) for tail in ("<think>\n", "assistant\n")] == ["42", text]


def test_the_prompt_goes_before_what_is_declared() -> None:
    reasoning = Reasoning(tags=DECLARED, prompt_opens=True)
    assert reasoning.answer("so</reasoning>42", prompt_tail="<reasoning>\n") == "42"
    assert reasoning.answer("42", prompt_tail="<reasoning>\n\n</reasoning>\n\n") == "42"
    assert reasoning.answer("42") == ""


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("<reasoning>so</reasoning>42", "declare strip_reasoning: {tags:"),
        ("[Thought]so[/Thought]42", "declare strip_reasoning: {tags:"),
        ("<|channel|>commentary<|message|>so<|end|>", "declare strip_reasoning: {tags:"),
        ("analysisFirst 6*7.assistantfinal42", "decoded without special tokens"),
    ],
)
def test_a_form_that_is_not_known_is_refused_by_name(text: str, advice: str) -> None:
    assert advice in str(Reasoning().problem(text))
    assert Reasoning().answer(text) == text


def test_declared_tags_are_the_only_ones() -> None:
    reasoning = Reasoning(tags=DECLARED)
    assert reasoning.answer("<reasoning>so</reasoning>42") == "42"
    assert reasoning.answer("<think>so</think>42") == "<think>so</think>42"


@pytest.mark.parametrize("text", ["[Thinking, Fast and Slow]", "[Thinking](a.html)", "<p>Think</p>", "<b>4</b>"])
def test_markup_is_not_taken_for_tags(text: str) -> None:
    assert Reasoning().problem(text) is None


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [("<|assistant|><think>\n", True), ("[THINK]", True), ("<think>\n\n</think>\n\n", False), ("a <think> b", False)],
)
def test_a_prompt_shows_whether_it_opens_thoughts(prompt: str, opens: bool) -> None:
    assert opens_reasoning(prompt) is opens


@given(texts)
def test_a_text_without_a_declared_tag_at_its_beginning_is_never_changed(text: str) -> None:
    begins = any(text.lstrip().startswith(pair.opening) for pair in KNOWN)
    assert begins or split_reasoning(text) == Reasoned(None, text)


@given(texts, texts)
def test_what_follows_the_thoughts_is_kept_whole(thoughts: str, answer: str) -> None:
    for pair in KNOWN[:5]:
        if pair.closing not in thoughts:
            assert split_reasoning(f"{pair.opening}{thoughts}{pair.closing}{answer}").answer == answer.strip()


CHANNELS = "<|channel|>analysis<|message|>First 6*7.<|end|><|start|>assistant<|channel|>final<|message|>42"


@pytest.mark.parametrize(
    ("prompt_tail", "response", "answer"),
    [
        ("<think>\n", "First 6*7.\n</think>\n42", "42"),
        ("<think>\n", "First 6 times 7, wait", ""),
        ("assistant\n", "<think>First 6*7.</think>42", "42"),
        ("assistant\n", "<think>First 6", ""),
        ("assistant\n", "42", "42"),
        ("assistant\n", "print('<think>')\nx = 1", "print('<think>')\nx = 1"),
        ("assistant\n", "42. (It ends its thoughts with `</think>`.)", "42. (It ends its thoughts with `</think>`.)"),
        ("[/INST]", "[THINK]First 6*7.[/THINK]42", "42"),
        ("<seed:bos>assistant\n", "<seed:think>First 6*7.</seed:think>42", "42"),
        ("<|im_middle|>", "\u25c1think\u25b7First 6*7.\u25c1/think\u25b742", "42"),
        ("<|start|>assistant", CHANNELS, "42"),
    ],
)
@pytest.mark.parametrize("is_declared", [False, True])
def test_the_answer_alone_is_scored_where_prompt_or_config_say_whether_thoughts_are_open(
    prompt_tail: str, response: str, answer: str, is_declared: bool
) -> None:
    episode = Episode(prompt="?", response=response, prompt_tail=None if is_declared else prompt_tail)
    reasoning = Reasoning(prompt_opens=opens_reasoning(prompt_tail)) if is_declared else Reasoning()
    assert episode.without_reasoning(reasoning).response == answer
    assert episode.reasoning_problem(reasoning) is None
