import json
from typing import Any

import numpy as np
import pytest

from rewardpool.errors import ConfigError
from rewardpool.verl.rollout import episode, response_ids

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


def test_a_row_without_the_prompts_messages_names_the_key_that_keeps_them() -> None:
    without = {name: value for name, value in row().items() if name != "raw_prompt"}
    with pytest.raises(ConfigError, match=r"data\.return_raw_chat"):
        episode(without, "4", [4], max_tokens=None, eos=None)
