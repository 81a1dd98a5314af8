"""Conversations in a reward model's own tokens.

Token ids are sent, not text, because then the tokens are in our hands. A server that is given a text adds the
tokenizer's special tokens to it: a chat template that writes the BOS itself would give the model two of them, and on
vLLM 0.32 that changes the score (10 tokens instead of 9, and a raw logit of -0.112 instead of -0.100 in one run). So
the template is rendered, tokenised without additions, and a BOS is put in front if the tokenizer puts one in front of
every text and the template wrote none: there is always exactly the one that the model was trained with.

Conversations are written on a thread, together where several wait (`together.py`); a fast tokenizer has threads of its
own for them.

What a template leaves out without a word (a tool's turn, a call of one, the last turn's thoughts) is an error here, and
so are words that no tokenizer takes. Words that look like control tokens stay words: see `control_tokens`.

transformers is imported here alone, and only when a tokenizer is loaded.
"""

import copy
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rewardpool._rewards.answers.reasoning import KNOWN, split_reasoning, unclosed
from rewardpool._rewards.chat.control_tokens import ControlTokens
from rewardpool._rewards.episode import plain_message
from rewardpool._rewards.steps import MARK
from rewardpool._rewards.together import BatchedWork, or_error
from rewardpool.errors import ConfigError
from rewardpool_api.tokenizer_files import digest_of_files

log = logging.getLogger(__name__)

SystemPolicy = Literal["keep", "merge", "drop"]
STRIP = "strip_reasoning: true"
_TAGS = re.compile("|".join(re.escape(tag.strip()) for pair in KNOWN for tag in pair if tag))
# A conversation's messages, and the number of its last one's steps.
_Asked = tuple[Sequence[Mapping[str, Any]], int | None]


def load_tokenizer(source: str, *, revision: str | None, field: str) -> Any:
    """Load a tokenizer with transformers.

    Args:
        source: Folder or hub name.
        revision: Branch, tag or commit of the hub's repository; None for its main one.
        field: Path of the config's field that would name another, for messages.

    Raises:
        ConfigError: transformers is not installed, or the tokenizer was not found.
    """
    try:
        import transformers  # heavy, and not needed by trainers that score by functions or judges
    except ImportError as error:
        raise ConfigError(
            field,
            "to write samples in the reward model's tokens, `pip install transformers jinja2`",
        ) from error
    try:
        # Said, because transformers would ask on the terminal whether to run a repository's own code.
        return transformers.AutoTokenizer.from_pretrained(source, revision=revision or "main", trust_remote_code=False)
    except Exception as error:  # it raises whatever its backends do
        problem = " ".join(str(error).split())[:300]
        raise ConfigError(
            field,
            f"the tokenizer {source} cannot be loaded ({type(error).__name__}: {problem}); set {field} to a folder "
            "with the reward model's tokenizer, or to its name on the hub",
        ) from error


def tokenizer_digest(source: str, *, revision: str | None) -> str | None:
    """Return the digest of what `load_tokenizer` loads; None where its files are not found.

    Workers compute that of their model by the same `digest_of_files`.
    """
    try:
        return digest_of_files(partial(_file_of, source, revision or "main"))
    except (OSError, ValueError, ImportError):  # ValueError: neither a folder nor a hub's name
        return None


def _file_of(source: str, revision: str, name: str) -> bytes | None:
    if (folder := Path(source)).is_dir():
        path: Path | None = folder / name
    else:
        from huggingface_hub import try_to_load_from_cache  # comes with transformers, which loaded the tokenizer

        found = try_to_load_from_cache(source, name, revision=revision)
        path = Path(found) if isinstance(found, str) else None
    return path.read_bytes() if path is not None and path.is_file() else None


