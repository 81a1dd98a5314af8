"""The steps of a response, as a process reward model is to see them: pure.

A process reward model has a value where its step token stands. The policy writes no such token: its steps are what is
between separators, and each is given the token at its end. Only the template may write control tokens
(`control_tokens`), so a mark stands for them until the words of the conversation are hidden.
"""

from dataclasses import dataclass

# The default: the authors of Qwen2.5-Math-PRM split solutions by it.
SEPARATOR = "\n\n"
# Stands for a step token: the last code point that Unicode leaves to private use.
MARK = chr(0x10FFFD)


@dataclass(frozen=True)
class StepText:
    """A response with a mark at the end of each step.

    Attributes:
        marked: The steps, each followed by a mark, without separators.
        ends: Of each step, in characters of the response: the first that is not the step's. The last step ends where
            the response does.
    """

    marked: str
    ends: tuple[int, ...]


def steps_of(response: str, separator: str) -> StepText:
    """Divide a response; blank stretches do not count, so a blank response has no steps.

    Raises:
        ValueError: The response has a mark in it.
    """
    if MARK in response:
        raise ValueError(f"it has {MARK!r} in it, a code point for private use that stands for step tokens here")
    steps, at = [], 0
    for piece in response.split(separator):
        if piece.strip():
            steps.append((piece, at + len(piece)))
        at += len(piece) + len(separator)
    ends = [end for _, end in steps]
    return StepText("".join(piece + MARK for piece, _ in steps), (*ends[:-1], len(response)) if ends else ())
