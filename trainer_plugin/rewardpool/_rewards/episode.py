"""One rollout, as every trainer can give it. A reward decides what it needs of it."""

import json
import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rewardpool._rewards.answers.reasoning import Reasoning
from rewardpool._rewards.messages import text_or_messages
from rewardpool.errors import InvalidSampleError
from rewardpool_runtime.json_values import described

# One turn of a chat: `{"role": ..., "content": ...}`.
Message = Mapping[str, Any]


def medium_of(messages: Iterable[Message], *, known: Collection[str] = ()) -> str | None:
    """The type of the first block of a message that is neither text nor of a known type; None where there is none."""
    for message in messages:
        content = message.get("content")
        for block in () if content is None or isinstance(content, str) else content:
            kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
            if kind != "text" and kind not in known:
                return str(kind)
    return None


def plain_message(message: Message) -> dict[str, Any]:
    """The message with its words as one text; content that is not text alone stays as it is."""
    # Most chat templates write a list as Python does, brackets and all, and the None of an assistant that only calls
    # tools as "None".
    content = message.get("content")
    if content is None:
        return {**message, "content": ""}
    if isinstance(content, str) or medium_of([message]) is not None:
        return dict(message)
    return {**message, "content": "".join(block["text"] for block in content)}


def is_missing(value: Any) -> bool:
    """Return whether a table has no value there: None, NaN, or what pandas has in their place."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


def _data_source(source: Any, *, label: str) -> str:
    if is_missing(source):
        return ""
    if not isinstance(source, str):
        raise InvalidSampleError(label, f"data_source is {described(source)}; give a text")
    return source


def read_extra_info(info: Any, *, label: str) -> Mapping[str, Any]:
    """Return what a row says besides: a mapping, or one as JSON text; an empty one where a table has no value.

    Raises:
        InvalidSampleError: It is something else.
    """
    if is_missing(info):
        return {}
    if isinstance(info, str):
        try:
            read = json.loads(info)
        except (ValueError, RecursionError) as error:
            raise InvalidSampleError(
                label, f"extra_info is a text that is not JSON ({error}); give a mapping, or its JSON text"
            ) from None
        if not isinstance(read, dict):
            raise InvalidSampleError(label, f"extra_info is the JSON text of {described(read)}; give that of an object")
        return read
    if not isinstance(info, Mapping):
        raise InvalidSampleError(label, f"extra_info is {described(info)}; give a mapping, or its JSON text")
    return info


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A prompt, the policy's response to it, and what is known about the two.

    Attributes:
        prompt: What the policy was asked: chat messages, or the bare text of one user's turn. No chat template of the
            policy's applied, because the reward model has its own.
        response: What the policy wrote, without the special tokens around it.
        turns: The response as chat messages, where it has more than one: what the policy said, the tools it called,
            what they or a user answered. None for one turn of the assistant's, which is `response`.
        ground_truth: What a right answer is, for reward functions and judges.
        data_source: Which data set the prompt is from, for reward functions.
        extra_info: Whatever else the data set says, for reward functions and a judge's prompt: a mapping, or the JSON
            text of an object; None and NaN, which mark a missing value in a table, are an empty one.
        group: The same for all rollouts of one prompt, and another each time it is rolled out; None where the trainer
            has no groups.
        prompt_ids: The prompt in the policy's own tokens, shape (tokens,).
        response_ids: The response in the policy's own tokens, shape (tokens,).
        response_tokens: Length of the response in the policy's tokens; by default that of `response_ids`.
        version: Of the policy that the rollouts of its group were begun with, the same for all of them: a number that
            grows. By it `normalize: running` knows which steps are earlier; None where the trainer tells of no steps.
        truncated: Whether the response was cut off at the length limit.
        prompt_tail: The last words of the prompt as the policy read it, in its chat template: they show whether the
            response begins within thoughts. 40 characters are enough; None where they are not known.
        id: A name for messages.

    Raises:
        InvalidSampleError: `prompt`, `response`, `turns`, `data_source` or `extra_info` is something else.
    """

    prompt: str | Sequence[Message]
    response: str
    turns: Sequence[Message] | None = None
    ground_truth: Any = None
    data_source: str = ""
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    group: Hashable | None = None
    prompt_ids: Sequence[int] | None = None
    response_ids: Sequence[int] | None = None
    response_tokens: int | None = None
    version: int | None = None
    truncated: bool = False
    prompt_tail: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if type(self.prompt) is not str:
            self._read("prompt", text_or_messages(self.prompt, what="prompt", label=self.label))
        if not isinstance(self.response, str):
            raise InvalidSampleError(self.label, f"response is {described(self.response)}; give a text")
        if self.turns is not None:
            turns = text_or_messages(self.turns, what="turns", label=self.label)
            if isinstance(turns, str):
                raise InvalidSampleError(self.label, "turns is a text; give a list of messages, or only the response")
            self._read("turns", turns)
        if type(self.data_source) is not str:
            self._read("data_source", _data_source(self.data_source, label=self.label))
        if type(self.extra_info) is not dict:
            self._read("extra_info", read_extra_info(self.extra_info, label=self.label))

    def _read(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def label(self) -> str:
        """Names the episode in messages."""
        return self.id or "(unnamed)"

    def medium(self, *, in_prompt: Collection[str] = ()) -> str | None:
        """Return the type of the first block of a message that is not text, such as `image`; None where there is none.

        Args:
            in_prompt: Types that do not count in the prompt's messages.
        """
        prompt = [] if isinstance(self.prompt, str) else self.prompt
        return medium_of(prompt, known=in_prompt) or medium_of(self.turns or ())

    def prompt_messages(self) -> list[dict[str, Any]]:
        """The prompt as chat messages."""
        if isinstance(self.prompt, str):
            return [{"role": "user", "content": self.prompt}]
        return [plain_message(message) for message in self.prompt]

    def response_messages(self) -> list[dict[str, Any]]:
        """The response as chat messages: the turns that it has, or one of the assistant's."""
        if self.turns is None:
            return [{"role": "assistant", "content": self.response}]
        return [plain_message(turn) for turn in self.turns]

    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation."""
        return [*self.prompt_messages(), *self.response_messages()]

    def without_reasoning(self, reasoning: Reasoning = Reasoning()) -> Self:  # noqa: B008 - immutable
        """Return the same without the policy's thoughts: no answer, where they do not end.

        Args:
            reasoning: How the policy marks its thoughts.
        """
        tail = self.prompt_tail
        turns = self.turns
        if turns is not None:
            turns = [
                {**turn, "content": reasoning.answer(turn["content"], prompt_tail=tail)}
                if turn.get("role") == "assistant" and isinstance(turn["content"], str)
                else turn
                for turn in map(plain_message, turns)
            ]
        return replace(self, response=reasoning.answer(self.response, prompt_tail=tail), turns=turns)

    def reasoning_problem(self, reasoning: Reasoning) -> str | None:
        """Return why the response may have thoughts in it that are not declared; None where it has none such."""
        said = [
            turn["content"]
            for turn in self.response_messages()
            if turn.get("role") == "assistant" and isinstance(turn["content"], str)
        ]
        problems = (reasoning.problem(text, prompt_tail=self.prompt_tail) for text in said)
        return next((problem for problem in problems if problem is not None), None)
