import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewardpool._rewards import Episode, Rating
from rewardpool.errors import ConfigError
from rewardpool.verl.response_scorer import ResponseScorer
from rewardpool.verl.reward import check_readable
from rewardpool.verl.rollout import episode, medium, response_ids

END = 9
TENSORS = {"responses": np.array([5, 6, END, 0]), "attention_mask": np.array([0, 1, 1, 1, 1, 0])}


def row(**changes: Any) -> dict[str, Any]:
    prompt = np.empty(1, dtype=object)
    prompt[0] = {"role": "user", "content": "2 + 2?"}
    return {
        "raw_prompt": prompt,
        "data_source": "gsm8k",
        "reward_model": {"ground_truth": "4"},
        "extra_info": {"index": np.int64(3), "hints": np.array(["add"])},
        "uid": "group-1",
        "__num_turns__": np.int64(2),
        "tool_extra_fields": {"raw_prompt": prompt, "turn_scores": []},
    } | changes


def test_padding_is_no_part_of_the_response() -> None:
    assert response_ids(TENSORS, {}) == [5, 6, END]


def test_the_length_that_the_agent_loop_gives_goes_before_the_mask() -> None:
    assert response_ids(TENSORS, {"response_len": np.int64(2)}) == [5, 6]


def test_an_episode_has_all_that_verl_knows_in_types_that_json_has() -> None:
    made = episode(row(), "4", [4, END], max_tokens=8, eos=END)
    assert (made.prompt, made.ground_truth, made.data_source) == ([{"role": "user", "content": "2 + 2?"}], "4", "gsm8k")
    assert (made.group, made.id, made.response_ids) == ("group-1", "group-1", [4, END])
    assert json.loads(json.dumps(made.extra_info)) == {
        "index": 3,
        "hints": ["add"],
        "turn_scores": [],
        "num_turns": 2,
        "rollout_reward_scores": {},
    }


def test_the_trainers_own_extra_info_is_left_as_it_is() -> None:
    given = row()
    episode(given, "4", [4], max_tokens=8, eos=END)
    assert set(given["extra_info"]) == {"index", "hints"}


@pytest.mark.parametrize(("token_ids", "is_cut"), [([1, 2, 3], True), ([1, 2, END], False), ([1, 2], False)])
def test_a_response_at_the_limit_that_does_not_end_was_cut_off(token_ids: list[int], is_cut: bool) -> None:
    assert episode(row(), "", token_ids, max_tokens=3, eos=END).truncated is is_cut


IMAGE = {"role": "user", "content": [{"type": "image", "image": object()}, {"type": "text", "text": "?"}]}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, None),
        ({"raw_prompt": [IMAGE]}, "image"),
        ({"raw_prompt": np.array([IMAGE], dtype=object)}, "image"),
        ({"raw_prompt": [{"role": "user", "content": [{"type": "video_url", "video_url": "x"}]}]}, "video"),
        ({"raw_prompt": [{"role": "user", "content": [{"type": "text", "text": "?"}]}]}, None),
        ({"multi_modal_data": {"images": [object()]}}, "image"),  # by a tool, in a later turn
        ({"multi_modal_data": {"images": [], "videos": None}}, None),
        ({"multi_modal_data": None}, None),
    ],
)
def test_what_a_row_has_beside_text_is_named_as_verls_config_names_it(changes: Any, found: str | None) -> None:
    assert medium(row(**changes)) == found


class Reading:
    """Stands in for a reward with one pool."""

    def __init__(self, model_type: str) -> None:
        self.pools = {"rl/skywork": SimpleNamespace(endpoint=SimpleNamespace(model_type=model_type))}

    async def rate_next(self, _: Episode) -> Rating:
        return Rating(total=1.0, components={"part": 1.0})


async def test_a_picture_is_refused_by_the_key_of_its_column_where_a_reward_model_would_see_a_placeholder() -> None:
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "4", eos_token_id=END)
    pictures = row(raw_prompt=[IMAGE])
    with pytest.raises(ConfigError, match=r"^data\.image_key: .* rl/skywork is sent text alone"):
        await ResponseScorer(Reading("Discriminative"), tokenizer, max_response_tokens=8).score(pictures, [4, END])
    scored = await ResponseScorer(Reading("Function"), tokenizer, max_response_tokens=8).score(pictures, [4, END])
    assert (scored.score, scored.steps) == (1.0, None)


def test_a_row_without_the_prompts_messages_names_the_key_that_keeps_them() -> None:
    without = {name: value for name, value in row().items() if name != "raw_prompt"}
    with pytest.raises(ConfigError, match=r"data\.return_raw_chat"):
        episode(without, "4", [4], max_tokens=None, eos=None)


def test_a_reward_function_that_has_a_model_read_several_turns_as_one_names_the_manager_that_does_not() -> None:
    check_readable({"question": "2 + 2?", "num_turns": 2}, "question")
    with pytest.raises(ConfigError, match=r"^reward\.reward_manager\.name: must be rewardpool where responses"):
        check_readable({"question": "2 + 2?", "num_turns": 4}, "question")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"raw_prompt": [IMAGE], "multi_modal_data": {"images": [1]}}, False),
        ({"raw_prompt": np.array([IMAGE], dtype=object), "multi_modal_data": {"images": [1]}}, False),
        ({"raw_prompt": [{"role": "user", "content": "<image>?"}], "multi_modal_data": {"images": [1]}}, True),
        ({"raw_prompt": [IMAGE], "multi_modal_data": {"images": [1, 2]}}, True),  # one by a tool
    ],
)
async def test_a_judge_is_sent_the_pictures_of_a_rows_prompt_and_no_row_with_others(
    changes: Any, refused: bool
) -> None:
    given = row(**changes)
    scorer = ResponseScorer(
        Reading("Generative"), SimpleNamespace(decode=lambda *_, **__: "4", eos_token_id=END), max_response_tokens=8
    )
    if refused:
        with pytest.raises(ConfigError, match=r"^data\.image_key: .* rl/skywork would be sent a placeholder"):
            await scorer.score(given, [4, END])
    else:
        assert (await scorer.score(given, [4, END])).score == 1.0
        rated = episode(given, "4", [4], max_tokens=8, eos=END)
        assert rated.prompt[0]["content"][0]["image"] is IMAGE["content"][0]["image"]
