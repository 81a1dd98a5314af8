import itertools
from pathlib import Path
from typing import Any

import pytest

from rewardpool.actor.data import Prompt, read_prompts, sample_to_score, steps_of
from rewardpool.errors import ConfigError

PROMPTS = [Prompt(prompt=str(number)) for number in range(6)]


class FakeTokenizer:
    """Stands in for the reward model's tokenizer: its chat template is one line per turn."""

    def apply_chat_template(self, turns: list[dict[str, str]], *, tokenize: bool) -> str:
        assert not tokenize
        return "\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def test_every_prompt_comes_once_per_round() -> None:
    rounds = list(itertools.islice(steps_of(PROMPTS, per_step=3, seed=1), 4))
    assert sorted(prompt.prompt for prompt in rounds[0] + rounds[1]) == list("012345")
    assert sorted(prompt.prompt for prompt in rounds[2] + rounds[3]) == list("012345")


def test_the_seed_decides_the_order() -> None:
    def order(seed: int) -> list[list[Prompt]]:
        return list(itertools.islice(steps_of(PROMPTS, per_step=4, seed=seed), 9))

    assert order(1) == order(1)
    assert order(1) != order(2)


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
