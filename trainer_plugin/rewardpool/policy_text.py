"""From the texts that a policy reads and writes back to a conversation.

Some trainers hand a reward function the prompt with the policy's chat template applied, and the response with the
policy's special tokens at its end. A reward model has a template and special tokens of its own, and given the policy's
inside a turn it scores something else, without a word. So the policy's template is undone here, and what cannot be
undone for certain is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewardpool.errors import InvalidSampleError
from rewardpool.rewards.chat import load_tokenizer
from rewardpool.rewards.episode import Message

ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
)
"""Special tokens with which common models end a turn or a text."""
OPENINGS = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|user|>", "[INST]", "<|turn>")
"""By these a chat template that was applied is noticed."""
MEDIA = (
    "<|image_pad|>",
    "<|video_pad|>",
    "<|audio_pad|>",
    "<|vision_start|>",
    "<|audio_start|>",
    "<image_soft_token>",
    "<start_of_image>",
    "<|image|>",
)
"""What stands in a policy's prompt in the place of pictures, films and sounds."""
MAX_TURNS = 16
"""User's turns of a prompt that can be told apart."""


@dataclass(frozen=True)
class Frame:
    """What a chat template writes around the turns of a prompt.

    Attributes:
        roles: Of the turns, in their order.
        around: The template's own text before, between and after them; one more than roles.
    """

    roles: tuple[str, ...]
    around: tuple[str, ...]

    def undone(self, text: str) -> list[Message] | None:
        """The messages that were framed; None where the text has another frame."""
        if not text.startswith(self.around[0]) or not text.endswith(self.around[-1]):
            return None
        start, contents = len(self.around[0]), []
        for between in self.around[1:-1]:
            end = text.find(between, start)
            if end < 0:
                return None
            contents.append(text[start:end])
            start = end + len(between)
        end = len(text) - len(self.around[-1])
        if end < start:
            return None
        contents.append(text[start:end])
        return [{"role": role, "content": content} for role, content in zip(self.roles, contents, strict=True)]


class PolicyText:
    """Undoes the policy's chat template.

    Args:
        tokenizer: The policy's, loaded; None where prompts come without a template.
    """

    def __init__(self, tokenizer: Any = None) -> None:
        self._frames = frames_of(renderer(tokenizer)) if tokenizer is not None else []
        eos = getattr(tokenizer, "eos_token", None)
        self._ends = (*ENDS, eos) if eos else ENDS

    @classmethod
    def load(cls, source: str | None, *, field: str) -> "PolicyText":
        """By a tokenizer's folder or hub name; `field` names the setting. Raises ConfigError."""
        return cls(None if source is None else load_tokenizer(source, revision=None, field=field))

    def prompt(self, prompt: str | Sequence[Message], *, strict: bool = True) -> str | Sequence[Message]:
        """The prompt without the policy's template; messages, and texts without one, stay as they are.

        Args:
            prompt: A text or chat messages.
            strict: False where the prompt is not read by any model, so that it does not matter.

        Raises:
            InvalidSampleError: The text has a template that is not the policy's, or the policy's is not known, or it
                has a placeholder in the place of a picture or the like.
        """
        if not isinstance(prompt, str):
            return prompt
        if strict and (medium := next((word for word in MEDIA if word in prompt), None)) is not None:
            problem = (
                f"the prompt has {medium} in it, in the place of what is no text, and models are sent text alone; "
            )
            raise InvalidSampleError("(unnamed)", problem + "score such samples by functions")
        for frame in self._frames:
            if (found := frame.undone(prompt)) is not None and not any(map(_has_opening, found)):
                return found
        opening = next((opening for opening in OPENINGS if opening in prompt), None)
        if opening is not None and strict:
            problem = f"the prompt has a chat template's {opening} in it, which a reward model must not see in a turn; "
            does = "it is not as the policy's tokenizer writes it" if self._frames else "name the policy's tokenizer"
            raise InvalidSampleError("(unnamed)", problem + does)
        return prompt

    def response(self, text: str) -> str:
        """The response without the special tokens at its end."""
        while (end := next((end for end in self._ends if text.rstrip().endswith(end)), None)) is not None:
            text = text.rstrip().removesuffix(end)
        return text

    def after(self, prompt: str, query: str) -> str:
        """The response in `query`, which is the prompt and what the policy wrote after it.

        Raises:
            InvalidSampleError: `query` does not begin with the prompt.
        """
        if not query.startswith(prompt):
            problem = "its query does not begin with its prompt: was that cut to the length limit?"
            raise InvalidSampleError("(unnamed)", problem)
        return self.response(query[len(prompt) :])


def frames_of(render: Callable[[Sequence[Message]], str | None]) -> list[Frame]:
    """All frames of a template, those of long conversations first: a short one's would fit them too.

    Args:
        render: Applies the template; None where it refuses the conversation.
    """
    frames = []
    for turns in range(MAX_TURNS, 0, -1):
        chat = ("user", "assistant") * (turns - 1) + ("user",)
        # Without a system message first, as a template may write one of its own then.
        frames += [_frame(render, roles) for roles in (chat, ("system", *chat))]
    return [frame for frame in frames if frame is not None]


def _frame(render: Callable[[Sequence[Message]], str | None], roles: tuple[str, ...]) -> Frame | None:
    marks = [f"\u2060{index}\u2060" for index in range(len(roles))]
    rest = render([{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)])
    if rest is None:
        return None
    around: list[str] = []
    for mark in marks:
        before, found, rest = rest.partition(mark)
        if not found or (around and not before):  # it leaves turns out, or nothing tells them apart
            return None
        around.append(before)
    return Frame(roles, (*around, rest))


def renderer(tokenizer: Any) -> Callable[[Sequence[Message]], str | None]:
    """What writes messages in a tokenizer's chat template, for the policy to go on; None where that refuses them."""

    def render(messages: Sequence[Message]) -> str | None:
        try:
            return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))
        except Exception:  # a template raises what it likes for roles that it does not know
            return None

    return render


def _has_opening(message: Mapping[str, Any]) -> bool:
    return any(opening in message["content"] for opening in OPENINGS)
