"""Episodes scored by a pool: by a Discriminative one in the reward model's chat template, or by a Function one as is.

Where the tokenizer comes from, first hit counts: the one that `open_reward` was given, the part's `tokenizer`, the
model that the pool's object names.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._discovery.endpoint import Endpoint, ServedModel
from rewardpool._rewards.chat.chat_template import ChatTokenizer, load_tokenizer, read_template, tokenizer_digest
from rewardpool._rewards.chat.writers import ConversationWriter, Writers
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.functions import arguments_of
from rewardpool._rewards.part_config import PoolPart
from rewardpool._rewards.rating import StepReward
from rewardpool._rewards.reward_function import PartScore, refuse_media
from rewardpool._rewards.steps import SEPARATOR, StepText, steps_of
from rewardpool._sample import Sample
from rewardpool.errors import (
    ConfigError,
    InvalidSampleError,
    SampleError,
    SampleTooLongError,
    ScoreError,
    WrongTokenizerError,
)
from rewardpool_api.contract import SCORE_PATH
from rewardpool_api.source import parse_source

log = logging.getLogger(__name__)


# Texts of which tokenizers of different models hardly ever make the same number of tokens.
PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "def area(radius):\n    return 3.14159 * radius ** 2\n",
    "Gr\u00f6\u00dfe: 12345,67 \u20ac \u2013 \u65e5\u672c\u8a9e \U0001f642",
    "  internationalization\t\tUNBELIEVABLE  x=y!=z",
)


# Times that a conversation is written anew as another model answered; during a rollout it is chance which one does.
MOST_WRITTEN = 30


class TokenizerCheck:
    """Finds a tokenizer that is another model's, whose token ids the pool's model takes for other words.

    Only the pool knows its model's tokenizer. It is sent texts, and the number of tokens that it counts must be ours.
    An engine that does not count proves nothing.
    """

    def __init__(self, pool: Pool, tokenizer: ChatTokenizer, *, field: str) -> None:
        self._pool = pool
        self._tokenizer = tokenizer
        self._field = field
        self._lock = asyncio.Lock()
        self._problem: str | None = None
        self._done = False

    async def passed(self) -> None:
        """Ask once, for all samples. Raises ConfigError where the pool's model has another tokenizer, and PoolError."""
        async with self._lock:
            if not self._done:
                self._problem, self._done = await self._mismatch(), True
        if self._problem is not None:
            raise ConfigError(self._field, self._problem)

    async def _mismatch(self) -> str | None:
        try:
            answer = await self._pool.post(SCORE_PATH, {"input": list(PROBES)}, label="the check of the tokenizer")
        except SampleError as error:
            log.warning("whether the tokenizer is that of the pool's model stays unknown: %s", error)
            return None
        usage = answer.get("usage")
        theirs = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        bare, ours = await self._tokenizer.counts(PROBES)
        # Engines that have the model's own code read conversations add no special tokens to texts.
        if not isinstance(theirs, int) or theirs in (bare, ours):
            return None
        return (
            f"this tokenizer makes {ours} tokens of texts of which the model of {self._pool.endpoint.pool} makes"
            f" {theirs}, so it is another model's, and scores would be of other words; give the reward model's own"
        )


class ChatScorer:
    """Scores conversations by a Discriminative pool; too long ones are refused before they are sent."""

    def __init__(self, pool: Pool, writers: Writers) -> None:
        self._pool = pool
        self._writers = writers

    async def score(self, episode: Episode) -> PartScore:
        """The reward model's score, and the values of its steps, where it scores steps."""
        refuse_media(episode)
        for _ in range(MOST_WRITTEN):
            writer = self._writers.current
            try:
                return await self._score(episode, writer)
            except WrongTokenizerError as error:
                await self._writers.change(error)
        raise ScoreError(
            episode.label, f"workers with other tokenizers answered {MOST_WRITTEN} times, each another than before"
        )

    async def _score(self, episode: Episode, writer: ConversationWriter) -> PartScore:
        """Score it as this writer writes it. Raises WrongTokenizerError where another model answered."""
        messages, text = episode.messages(), None
        try:
            if writer.separator is not None:
                text = _divided(messages, episode, writer.separator)
            token_ids = await writer.chat.token_ids(messages, steps=None if text is None else len(text.ends))
        except ValueError as error:
            raise InvalidSampleError(episode.label, str(error)) from error
        try:
            scored = await self._pool.scored(Sample(token_ids=token_ids, id=episode.id, tokenizer=writer.tokenizer))
        except SampleTooLongError as error:
            if not await _fits_without_response(episode, writer, error.limit_tokens):
                error.fault = "verifier"
            raise
        self._writers.answered(writer, scored.tokenizer)
        if writer.check is not None:
            await writer.check()
        steps = scored.steps or ()
        rewards = None if text is None else _rewards(steps, text, episode.label)
        return PartScore(scored.value, {"steps": list(steps)} if steps else {}, rewards, attempts=scored.attempts)


async def _fits_without_response(episode: Episode, writer: ConversationWriter, limit_tokens: int | None) -> bool:
    """Return whether the response is what makes an episode too long: the prompt alone fits."""
    try:
        tokens = await writer.chat.token_ids(replace(episode, response="", turns=None).messages())
    except ValueError:  # templates may refuse a blank response, and then nothing is known
        return False
    return limit_tokens is not None and len(tokens) <= limit_tokens


