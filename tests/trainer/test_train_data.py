from pathlib import Path
from typing import Any

import pytest

from rewardpool.actor.data import Prompt, PromptOrder, read_prompts, sample_to_score
from rewardpool.errors import ConfigError

PROMPTS = [Prompt(prompt=str(number)) for number in range(6)]


class FakeTokenizer:
    """Stands in for the reward model's tokenizer: its chat template is one line per turn."""

    def apply_chat_template(self, turns: list[dict[str, str]], *, tokenize: bool) -> str:
        assert not tokenize
        return "\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def test_every_prompt_comes_once_per_round() -> None:
    order = PromptOrder(PROMPTS, seed=1)
    rounds = [[order[number * 6 + place].prompt for place in range(6)] for number in range(8)]
    assert all(sorted(prompts) == list("012345") for prompts in rounds)
    assert len({tuple(prompts) for prompts in rounds}) > 1


def test_the_seed_decides_the_order() -> None:
    def order(seed: int) -> list[Prompt]:
        prompts = PromptOrder(PROMPTS, seed=seed)
        return [prompts[index] for index in range(36)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_a_prompt_can_be_asked_for_anywhere() -> None:
    straight, jumping = PromptOrder(PROMPTS, seed=1), PromptOrder(PROMPTS, seed=1)
    prompts = [straight[index] for index in range(100)]
    assert jumping[70] == prompts[70]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no prompt"),
        ('{"prompt": "a"}\nnot json', "line 2 of .*: is not JSON"),
        ('{"prompt": "a"}\n\n{"text": "b"}', "line 3 of .*prompt: Field required"),
    ],
)
def test_a_wrong_line_of_the_prompts_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_prompts(path)


def test_missing_prompts_are_a_mistake_in_the_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.prompts: cannot read .*No such file"):
        read_prompts(tmp_path / "prompts.jsonl")


def sample_for(model_type: str | None) -> Any:
    prompt = Prompt(prompt="2+2?", data_source="sums", ground_truth="4", extra_info={"level": 1})
    return sample_to_score(prompt, "four", model_type=model_type, reward_tokenizer=FakeTokenizer(), name="s")


def test_a_reward_model_is_given_the_conversation() -> None:
    assert sample_for("Discriminative").text == "user: 2+2?\nassistant: four"


def test_a_reward_function_is_given_its_four_arguments() -> None:
    function = sample_for("Function").function
    assert (function.data_source, function.solution_str, function.ground_truth) == ("sums", "four", "4")
    assert function.extra_info == {"level": 1}
