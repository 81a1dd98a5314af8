"""From the tokens of a rollout with several turns to chat messages.

A policy that calls tools writes, is answered, and writes on, and a trainer hands all of it over as one response. To a
reward model that is one turn of an assistant who answers itself. So the response is taken apart where the policy's chat
template begins another turn. Only real control tokens count: a policy that spells one out in words begins no turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rewardpool._policy.response_end import reasoning_tokens
from rewardpool._policy.text import MEDIA, renderer
from rewardpool._rewards.chat.control_tokens import ControlTokens

_ANSWERING = ("tool", "user")


class PolicyTurns:
    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._control = ControlTokens(tokenizer)
        self._words = reasoning_tokens(self._control.ids)
        self._next = _separators(tokenizer)

    def split(self, token_ids: Sequence[int]) -> list[dict[str, Any]]:
        """The turns of a response, the assistant's first; one where it has no others.

        Args:
            token_ids: The response in the policy's tokens, shape (tokens,).
        """
        text, hidden = self._text(token_ids)
        turns, role = [], "assistant"
        while found := self._first_separator(text, role):
            start, separator, following = found
            turns.append((role, text[:start]))
            text, role = text[start + len(separator) :], following
        turns.append((role, text))
        return [{"role": role, "content": self._control.words(content, hidden)} for role, content in turns]

    def medium(self, token_ids: Sequence[int]) -> str | None:
        """The token of a picture or the like in a response; None where all of it is words."""
        return next((word for word in (*MEDIA, "<image>", "[IMG]") if self._control.ids.get(word) in token_ids), None)

    def _first_separator(self, text: str, role: str) -> tuple[int, str, str] | None:
        # Of two that begin at the same place the longer one: a tool's turn may be written as a user's with a mark.
        found = [(text.find(separator), -len(separator), separator, to) for separator, to in self._next[role]]
        return next(((at, separator, to) for at, _, separator, to in sorted(found) if at >= 0), None)

    def _text(self, token_ids: Sequence[int]) -> tuple[str, Mapping[str, str]]:
        """The response as text in which control tokens are real ones, and what hides those that are not."""
        names = {id_: name for name, id_ in self._control.ids.items() if id_ not in self._words}
        stretches: list[list[int]] = [[]]
        controls = []
        for token in token_ids:
            if token in names:
                controls.append(names[token])
                stretches.append([])
            else:
                stretches[-1].append(token)
        said = [{"content": self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)} for ids in stretches]
        shown, hidden = self._control.hide(said)
        words = [message["content"] for message in shown]
        return words[0] + "".join(
            control + stretch for control, stretch in zip(controls, words[1:], strict=True)
        ), hidden


def _separators(tokenizer: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the texts that the template writes after a turn of each role, and the role that each begins."""
    render = renderer(tokenizer)
    found: dict[str, list[tuple[str, str]]] = {role: [] for role in ("assistant", *_ANSWERING)}
    for role in _ANSWERING:
        for times in (1, 2):
            roles = ("user", "assistant", *(role,) * times)
            marks = [f"\u2060{index}\u2060" for index in range(len(roles))]
            text = render([{"role": each, "content": mark} for each, mark in zip(roles, marks, strict=True)])
            if text is None or any(mark not in text for mark in marks):
                continue
            behind = text.partition(marks[1])[2]
            if times == 1:
                before, _, after = behind.partition(marks[2])
                found["assistant"].append((before, role))
                found[role].append((after, "assistant"))
            else:
                found[role].append((behind.partition(marks[2])[2].partition(marks[3])[0], role))
    return {role: [(separator, to) for separator, to in pairs if separator] for role, pairs in found.items()}