def _divided(messages: list[dict[str, Any]], episode: Episode, separator: str) -> StepText:
    """Mark the ends of the response's steps in the conversation. Raises ValueError where it has none of its own."""
    if episode.turns is not None:
        raise ValueError("its response has several turns, and steps are those of one")
    text = steps_of(episode.response, separator)
    if not text.ends:
        raise ValueError("its response is blank, so it has no step")
    messages[-1]["content"] = text.marked
    return text


def _rewards(values: Sequence[float], text: StepText, label: str) -> tuple[StepReward, ...]:
    """The steps' values with the places where they end. Raises ScoreError where they are not as many."""
    if len(values) != len(text.ends):
        raise ScoreError(
            label,
            f"the pool answered {len(values)} values for the {len(text.ends)} steps of the response; its"
            " spec.model.head must have type TokenLevel and the stepToken that was sent",
            fault="verifier",
        )
    return tuple(StepReward(value=value, end=end) for value, end in zip(values, text.ends, strict=True))


class PoolFunctionScorer:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def score(self, episode: Episode) -> PartScore:
        scored = await self._pool.scored(Sample(function=arguments_of(episode), id=episode.id))
        return PartScore(scored.value, scored.info, attempts=scored.attempts)


def separator_of(part: PoolPart) -> str:
    return SEPARATOR if part.steps is None else part.steps.separator


def step_token_of(part: PoolPart, endpoint: Endpoint, *, path: str) -> str | None:
    """The token at the ends of steps that the part or the pool's object names; None where no steps are scored.

    Raises:
        ConfigError: The part is about steps, and neither names one; or they name two.
    """
    declared = endpoint.step_token
    if endpoint.source is None:
        declared = part.steps.token if part.steps else None
    elif part.steps is not None and part.steps.token not in (None, declared):
        raise ConfigError(
            f"{path}.steps.token",
            f"is {part.steps.token!r}, and spec.model.head.stepToken of {endpoint.pool} is {declared!r}; leave it out",
        )
    if declared is None and (part.steps is not None or part.supervision == "process"):
        if endpoint.source is None:
            raise ConfigError(f"{path}.steps.token", f"set it: of {endpoint.pool} only a URL is known")
        raise ConfigError(
            f"{path}.{'supervision' if part.supervision == 'process' else 'steps'}",
            f"needs a pool whose spec.model.head has type TokenLevel and a stepToken, and {endpoint.pool} has no steps",
        )
    return declared


async def load_writer(
    part: PoolPart,
    pool: Pool,
    model: ServedModel | None,
    *,
    given: Any,
    path: str,
) -> ConversationWriter:
    """Load what writes an episode in the tokens of a model of the part's pool.

    Args:
        model: Of the pool; None where only a URL is known.
        given: A loaded tokenizer that goes before all others; or None.

    Raises:
        ConfigError: There is no tokenizer, it has no chat template, or the files are not those of the model.
    """
    endpoint = pool.endpoint if model is None else replace(pool.endpoint, step_token=model.step_token)
    step_token = step_token_of(part, endpoint, path=path)
    template = None
    if part.chat_template is not None:
        template = read_template(part.chat_template.expanduser(), field=f"{path}.chat_template")
    field = f"{path}.tokenizer"
    digest = None
    if given is None:
        source, revision = (part.tokenizer, None) if part.tokenizer else model_source(endpoint, model, field=field)
        given, digest = await asyncio.to_thread(_load, source, revision, field)
    chat = ChatTokenizer(
        given,
        template=template,
        system=part.system,
        system_prompt=part.system_prompt,
        step_token=step_token,
        field=field,
    )
    separator = None if step_token is None else separator_of(part)
    return ConversationWriter(chat=chat, tokenizer=digest, separator=separator)


def check_files(tokenizer: str | None, model: ServedModel, *, field: str) -> None:
    """Raise ConfigError where the files here are not those that the pool's workers have."""
    if None not in (tokenizer, model.tokenizer) and tokenizer != model.tokenizer:
        raise ConfigError(
            field,
            f"the tokenizer of {model.source} has the digest {tokenizer} here, and {model.tokenizer} at the workers of"
            f" revision {model.revision}: set it to a copy of their files, or restart the pool if its files changed",
        )


def _load(source: str, revision: str | None, field: str) -> tuple[Any, str | None]:
    """A tokenizer, and the digest of the files it was loaded from: a folder may be changed meanwhile."""
    while True:
        before = tokenizer_digest(source, revision=revision)
        tokenizer = load_tokenizer(source, revision=revision, field=field)
        after = tokenizer_digest(source, revision=revision)
        if before in (after, None):
            return tokenizer, after


def model_source(endpoint: Endpoint, model: ServedModel | None, *, field: str) -> tuple[str, str | None]:
    """Folder or hub name, and revision, of the tokenizer of a pool's model."""
    if model is None:
        raise ConfigError(field, f"set it: of {endpoint.pool} only a URL is known, not which model it serves")
    source = parse_source(model.source)
    match source.scheme:
        case "hf":
            # A branch may have moved on since the workers loaded it.
            return source.location, model.commit
        case "file":
            return source.location, None
        case _:
            raise ConfigError(
                field, f"set it: {endpoint.pool} serves {model.source}, from where a trainer cannot load a tokenizer"
            )
