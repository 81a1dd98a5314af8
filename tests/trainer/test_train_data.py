from pathlib import Path

import pytest

from rewardpool._rewards import Episode
from rewardpool.errors import ConfigError
from rewardpool_train.actor.data import MOST_MISTAKES, Prompt, PromptOrder, Trajectory, read_prompts, to_episode

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


def test_all_wrong_lines_of_the_prompts_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"text": "b"}\n{"prompt": "a"}\nnot json\n' + "[]\n" * 100)
    with pytest.raises(ConfigError) as caught:
        read_prompts(path)
    named = [int(field.split("line ")[1].split()[0]) for field, _ in caught.value.problems]
    assert named[:4] == [1, 1, 3, 4]
    assert len(named) <= MOST_MISTAKES + 1


def test_missing_prompts_are_a_mistake_in_the_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.prompts: cannot read .*No such file"):
        read_prompts(tmp_path / "prompts.jsonl")


def test_what_is_rated_is_the_conversation_in_words_with_what_the_prompts_file_says_of_it() -> None:
    prompt = Prompt(prompt="2+2?", data_source="sums", ground_truth="4", extra_info={"level": 1})
    rollout = Trajectory(group=3, member=1, prompt_ids=[1], response_ids=[2, 3], ended=False)
    episode = to_episode(prompt, "four", rollout, group=3, version=7, prompt_tail="?", name="s")
    assert (episode.prompt, episode.response, episode.ground_truth, episode.data_source) == (
        "2+2?",
        "four",
        "4",
        "sums",
    )
    assert (episode.extra_info, episode.group, episode.id) == ({"level": 1}, 3, "s")


def test_a_response_that_was_cut_is_rated_as_one() -> None:
    def rated(*, ended: bool) -> Episode:
        rollout = Trajectory(group=0, member=0, prompt_ids=[1], response_ids=[2, 3], ended=ended)
        return to_episode(Prompt(prompt="?"), "four", rollout, group=0, version=0, prompt_tail="?", name="s")

    assert [rated(ended=ended).truncated for ended in (True, False)] == [False, True]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_prompt_may_hold_a_line_separator_of_unicode(tmp_path, separator):
    (tmp_path / "p.jsonl").write_bytes(f'\ufeff{{"prompt": "a{separator}b"}}\r\n{{"prompt": "c"}}\r\n'.encode())
    assert [prompt.prompt for prompt in read_prompts(tmp_path / "p.jsonl")] == [f"a{separator}b", "c"]
