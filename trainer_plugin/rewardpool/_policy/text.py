"""From the texts that a policy reads and writes back to a conversation.

Some trainers hand a reward function the prompt with the policy's chat template applied, and the response with the
policy's special tokens at its end. A reward model has a template and special tokens of its own, and given the policy's
inside a turn it scores something else, without a word. So the policy's template is undone here, and what ends its
responses is taken off (`response_end`). What cannot be undone for certain is refused.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewardpool._policy.response_end import ResponseEnd, spelt_end
from rewardpool._rewards.chat.chat_template import load_tokenizer
from rewardpool._rewards.episode import Message
from rewardpool.errors import InvalidSampleError

# By these a chat template that was applied is noticed.
OPENINGS = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|user|>", "[INST]", "<|turn>")
# Placeholders for pictures, films and sounds in a policy's prompt.
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
# At the end of a prompt, in which an opening tag fits.
TAIL_CHARACTERS = 80
# User's turns of a prompt that can be read back.
MAX_TURNS = 16


@dataclass(frozen=True)
class Frame:
    """Text that a chat template writes around the turns of a prompt.

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
    """Undoes the policy's chat template, and takes off what ends its responses.

    Args:
        tokenizer: The policy's, loaded; None where it is not known.
        stop_ids: `eos_token_id` of its generation config.
        field: The setting that names it, for messages.
    """

    def __init__(self, tokenizer: Any = None, *, stop_ids: Iterable[int] = (), field: str = "") -> None:
        self._tokenizer = tokenizer
        self._advice = f"name the policy's tokenizer{field and f' by {field}'}"
        self._frames: list[Frame] = []
        self._end: ResponseEnd | None = None
        if tokenizer is not None:
            self._frames = frames_of(renderer(tokenizer))
            self._end = ResponseEnd.from_tokenizer(tokenizer, stop_ids=stop_ids, turn_end=_turn_end(tokenizer))
        # Some tokenizers refuse to be used by two threads at a time.
        self._lock = threading.Lock()

    @classmethod
    def load(cls, source: str | None, *, field: str) -> "PolicyText":
        """Load it by a tokenizer's folder or hub name.

        Args:
            source: Folder or hub name of the policy; None where it is not known.
            field: Path of the config's field that names it, for messages.

        Raises:
            ConfigError: Tokenizer not found.
        """
        if source is None:
            return cls(field=field)
        return cls(load_tokenizer(source, revision=None, field=field), stop_ids=load_stop_ids(source), field=field)

    def prompt(
        self, prompt: str | Sequence[Message], *, strict: bool = True, label: str = "(unnamed)"
    ) -> str | Sequence[Message]:
        """Return the prompt without the policy's template; messages, and texts without one, stay as they are.

        Args:
            prompt: A text or chat messages.
            strict: False where the prompt is not read by any model, so that it does not matter.
            label: Names the sample in messages.

        Raises:
            InvalidSampleError: The text has a template that is not the policy's, or the policy's is not known, or it
                has a placeholder in the place of a picture or the like.
        """
        if not isinstance(prompt, str):
            return prompt
        if strict and (medium := next((word for word in MEDIA if word in prompt), None)) is not None:
            problem = (
                f"the prompt has {medium} in it, in the place of what is not text, and models are sent text alone; "
            )
            raise InvalidSampleError(label, problem + "score such samples by functions")
        for frame in self._frames:
            if (found := frame.undone(prompt)) is not None and not any(map(_has_opening, found)):
                return found
        opening = next((opening for opening in OPENINGS if opening in prompt), None)
        if opening is not None and strict:
            problem = f"the prompt has a chat template's {opening} in it, which a reward model must not see in a turn; "
            does = "it is not as the policy's tokenizer writes it" if self._frames else self._advice
            raise InvalidSampleError(label, problem + does)
        return prompt

    def response(self, text: str, token_ids: Sequence[int] | None = None, *, label: str = "(unnamed)") -> str:
        """Return the response without the special tokens at its end.

        Args:
            text: The response, decoded with special tokens or without.
            token_ids: The same in the policy's tokens, shape (tokens,); None where the trainer does not say.
            label: Names the sample in messages.

        Raises:
            InvalidSampleError: It ends in what may be a special token, and the policy's tokenizer is not known.
        """
        if self._end is None:
            if (spelt := spelt_end(text)) is not None:
                raise InvalidSampleError(
                    label,
                    f"its response ends in {spelt}, which is a special token or words: {self._advice}",
                )
            return text
        if token_ids is not None and hasattr(self._tokenizer, "decode"):
            with self._lock:
                words = self._decode(self._end.cut_ids(token_ids, is_blank=lambda id_: not self._decode([id_]).strip()))
                # A trainer may have changed the text; then it no longer says what the tokens do.
                if text in (words, self._decode(token_ids)):
                    return words
        return self._end.cut(text)

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids), clean_up_tokenization_spaces=False))

    def after(self, prompt: str, query: str, *, label: str = "(unnamed)") -> str:
        """Return the response in `query`, which is the prompt and what the policy wrote after it.

        Args:
            label: Names the sample in messages.

        Raises:
            InvalidSampleError: `query` does not begin with the prompt; and as `response`.
        """
        for text in self._beginnings(query):
            if text.startswith(prompt):
                return self.response(text[len(prompt) :], label=label)
        does = f"has it padding before it? Then {self._advice}" if self._end is None else ""
        problem = "its query does not begin with its prompt: was that cut to the length limit?"
        raise InvalidSampleError(label, f"{problem} {does}".rstrip())

    def _beginnings(self, query: str) -> Sequence[str]:
        """Return the query as it is, and without the padding, and the BOS, before it."""
        if self._end is None:
            return [query]
        unpadded = self._end.without_left_padding(query)
        return [query, unpadded, unpadded.removeprefix(str(getattr(self._tokenizer, "bos_token", None) or ""))]


def prompt_tail(prompt: str | Sequence[Message]) -> str | None:
    """Return `Episode.prompt_tail` of a text that the policy read; None of messages, whose template is not applied."""
    return prompt[-TAIL_CHARACTERS:] if isinstance(prompt, str) else None


def load_stop_ids(source: str) -> Sequence[int]:
    """Return the tokens at which a policy (folder or hub name) stops by its generation config; empty without one."""
    from transformers import GenerationConfig  # heavy; its tokenizer is loaded already

    try:
        ids = GenerationConfig.from_pretrained(source).eos_token_id
    except Exception:  # it raises whatever its backends do; a folder of a tokenizer alone has none
        return ()
    return () if ids is None else [ids] if isinstance(ids, int) else list(ids)


def _turn_end(tokenizer: Any) -> str | None:
    """Return what the template writes after an assistant's words; None where it refuses such a conversation."""
    mark = "\u2060answer\u2060"
    said = [{"role": "user", "content": "question"}, {"role": "assistant", "content": mark}]
    text = renderer(tokenizer)(said)
    return None if text is None or mark not in text else text.rpartition(mark)[2]


def frames_of(render: Callable[[Sequence[Message]], str | None]) -> list[Frame]:
    """Return all frames of a template, those of long conversations first: a short one's would fit them too.

    `render` applies the template, and returns None where it refuses the conversation.
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
    """Return what writes messages in a tokenizer's template, for the policy to go on; None where it refuses them."""

    def render(messages: Sequence[Message]) -> str | None:
        try:
            return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))
        except Exception:  # a template raises what it likes for roles that it does not know
            return None

    return render


def _has_opening(message: Mapping[str, Any]) -> bool:
    return any(opening in message["content"] for opening in OPENINGS)
