"""What an episode's turns and words become before a model reads them."""

from support.scripted_judge import ScriptedJudge

from rewardpool._rewards import Episode
from rewardpool._rewards.judges.judge import PointwiseScorer
from rewardpool._rewards.part_config import JudgeConfig

CALL = {"role": "assistant", "content": "<think>hm</think>", "tool_calls": [{"function": {"name": "add"}}]}
TURNS = [CALL, {"role": "tool", "content": "4"}, {"role": "assistant", "content": "<think>so</think>It is 4."}]
EPISODE = Episode(prompt="2 + 2?", response="It is 4.", turns=TURNS)


def test_thoughts_are_left_out_of_every_turn_of_the_assistants() -> None:
    stripped = EPISODE.without_reasoning()
    assert [turn["content"] for turn in stripped.messages()] == ["2 + 2?", "", "4", "It is 4."]
    assert EPISODE.messages()[1]["content"] == "<think>hm</think>"


def test_an_episode_whose_prompt_opened_the_thoughts_has_only_what_follows_them() -> None:
    cut_off, whole = (
        Episode(prompt="6 * 7?", response=response, prompt_tail="<|assistant|><think>\n")
        for response in ("First 6 times 7, wait", "First 6 times 7.\n</think>\n42")
    )
    assert [episode.without_reasoning().response for episode in (cut_off, whole)] == ["", "42"]


async def test_a_judge_is_shown_who_says_what_where_a_response_has_several_turns() -> None:
    judge = ScriptedJudge(lambda *_: "Score: 7")
    await PointwiseScorer(judge, JudgeConfig(prompt="{conversation}|{response}", output="text")).score(EPISODE)
    expected = 'user: 2 + 2?|assistant: <think>hm</think>\n{"function": {"name": "add"}}\n\ntool: 4\n\n'
    assert judge.asked[0][0][-1]["content"] == f"{expected}assistant: <think>so</think>It is 4."


async def test_a_judge_is_shown_the_words_of_blocks_as_words() -> None:
    judge = ScriptedJudge(lambda *_: "Score: 7")
    blocks = Episode(prompt=[{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}], response="4")
    await PointwiseScorer(judge, JudgeConfig(prompt="{question}{conversation}{response}", output="text")).score(blocks)
    assert judge.asked[0][0][-1]["content"] == "2 + 2?user: 2 + 2?4"
