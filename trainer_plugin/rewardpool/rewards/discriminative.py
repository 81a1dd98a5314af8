"""Episodes scored by a pool: by a Discriminative one in the reward model's chat template, or by a Function one as is.

Where the tokenizer comes from, first hit counts: the one that `open_reward` was given, the part's `tokenizer`, the
model that the pool's object names.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from rewardpool.client.pool import Pool
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import ConfigError, InvalidSampleError, SampleError, ScoreError
from rewardpool.rewards.chat import ChatTokenizer, load_tokenizer, read_template
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.functions import arguments_of
from rewardpool.rewards.part_config import PoolPart
from rewardpool.rewards.rating import StepReward
from rewardpool.rewards.reward_function import PartScore, refuse_media
from rewardpool.rewards.steps import SEPARATOR, StepText, steps_of
from rewardpool.sample import Sample
from rewardpool_api.contract import SCORE_PATH, DetailedScore
from rewardpool_api.source import parse_source

log = logging.getLogger(__name__)


PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "def area(radius):\n    return 3.14159 * radius ** 2\n",
    "Gr\u00f6\u00dfe: 12345,67 \u20ac \u2013 \u65e5\u672c\u8a9e \U0001f642",
    "  internationalization\t\tUNBELIEVABLE  x=y!=z",
)
"""Of which tokenizers of different models hardly ever make the same number of tokens."""


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
        """Ask once, for all samples.

        Raises:
            ConfigError: The pool's model has another tokenizer.
            PoolError: The pool cannot be used.
        """
        async with self._lock:
            if not self._done:
                self._problem, self._done = await self._found(), True
        if self._problem is not None:
            raise ConfigError(self._field, self._problem)

    async def _found(self) -> str | None:
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
    """Scores conversations by a Discriminative pool; too long ones are refused before they are sent.

    Args:
        pool: That scores.
        tokenizer: Of its model.
        check: Whether it is, where that is not sure; asked beside the first score.
        separator: Stands between the steps of a response, where the model scores steps; else None.
    """

    def __init__(
        self,
        pool: Pool,
        tokenizer: ChatTokenizer,
        *,
        check: TokenizerCheck | None = None,
        separator: str | None = None,
    ) -> None:
        self._pool = pool
        self._tokenizer = tokenizer
        self._check = check
        self._separator = separator

    async def score(self, episode: Episode) -> PartScore:
        """The reward model's score, and the values of its steps, where it scores steps."""
        refuse_media(episode)
        messages, text = episode.messages(), None
        try:
            if self._separator is not None:
                text = _divided(messages, episode, self._separator)
            token_ids = await self._tokenizer.token_ids(messages, steps=None if text is None else len(text.ends))
        except ValueError as error:
            raise InvalidSampleError(episode.label, str(error)) from error
        score = await self._pool.score(Sample(token_ids=token_ids, id=episode.id))
        if self._check is not None:
            await self._check.passed()
        steps = (score.steps or ()) if isinstance(score, DetailedScore) else ()
        info = {"steps": list(steps)} if steps else {}
        return PartScore(score, info, None if text is None else _rewards(steps, text, episode.label))


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
        )
    return tuple(StepReward(value=value, end=end) for value, end in zip(values, text.ends, strict=True))


class PoolFunctionScorer:
    """Scores responses by a Function pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def score(self, episode: Episode) -> PartScore:
        """Return the number of the pool's function, and as info what it returned beside it."""
        score = await self._pool.score(Sample(function=arguments_of(episode), id=episode.id))
        return PartScore(score, score.info if isinstance(score, DetailedScore) else {})


def separator_of(part: PoolPart) -> str:
    """What stands between the steps of a response."""
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


async def chat_tokenizer(
    part: PoolPart, endpoint: Endpoint, *, given: Any, path: str, step_token: str | None = None
) -> ChatTokenizer:
    """Load what writes an episode in the reward model's tokens.

    Args:
        part: Of the config.
        endpoint: Where the part's pool was found.
        given: A loaded tokenizer that goes before all others; or None.
        path: Where the part is in the config.
        step_token: At the ends of steps, where the pool's model scores steps.

    Raises:
        ConfigError: There is none, or it has no chat template.
        PoolError: The pool's object cannot be read.
    """
    template = None
    if part.chat_template is not None:
        template = read_template(part.chat_template.expanduser(), field=f"{path}.chat_template")
    field = f"{path}.tokenizer"
    if given is None:
        source, revision = (part.tokenizer, None) if part.tokenizer else await model_of(endpoint, field=field)
        given = load_tokenizer(source, revision=revision, field=field)
    return ChatTokenizer(
        given,
        template=template,
        system=part.system,
        system_prompt=part.system_prompt,
        step_token=step_token,
        field=field,
    )


async def model_of(endpoint: Endpoint, *, field: str) -> tuple[str, str | None]:
    """Folder or hub name, and revision, of the model that the pool's object names."""
    if endpoint.source is None:
        raise ConfigError(field, f"set it: of {endpoint.pool} only a URL is known, not which model it serves")
    namespace, _, name = endpoint.pool.partition("/")
    pool = await endpoint.source.read_pool(namespace, name)
    model, served = pool.spec.model, pool.status.model
    source = parse_source(model.source)
    match source.scheme:
        case "hf":
            # A branch may have moved on since the workers loaded it.
            return source.location, (served.commit if served else None) or model.revision
        case "file":
            return source.location, None
        case _:
            raise ConfigError(
                field, f"set it: {endpoint.pool} serves {model.source}, from where a trainer cannot load a tokenizer"
            )
