"""Where steps end among tokens that are parts of words, of separators and of characters."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._policy.steps import end_tokens
from rewardpool._rewards.steps import steps_of


def decoder(tokens: Sequence[bytes]) -> tuple[list[int], str]:
    return list(range(len(tokens))), b"".join(tokens).decode(errors="replace")


def found(tokens: Sequence[bytes], ends: Sequence[int]) -> list[int]:
    ids, text = decoder(tokens)
    return end_tokens(
        ends,
        text=text,
        token_ids=ids,
        decode=lambda some: b"".join(tokens[id_] for id_ in some).decode(errors="replace"),
    )


@pytest.mark.parametrize(
    ("tokens", "ends", "at"),
    [
        ([b"one", b"\n\n", b"two"], [3, 8], [0, 2]),
        ([b"one.", b"\n\n", b"two", b""], [4, 9], [0, 3]),  # the last has no text, as the one that ends a response
        ([b"o", b"ne.\n\n", b"two"], [4, 9], [1, 2]),  # a token that ends the step and begins the separator
        ([b"a\n\nb", b"c"], [1, 5], [0, 1]),
        ([b"a\n\nb\n\n", b"c"], [1, 4, 7], [0, 0, 1]),  # two steps end in one token
        ([b"", b"one", b"", b"\n\n", b"two"], [3, 8], [1, 4]),
        (["€".encode()[:1], "€".encode()[1:], b"\n\n", b"x"], [1, 4], [1, 3]),  # a character of two tokens
        ([b"\xe2", b"\n\nx", b"y"], [1, 5], [0, 2]),  # half a character, which stays one
        ([b"one"], [3], [0]),
    ],
)
def test_a_step_ends_in_the_token_that_has_its_last_character(
    tokens: list[bytes], ends: list[int], at: list[int]
) -> None:
    assert found(tokens, ends) == at


@given(st.lists(st.sampled_from([b"a", b"b\n", b"\n", b"\n\n", b"c.\n\n", b"", "é".encode()[:1], "é".encode()[1:]])))
def test_what_is_decoded_up_to_a_steps_token_has_the_step_and_without_it_has_not(tokens: list[bytes]) -> None:
    ids, text = decoder(tokens)
    ends = steps_of(text, "\n\n").ends
    if not ends:
        return
    at = found(tokens, ends)
    assert at == sorted(at)
    assert at[-1] == len(ids) - 1
    for token, end in zip(at[:-1], ends, strict=False):
        assert b"".join(tokens[: token + 1]).decode(errors="replace").startswith(text[:end])
        assert not b"".join(tokens[:token]).decode(errors="replace").startswith(text[:end])


def test_tokens_of_another_text_are_refused() -> None:
    with pytest.raises(ValueError, match="do not make the text 'one'"):
        end_tokens([3, 8], text="one\n\ntwo", token_ids=[0, 1], decode=lambda ids: "two"[: len(ids)])


def test_a_response_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        end_tokens([3], text="one", token_ids=[], decode=lambda ids: "")
