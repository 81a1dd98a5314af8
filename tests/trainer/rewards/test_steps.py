import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards.config import parse_reward
from rewardpool._rewards.steps import MARK, steps_of
from rewardpool.errors import ConfigError

PROCESS = {"pool": "rl/prm", "supervision": "process"}


@pytest.mark.parametrize(
    ("response", "shown", "ends"),
    [
        ("2 + 2 = 4", "2 + 2 = 4|", (9,)),
        ("one\n\ntwo", "one|two|", (3, 8)),
        ("one\n\ntwo\n\n", "one|two|", (3, 10)),
        ("\n\none\n\n\n\ntwo", "one|two|", (5, 12)),
        ("one\n\n  \n\ntwo", "one|two|", (3, 12)),
        ("one\n\n\ntwo", "one|\ntwo|", (3, 9)),
        ("", "", ()),
        (" \n\n ", "", ()),
    ],
)
def test_a_response_is_divided_at_blank_lines(response: str, shown: str, ends: tuple[int, ...]) -> None:
    text = steps_of(response, "\n\n")
    assert (text.marked.replace(MARK, "|"), text.ends) == (shown, ends)


@given(st.text("ab \n", max_size=40), st.sampled_from(["\n", "\n\n", "ab"]))
def test_steps_leave_nothing_out_but_separators_and_blanks(response: str, separator: str) -> None:
    text = steps_of(response, separator)
    pieces = text.marked.split(MARK)[:-1]
    assert [piece for piece in response.split(separator) if piece.strip()] == pieces
    assert len(text.ends) == len(pieces)
    assert list(text.ends) == sorted(set(text.ends))
    assert all(response[:end].endswith(piece) for end, piece in zip(text.ends[:-1], pieces, strict=False))
    assert text.ends[-1:] == ((len(response),) if pieces else ())


def test_a_response_that_has_a_mark_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="private use"):
        steps_of(f"one{MARK}two", "\n\n")


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({**PROCESS, "normalize": "group"}, "reward", "takes neither normalize"),
        ({**PROCESS, "strip_reasoning": True}, "reward", "nor strip_reasoning"),
        ({**PROCESS, "post_process": "rules:best"}, "reward.supervision", "with post_process"),
        (
            {"rewards": [{"function": "rules:short"}, {"pool": "rl/prm", "supervision": "process"}]},
            "reward.rewards[1].supervision",
            "beside other parts",
        ),
        ({"function": "rules:short", "supervision": "process"}, "reward.supervision", ""),
        ({**PROCESS, "steps": {"separator": ""}}, "reward.steps.separator", ""),
    ],
)
def test_what_cannot_reward_steps_is_named(spec: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_reward(spec)
    assert caught.value.field == field
    assert said in caught.value.problem
