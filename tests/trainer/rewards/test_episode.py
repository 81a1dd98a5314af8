"""What an episode's turns and words become before a model reads them."""

import pytest
from support.scripted_judge import ScriptedJudge

from rewardpool.rewards import Episode
from rewardpool.rewards.episode import without_reasoning
from rewardpool.rewards.judge import PointwiseScorer
from rewardpool.rewards.part_config import JudgeConfig

CALL = {"role": "assistant", "content": "<think>hm</think>", "tool_calls": [{"function": {"name": "add"}}]}
TURNS = [CALL, {"role": "tool", "content": "4"}, {"role": "assistant", "content": "<think>so</think>It is 4."}]
EPISODE = Episode(prompt="2 + 2?", response="It is 4.", turns=TURNS)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("4", "4"),
        ("<think>2 and 2</think>\n\n4", "4"),
        ("2 and 2</think>4", "4"),  # the chat template has opened them
        ("<think>a</think>b<think>c</think>4", "4"),
        ("<think>2 and", ""),
        ("It is 4.<think>or", "It is 4."),
        (" as it was \n", " as it was \n"),
    ],
)
def test_thoughts_are_left_out_and_nothing_else(text: str, answer: str) -> None:
    assert without_reasoning(text) == answer


def test_thoughts_are_left_out_of_every_turn_of_the_assistants() -> None:
    stripped = EPISODE.without_reasoning()
    assert [turn["content"] for turn in stripped.messages()] == ["2 + 2?", "", "4", "It is 4."]
    assert EPISODE.messages()[1]["content"] == "<think>hm</think>"


async def test_a_judge_is_shown_who_says_what_where_a_response_has_several_turns() -> None:
    judge = ScriptedJudge(lambda *_: "7")
    await PointwiseScorer(judge, JudgeConfig(prompt="{conversation}|{response}", output="text")).score(EPISODE)
    expected = 'user: 2 + 2?|assistant: <think>hm</think>\n{"function": {"name": "add"}}\n\ntool: 4\n\n'
    assert judge.asked[0][0][-1]["content"] == f"{expected}assistant: <think>so</think>It is 4."


async def test_a_judge_is_shown_the_words_of_blocks_as_words() -> None:
    judge = ScriptedJudge(lambda *_: "7")
    blocks = Episode(prompt=[{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}], response="4")
    await PointwiseScorer(judge, JudgeConfig(prompt="{question}{conversation}{response}", output="text")).score(blocks)
    assert judge.asked[0][0][-1]["content"] == "2 + 2?user: 2 + 2?4"
