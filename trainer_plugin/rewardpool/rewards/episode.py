"""One rollout, as every trainer can give it. What a reward needs of it is the reward's business, not the trainer's."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]
"""One turn of a chat: `{"role": ..., "content": ...}`."""


def medium_of(messages: Iterable[Message]) -> str | None:
    """The type of the first block of a message that is no text; None where all are."""
    for message in messages:
        content = message.get("content")
        for block in () if content is None or isinstance(content, str) else content:
            kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
            if kind != "text":
                return str(kind)
    return None


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A prompt, the policy's response to it, and what is known about the two.

    Attributes:
        prompt: What the policy was asked: chat messages, or the bare text of one user's turn. No chat template of the
            policy's applied, because the reward model has its own.
        response: What the policy wrote, without the special tokens around it.
        ground_truth: What a right answer is, for reward functions and judges.
        data_source: Which data set the prompt is from, for reward functions.
        extra_info: Whatever else the data set says, for reward functions and a judge's prompt.
        group: The same for all rollouts of one prompt; None where the trainer has no groups.
        prompt_ids: The prompt in the policy's own tokens, shape (tokens,).
        response_ids: The response in the policy's own tokens, shape (tokens,).
        response_tokens: Length of the response in the policy's tokens; by default that of `response_ids`.
        version: Of the policy that the rollouts of its group were begun with, the same for all of them: a number that
            grows. By it `whiten: running` knows which steps are earlier; None where the trainer tells of no steps.
        truncated: Whether the response was cut off at the length limit.
        id: A name for messages.
    """

    prompt: str | Sequence[Message]
    response: str
    ground_truth: Any = None
    data_source: str = ""
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    group: Hashable | None = None
    prompt_ids: Sequence[int] | None = None
    response_ids: Sequence[int] | None = None
    response_tokens: int | None = None
    version: int | None = None
    truncated: bool = False
    id: str | None = None

    @property
    def label(self) -> str:
        """Names the episode in messages."""
        return self.id or "(unnamed)"

    def medium(self) -> str | None:
        """What the prompt has beside text, such as `image`: the type of the first such block of a message."""
        return medium_of([] if isinstance(self.prompt, str) else self.prompt)

    def prompt_messages(self) -> list[dict[str, Any]]:
        """The prompt as chat messages."""
        if isinstance(self.prompt, str):
            return [{"role": "user", "content": self.prompt}]
        return [dict(message) for message in self.prompt]

    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation: the prompt's messages and the response as the assistant's last turn."""
        return [*self.prompt_messages(), {"role": "assistant", "content": self.response}]
