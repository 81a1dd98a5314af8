"""Thoughts of a model that reasons before it answers: one block at the very beginning of what it writes. Pure.

The block is in declared tags: those that a config names, or those of a known model. A tag further on is words: models
explain their own tags, and write code that prints them. Some chat templates write the opening tag at the end of the
prompt, so only the closing one is in the text; that is a fact about the prompt, not something to find in the text.

A model's own words cannot move the end of the block further: it ends at the first closing tag, as engines' reasoning
parsers have it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Tags(NamedTuple):
    """Text before and after thoughts."""

    opening: str
    closing: str


# Tags of models whose chat templates are known.
KNOWN = (
    Tags("<think>", "</think>"),  # Qwen, DeepSeek, GLM, Kimi, MiniMax, Nemotron, OLMo, Step
    Tags("[THINK]", "[/THINK]"),  # Magistral, Ministral
    Tags("<seed:think>", "</seed:think>"),  # Seed-OSS
    Tags("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi-VL
    Tags("<mm:think>", "</mm:think>"),  # MiniMax-M3
    Tags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    Tags("<|channel>thought\n", "<channel|>"),  # Gemma 4
    # gpt-oss. What it says to tools before its final channel counts as thoughts.
    Tags("<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>"),
    Tags("<|channel|>final<|message|>", ""),  # gpt-oss without thoughts
)

_LOOKS_LIKE_TAG = re.compile(
    r"\s*(?:<{some}{names}{some}>|\[{some}{names}{some}\](?!\())".format(
        names="(?:think|thought|reason|reflect|analysis|scratchpad|channel)",
        some=r"[^<>\[\]\s]{0,40}",  # bounded, or a policy could make it take long
    ),
    re.IGNORECASE,
)
# gpt-oss, decoded without its special tokens.
_CHANNELS_WITHOUT_TOKENS = re.compile(r"\s*analysis.*assistantfinal", re.DOTALL)


class Reasoned(NamedTuple):
    """A text in two.

    Attributes:
        thoughts: Those that it begins with, without tags; None where it begins with none.
        answer: What follows them, or the text as it is; None where the thoughts do not end.
    """

    thoughts: str | None
    answer: str | None


def split_reasoning(text: str, tags: Sequence[Tags] = KNOWN, *, opened: bool = False) -> Reasoned:
    """Split a model's text into thoughts and answer; `opened` where the prompt ended in an opening tag."""
    begun = text.lstrip()
    used = next((pair for pair in tags if begun.startswith(pair.opening)), None)
    if used is not None:
        begun = begun.removeprefix(used.opening)
        at, closing = begun.find(used.closing), used.closing
    elif opened:
        found = [(at, pair.closing) for pair in tags if pair.closing and (at := begun.find(pair.closing)) >= 0]
        at, closing = min(found, default=(-1, ""))
    else:
        return Reasoned(None, text)
    if at < 0:
        return Reasoned(begun, None)
    return Reasoned(begun[:at], begun[at + len(closing) :].strip())


def unclosed(text: str) -> str | None:
    """Return the closing tag of the thoughts that a text begins with and does not end; None without such thoughts."""
    if split_reasoning(text).answer is not None:
        return None
    return next(pair.closing for pair in KNOWN if text.lstrip().startswith(pair.opening))


def opens_reasoning(prompt: str, tags: Sequence[Tags] = KNOWN) -> bool:
    """Return whether a prompt, as the model reads it, ends in an opening tag."""
    return prompt.rstrip().endswith(tuple(pair.opening.rstrip() for pair in tags if pair.closing))


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """Marks of a policy's thoughts.

    Attributes:
        tags: The policy's own; None for the known ones.
        prompt_opens: Whether its prompts end in the opening tag; None where neither a config nor a template says.
    """

    tags: Tags | None = None
    prompt_opens: bool | None = None

    def split(self, text: str, *, prompt_tail: str | None = None) -> Reasoned:
        """Split a response into thoughts and answer.

        Args:
            prompt_tail: The last words of its prompt as the policy read it; None where they are not known.
        """
        return split_reasoning(text, self._tags, opened=self._opened(prompt_tail) or False)

    def answer(self, text: str, *, prompt_tail: str | None = None) -> str:
        """Return a response without its thoughts: nothing, where they do not end. Arguments as `split`."""
        return self.split(text, prompt_tail=prompt_tail).answer or ""

    def problem(self, text: str, *, prompt_tail: str | None = None) -> str | None:
        """Return why a response may have thoughts in it that are not declared; None where it has none such.

        The arguments are those of `split`.
        """
        opened = self._opened(prompt_tail)
        if self.split(text, prompt_tail=prompt_tail).thoughts is not None:
            return None
        if opened is None:
            for pair in self._tags:
                if pair.closing and _closes_unopened(text, pair):
                    return (
                        f"it has {pair.closing} at the end of a line and no {pair.opening} before it; declare"
                        " strip_reasoning: {prompt_opens: true} if the policy's prompts end in"
                        f" {pair.opening.strip()}, else {{prompt_opens: false}}"
                    )
        if self.tags is not None:
            return None
        if _CHANNELS_WITHOUT_TOKENS.match(text):
            return "it looks like gpt-oss' channels, decoded without special tokens; decode it with them"
        if (found := _LOOKS_LIKE_TAG.match(text)) is not None:
            return (
                f"it begins with {found[0].strip()}, which is the tag of no known model; declare"
                " strip_reasoning: {tags: [OPENING, CLOSING]} with the policy's own tags"
            )
        return None

    @property
    def _tags(self) -> Sequence[Tags]:
        return KNOWN if self.tags is None else (self.tags,)

    def _opened(self, prompt_tail: str | None) -> bool | None:
        return self.prompt_opens if prompt_tail is None else opens_reasoning(prompt_tail, self._tags)


def _closes_unopened(text: str, pair: Tags) -> bool:
    """Return whether a closing tag ends a line, or is one, before any opening tag."""
    before = text.partition(pair.opening)[0]
    return any(line.strip().endswith(pair.closing) for line in before.splitlines())
