"""End tokens of a policy's response, and the response without them.

A response ends in a special token of the policy, and in a batch with padding behind it. Only the policy's own tokenizer
and generation config say which those are: `</s>` ends Llama 2's responses, and is struck-through text in HTML. By token
ids the two differ. A text is cut at its very end alone, at each end token once; where the tokenizer is not known,
nothing is cut.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardpool._rewards.answers.reasoning import KNOWN
from rewardpool._rewards.chat.control_tokens import special_tokens

# Looks like a special token of some model.
_SPELT = re.compile(
    r"(?:<[|\uff5c][^<>|\uff5c\s]{1,40}[|\uff5c]>|<(?:end_of_turn|turn\||eos|bos|pad|seed:eos)>|</s>|\[(?:PAD|EOS|SEP)\])\Z"
)
# At the end of a prompt, in which an opening tag fits.
TAIL_TOKENS = 16
_MARKUP_END = re.compile(r"</(\w+)>")


@dataclass(frozen=True)
class ResponseEnd:
    """The special tokens that end a policy's responses.

    Attributes:
        ends: Texts of those that end a turn or a text.
        pads: Texts of those that fill a batch.
        ids: Of both, where the tokenizer says them.
    """

    ends: frozenset[str]
    pads: frozenset[str]
    ids: frozenset[int] = field(default_factory=frozenset)

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, *, stop_ids: Iterable[int] = (), turn_end: str | None = None
    ) -> "ResponseEnd":
        """Read them off the policy's loaded tokenizer.

        Args:
            stop_ids: `eos_token_id` of its generation config.
            turn_end: What its chat template writes after an assistant's words; None where that is not known.
        """
        special = special_tokens(tokenizer)
        names = {id_: name for name, id_ in special.items()}
        eos, pad = getattr(tokenizer, "eos_token", None), getattr(tokenizer, "pad_token", None)
        ends = {name for id_ in stop_ids if (name := names.get(id_) or _text_of(tokenizer, id_))}
        begun = (turn_end or "").lstrip()
        ends |= {name for name in special if begun.startswith(name)} | ({str(eos)} if eos else set())
        pads = {str(pad)} if pad else set()
        known = {special[name] for name in ends | pads if name in special}
        return cls(frozenset(ends), frozenset(pads), frozenset([*stop_ids, *known]))

    def cut(self, text: str) -> str:
        """Return a response without padding and end tokens behind it."""
        text = _without_padding(text, self.pads)
        left = set(self.ends)
        while (end := next((one for one in left if _ends_in(text.rstrip(), one)), None)) is not None:
            text = text.rstrip().removesuffix(end)
            left.remove(end)  # of two the first one is words
        return text

    def cut_ids(self, token_ids: Sequence[int], *, is_blank: Callable[[int], bool]) -> Sequence[int]:
        """Return a response's tokens, shape (tokens,), without padding and end tokens behind it.

        `is_blank` tells white space, which templates write between two end tokens.
        """
        length = blank = len(token_ids)
        while blank:
            if token_ids[blank - 1] in self.ids:
                length = blank - 1
            elif length == len(token_ids) or not is_blank(token_ids[blank - 1]):
                break
            blank -= 1
        return token_ids[:length]

    def without_left_padding(self, text: str) -> str:
        while (pad := next((pad for pad in self.pads if text.startswith(pad)), None)) is not None:
            text = text.removeprefix(pad)
        return text


def spelt_end(text: str) -> str | None:
    """Return what at the end of a text may be a special token of a policy that is not known; None without such."""
    found = _SPELT.search(text.rstrip())
    return found[0] if found is not None and _ends_in(text.rstrip(), found[0]) else None


class ResponseDecoder:
    """Decodes responses by the policy's loaded tokenizer, without special tokens but for those that mark thoughts.

    Magistral's `[THINK]` is a special token: without it nothing would tell thoughts from the answer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._marks = reasoning_tokens(special_tokens(tokenizer))

    def __call__(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens, shape (tokens,)."""
        if self._marks.isdisjoint(token_ids):
            return self._decode(token_ids, skip=True)
        pieces: list[list[int]] = [[]]
        for id_ in token_ids:
            if id_ in self._marks:
                pieces += [[id_], []]
            else:
                pieces[-1].append(id_)
        return "".join(self._decode(piece, skip=index % 2 == 0) for index, piece in enumerate(pieces) if piece)

    def tail(self, prompt_ids: Sequence[int]) -> str:
        """Return the last words of a prompt, special tokens included: `Episode.prompt_tail`."""
        return self._decode(prompt_ids[-TAIL_TOKENS:], skip=False)

    def _decode(self, token_ids: Sequence[int], *, skip: bool) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=skip))


def reasoning_tokens(special: Mapping[str, int]) -> set[int]:
    """Return the ids of those special tokens, given with their ids by text, that mark the thoughts of a known model."""
    tags = [tag for pair in KNOWN if any(name in pair.opening for name in special) for tag in pair]
    return {id_ for name, id_ in special.items() if any(name in tag for tag in tags)}


def _text_of(tokenizer: Any, id_: int) -> str:
    return str(tokenizer.decode([id_])).strip()


def _without_padding(text: str, pads: Collection[str]) -> str:
    while (pad := next((pad for pad in pads if _ends_in(text.rstrip(), pad)), None)) is not None:
        text = text.rstrip().removesuffix(pad)
    return text


def _ends_in(text: str, token: str) -> bool:
    """Return whether a text ends in a token, and not in markup of its own that is spelt like it."""
    if not text.endswith(token):
        return False
    markup = _MARKUP_END.fullmatch(token)
    return markup is None or text.count(f"<{markup[1]}>") < text.count(token)