class ChatTokenizer:
    """Writes conversations in a model's chat template and tokens.

    Args:
        tokenizer: The model's, loaded. A copy is used, because tokenizers keep their settings between calls, and
            whoever gave this one may call it in another thread.
        template: A chat template instead of the tokenizer's; what it leaves out is left out.
        system: What becomes of the conversation's own system messages.
        system_prompt: The model's own system prompt, which comes first.
        step_token: That stands at the ends of steps, where the model scores steps: as the vocabulary spells it, or a
            text that is one token.
        field: Path of the config's field that names the tokenizer, for messages.

    Raises:
        ConfigError: The tokenizer has no chat template and none is given, or has no such step token.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        template: str | None = None,
        system: SystemPolicy = "keep",
        system_prompt: str | None = None,
        step_token: str | None = None,
        field: str = "tokenizer",
    ) -> None:
        if template is None and not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                field, "this tokenizer has no chat template; set chat_template to a file with the one to use"
            )
        self._tokenizer = copy.deepcopy(tokenizer)
        self._template = template
        self._system = system
        self._system_prompt = system_prompt
        self._bos = _bos_of_every_text(self._tokenizer)
        self._control = ControlTokens(self._tokenizer)
        self._step = None if step_token is None else _step_token(self._tokenizer, step_token, field=field)
        self._pad_is_last = False
        # One thread: some tokenizers refuse to be used by two at a time. Fast ones have threads of their own.
        self._together = BatchedWork(self._written, what="the tokenizer")

    async def token_ids(self, messages: Sequence[Mapping[str, Any]], *, steps: int | None = None) -> list[int]:
        """The conversation's tokens, with exactly one BOS where the model has one.

        Args:
            steps: How many marks of `steps` the last message has, each of which becomes the step token; None where
                none is looked for.

        Raises:
            ValueError: The template refuses the conversation, or there are not so many step tokens; the text says why.
        """
        return await self._together.result((messages, steps))

    async def counts(self, texts: Sequence[str]) -> tuple[int, int]:
        """Tokens of some texts together: without special tokens, and with those that the tokenizer adds to each."""

        def counted(special: bool) -> int:
            return sum(len(self._tokenizer(text, add_special_tokens=special)["input_ids"]) for text in texts)

        return await self._together.alone(lambda: counted(False)), await self._together.alone(lambda: counted(True))

    def close(self) -> None:
        self._together.close()

    def _written(self, asked: Sequence[_Asked]) -> list[list[int] | Exception]:
        """The token ids of each, or why there are none."""
        texts = [or_error(partial(self._rendered, *one)) for one in asked]
        good = [text for text in texts if not isinstance(text, Exception)]
        wholes = iter(self._control.encode([text for text, _ in good]) if good else ())
        return [
            text if isinstance(text, Exception) else or_error(partial(self._finished, next(wholes), *text, steps))
            for (_, steps), text in zip(asked, texts, strict=True)
        ]

    def _rendered(self, messages: Sequence[Mapping[str, Any]], steps: int | None) -> tuple[str, dict[str, str]]:
        """The conversation in the chat template, and which words its characters stand for."""
        turns = apply_system([plain_message(message) for message in messages], self._system)
        if self._system_prompt is not None:
            turns.insert(0, {"role": "system", "content": self._system_prompt})
        text, hidden, shown = self._applied(turns, steps)
        if self._template is None:
            _check_nothing_left_out(shown, text)
        self._check_unclosed(turns, self._control.shown(text, hidden), steps)
        return text, hidden

    def _applied(
        self, turns: Sequence[Mapping[str, Any]], steps: int | None
    ) -> tuple[str, dict[str, str], list[dict[str, Any]]]:
        """The turns in the chat template, which words its characters stand for, and the turns as it was shown them."""
        shown, hidden = self._control.hide(turns)
        if steps is not None:
            shown[-1]["content"] = shown[-1]["content"].replace(MARK, self._step.text if self._step else "")
        try:
            text = self._tokenizer.apply_chat_template(shown, chat_template=self._template, tokenize=False)
        except Exception as error:  # a template raises what it likes, jinja2 what it has
            hint = "" if self._system != "keep" else "; if it takes no system messages, set system to merge or drop"
            raise ValueError(f"the chat template refuses it: {type(error).__name__}: {error}{hint}") from error
        _check_characters(text)
        return text, hidden, shown

    def _check_unclosed(self, turns: Sequence[Mapping[str, Any]], text: str, steps: int | None) -> None:
        """Refuse thoughts that do not end and that the template writes in another way than those that do."""
        words = turns[-1].get("content") if turns and turns[-1].get("role") == "assistant" else None
        if not isinstance(words, str) or (closing := unclosed(words)) is None:
            return
        closed, hidden, _ = self._applied([*turns[:-1], {**turns[-1], "content": words + closing}], steps)
        end = text.rfind(words.strip()) + len(words.strip())
        if not self._control.shown(closed, hidden).startswith(text[:end]):
            raise ValueError(
                "its thoughts do not end, and the chat template writes such thoughts in another way than those that"
                f" do; set {STRIP}, or chat_template to a file with one that does not change them"
            )

    def _finished(self, whole: list[int], text: str, hidden: dict[str, str], steps: int | None) -> list[int]:
        ids = self._control.with_words(whole, text, hidden)
        if self._bos is not None and ids[:1] != [self._bos]:
            ids.insert(0, self._bos)
        if steps is not None and self._step is not None and (found := ids.count(self._step.id)) != steps:
            raise ValueError(
                f"its response has {steps} steps, and the conversation has the step token {self._step.text!r} {found}"
                " times: somebody says it, or the chat template or the tokenizer does not keep it as it is"
            )
        self._warn_of_pad(ids)
        return ids

    def _warn_of_pad(self, ids: Sequence[int]) -> None:
        """Say once that transformers would score such a conversation at another token than vLLM and SGLang do."""
        if not self._pad_is_last and ids and ids[-1] == getattr(self._tokenizer, "pad_token_id", None):
            self._pad_is_last = True
            log.warning(
                "conversations end in the tokenizer's pad token %r: transformers' sequence classification scores the"
                " token before it, vLLM and SGLang score this one. Compare the scores with those that the model's"
                " authors give; with spec.engine.name transformers they are transformers' own",
                self._tokenizer.pad_token,
            )


@dataclass(frozen=True)
class _StepToken:
    id: int
    # The tokenizer turns it into the token.
    text: str


def _step_token(tokenizer: Any, token: str, *, field: str) -> _StepToken:
    id_ = tokenizer.get_vocab().get(token)
    if id_ is None:
        ids = list(tokenizer(token, add_special_tokens=False)["input_ids"])
        if len(ids) != 1:
            raise ConfigError(
                field,
                f"this tokenizer has no token {token!r}, at which the pool's model scores steps: it makes {len(ids)}",
            )
        return _StepToken(ids[0], token)
    # A tokenizer of SentencePiece's kind takes away the blank that its token begins with.
    blank = " " if token.startswith("\u2581") else ""
    own = list(tokenizer(token, add_special_tokens=False)["input_ids"])
    if not blank and len(own) == 1 and own != [id_]:
        log.warning(
            "the step token %r is token %d, and this tokenizer writes the same text after a blank as %r (token %d): if"
            " the model was trained on that one, set the step token to it",
            token,
            id_,
            tokenizer.convert_ids_to_tokens(own[0]),
            own[0],
        )
    return _StepToken(id_, blank + str(tokenizer.decode([id_])).lstrip(blank))


def _check_characters(text: str) -> None:
    """Refuse half of a character, which tokenizers refuse without its name."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"it has {text[error.start]!r} in it, a lone surrogate, which is not a character") from None


