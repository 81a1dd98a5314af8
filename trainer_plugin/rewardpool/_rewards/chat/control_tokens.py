"""Words that look like a tokenizer's control tokens, and stay words.

A chat template is rendered to one text, and in that text nobody can tell a turn that the template ended from a response
that says `<|im_end|>`: tokenised as it is, whatever the policy writes could end its turn and let a user praise it. So
such words are hidden behind characters that are in no text while the template is rendered, and tokenised as words.

A text without such words is tokenised in one piece, as the model's authors do it. One with them is tokenised between
its control tokens; that this gives the same tokens is checked each time, with the words still hidden.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# The first code point that stands for hidden words: a plane that Unicode leaves to private use.
FIRST_HIDING = 0xF0000


class ControlTokens:
    """The special tokens of a loaded tokenizer; `ids` has the id of each by its text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.ids = special_tokens(tokenizer)
        longest_first = sorted(self.ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def hide(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The messages with one character in place of each control token in their words, and what each stands for."""
        texts = list(_texts_of(messages))
        found = sorted({match for text in texts for match in self._pattern.findall(text)})
        taken = set().union(*texts) if found else set()
        free = (chr(point) for point in range(FIRST_HIDING, 0x10FFFE) if chr(point) not in taken)
        hidden = dict(zip(found, free, strict=False))

        def replaced(value: Any) -> Any:
            if isinstance(value, str):
                return self._pattern.sub(lambda match: hidden[match[0]], value)
            if isinstance(value, Mapping):
                return {key: replaced(item) for key, item in value.items()}
            return [replaced(item) for item in value] if isinstance(value, list | tuple) else value

        return [replaced(message) for message in messages], {character: words for words, character in hidden.items()}

    def words(self, text: str, hidden: Mapping[str, str]) -> str:
        """The text without its control tokens, and with the words that are hidden in it."""
        return self.shown(self._pattern.sub("", text), hidden)

    @staticmethod
    def shown(text: str, hidden: Mapping[str, str]) -> str:
        for character, words in hidden.items():
            text = text.replace(character, words)
        return text

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of some texts, nothing added; a fast tokenizer has threads of its own for several."""
        if len(texts) > 1 and getattr(self._tokenizer, "is_fast", False):
            return [list(ids) for ids in self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
        return [list(self._tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]

    def with_words(self, whole: list[int], text: str, hidden: Mapping[str, str]) -> list[int]:
        """Return the token ids of a text as it was rendered, with the words that are hidden in it.

        `whole` are its token ids, as `encode` says. Raises ValueError where this tokenizer cannot write words as words.
        """
        if not hidden:
            return whole
        controls = self._pattern.findall(text)
        stretches = self._pattern.split(text)
        for anchor in ("", "\n"):
            if self._joined(stretches, controls, anchor) == whole:
                shown = [self.shown(stretch, hidden) for stretch in stretches]
                ids = self._joined(shown, controls, anchor)
                if sum(id_ in self.ids.values() for id_ in ids) == len(controls):
                    return ids
        said = ", ".join(map(repr, hidden.values()))
        raise ValueError(f"it says {said}, which this tokenizer cannot write but as the control token of that name")

    def _joined(self, stretches: Sequence[str], controls: Sequence[str], anchor: str) -> list[int]:
        """Tokens of the stretches between control tokens; behind an anchor, for tokenizers that begin with a blank."""
        ids = self._plain(stretches[0])
        begins = len(self._plain(anchor))
        for control, stretch in zip(controls, stretches[1:], strict=True):
            ids.append(self.ids[control])
            ids += self._plain(anchor + stretch)[begins:] if stretch else []
        return ids

    def _plain(self, text: str) -> list[int]:
        if not text:
            return []
        return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


def special_tokens(tokenizer: Any) -> dict[str, int]:
    """Return the id of each special token of a loaded tokenizer by its text."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {token.content: id_ for id_, token in added.items() if token.special and token.content}


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_of(item)
