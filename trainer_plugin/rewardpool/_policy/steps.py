"""Ends of a response's steps among the policy's tokens, whatever tokens the reward model has.

A process reward model's values come with the ends of the steps in characters of the response (`Rating.steps`). The
tokens of a policy have no places in its text that one could ask for: what it sampled need not be what its tokenizer
would make of the text, a token may be a part of a character, and decoders join words as they like. So the place is
found by decoding: a step ends in the first token with which the decoded tokens begin with all of the text up to there.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from rewardpool._rewards.episode import Episode
from rewardpool._rewards.rating import Rating
from rewardpool.errors import ScoreError

# From token ids to the text that they make together, as the response was decoded.
Decode = Callable[[Sequence[int]], str]


def at_tokens(rating: Rating, episode: Episode, token_ids: Sequence[int], decode: Decode) -> list[tuple[int, float]]:
    """Return the rewards of a response's steps, each with the index of the token in which it ends.

    The token ids are of the response, shape (tokens,), which `decode` made. Raises ScoreError where the rating has no
    steps, or the tokens do not make the response.
    """
    if not rating.steps:
        raise ScoreError(episode.label, "it has a score, and no step of it has one", fault="verifier")
    ends = [step.end for step in rating.steps]
    try:
        tokens = end_tokens(ends, text=episode.response, token_ids=token_ids, decode=decode)
    except ValueError as error:
        raise ScoreError(episode.label, str(error), fault="verifier") from error
    return [(token, step.value) for token, step in zip(tokens, rating.steps, strict=True)]


def end_tokens(ends: Sequence[int], *, text: str, token_ids: Sequence[int], decode: Decode) -> list[int]:
    """Return the index of the token in which each step ends; several may end in one.

    Args:
        ends: In characters of the text, one at least, growing, from 1 on. The last step takes all tokens that are left,
            also those without text, such as the one that ends a response.
        text: The response, decoded from all of the tokens.
        token_ids: Of the response, shape (tokens,).
        decode: As the text was decoded.

    Raises:
        ValueError: The tokens do not make that text.
    """
    if not token_ids:
        raise ValueError("it has no tokens, and steps end in tokens")
    found, begun, written = [], 0, 0
    for end in ends[:-1]:

        def has_step(count: int, end: int = end) -> bool:
            return decode(token_ids[:count]).startswith(text[:end])

        # A stretch by itself says about where, at little cost; only what is decoded from the beginning says where.
        count = max(1, begun + _tokens_for(end - written, token_ids[begun:], decode))
        while not has_step(count):
            if count == len(token_ids):
                raise ValueError(f"its tokens do not make the text {text[:end]!r:.60}, at the end of a step")
            count += 1
        while count > 1 and has_step(count - 1):
            count -= 1
        found.append(count - 1)
        begun, written = count, end
    return [*found, len(token_ids) - 1]


def _tokens_for(characters: int, token_ids: Sequence[int], decode: Decode) -> int:
    """Return with how many of the tokens there are about so many characters; all, where there never are."""
    width = 16
    while width < len(token_ids) and len(decode(token_ids[:width])) < characters:
        width *= 2
    width = min(width, len(token_ids))
    return bisect_left(range(width), characters, key=lambda count: len(decode(token_ids[:count])))