def _check_nothing_left_out(turns: Sequence[Mapping[str, Any]], text: str) -> None:
    """Refuse a conversation of which the template has written only a part."""
    for number, turn in enumerate(turns, start=1):
        role, content = turn.get("role"), turn.get("content")
        is_last = number == len(turns)
        calls = [call.get("function") or {} for call in turn.get("tool_calls") or ()]
        for words in (*_said(role, content, is_last=is_last), *(call.get("name") for call in calls)):
            if isinstance(words, str) and words.strip() not in text and _as_json(words) not in text:
                strip = f"{STRIP} if they are thoughts that are not to be scored, or " if is_last else ""
                raise ValueError(
                    f"the chat template leaves out words of turn {number} ({role}): {words.strip()[:60]!r}; set "
                    f"{strip}chat_template to a file with one that writes them"
                )


def _said(role: Any, content: Any, *, is_last: bool) -> Sequence[Any]:
    """Return what of a turn must be in the conversation's text, in pieces between which a template may write."""
    if role != "assistant" or not isinstance(content, str):
        return [content]
    if is_last:  # templates write the tags of thoughts, and what is around them, in their own way
        return _TAGS.split(content)
    # Of the thoughts in earlier turns many templates write nothing, and their models were trained so.
    return [split_reasoning(content).answer]


def _as_json(words: str) -> str:
    """As templates write what a tool has answered."""
    return json.dumps(words, ensure_ascii=False)[1:-1]


def apply_system(messages: Sequence[Mapping[str, Any]], policy: SystemPolicy) -> list[dict[str, Any]]:
    """The messages with system ones kept, dropped, or merged into the first user's turn, which is made if missing."""
    others = [dict(message) for message in messages if message.get("role") != "system"]
    if policy == "keep" or len(others) == len(messages):
        return [dict(message) for message in messages]
    if policy == "drop":
        return others
    said = "\n\n".join(str(message.get("content", "")) for message in messages if message.get("role") == "system")
    for message in others:
        if message.get("role") == "user":
            message["content"] = f"{said}\n\n{message['content']}"
            return others
    return [{"role": "user", "content": said}, *others]


def read_template(path: Path, *, field: str) -> str:
    """Return a chat template's text. Raises ConfigError where the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(field, f"{path} cannot be read: {error}") from error


def _bos_of_every_text(tokenizer: Any) -> int | None:
    """The id of the BOS that the tokenizer itself puts in front of a text; None where it does not."""
    bos = getattr(tokenizer, "bos_token_id", None)
    # The first call also undoes truncation and padding that a tokenizer was saved with.
    added: list[int] = list(tokenizer("a")["input_ids"])
    return bos if bos is not None and added[:1] == [bos] else None
