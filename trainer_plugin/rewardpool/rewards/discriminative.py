"""Episodes scored by a pool: by a Discriminative one in the reward model's chat template, or by a Function one as is.

Where the tokenizer comes from, first hit counts: the one that `open_reward` was given, the part's `tokenizer`, the
model that the pool's object names.
"""

from typing import Any

from rewardpool.client.pool import Pool
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import ConfigError, InvalidSampleError
from rewardpool.rewards.chat import ChatTokenizer, load_tokenizer, read_template
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.parts import PoolPart
from rewardpool.rewards.scorer import PartScore, refuse_media
from rewardpool.sample import FunctionSample, Sample
from rewardpool_api.contract import StepScore
from rewardpool_api.source import parse_source


class ChatScorer:
    """Scores conversations by a Discriminative pool; too long ones are refused before they are sent."""

    def __init__(self, pool: Pool, tokenizer: ChatTokenizer) -> None:
        self._pool = pool
        self._tokenizer = tokenizer

    async def score(self, episode: Episode) -> PartScore:
        """The reward model's score; `info` has the values of its steps, where it scores steps."""
        refuse_media(episode)
        try:
            token_ids = await self._tokenizer.token_ids(episode.messages())
        except ValueError as error:
            raise InvalidSampleError(episode.label, str(error)) from error
        score = await self._pool.score(Sample(token_ids=token_ids, id=episode.id))
        return PartScore(score, {"steps": list(score.steps)} if isinstance(score, StepScore) else {})


class PoolFunctionScorer:
    """Scores responses by a Function pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def score(self, episode: Episode) -> PartScore:
        """What the pool's function returns."""
        arguments = FunctionSample(
            data_source=episode.data_source,
            solution_str=episode.response,
            ground_truth=episode.ground_truth,
            extra_info=episode.extra_info,
        )
        return PartScore(await self._pool.score(Sample(function=arguments, id=episode.id)))


async def chat_tokenizer(part: PoolPart, endpoint: Endpoint, *, given: Any, path: str) -> ChatTokenizer:
    """Load what writes an episode in the reward model's tokens.

    Args:
        part: Of the config.
        endpoint: Where the part's pool was found.
        given: A loaded tokenizer that goes before all others; or None.
        path: Where the part is in the config.

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
    return ChatTokenizer(given, template=template, system=part.system, system_prompt=part.system_prompt, field=field)


async def model_of(endpoint: Endpoint, *, field: str) -> tuple[str, str | None]:
    """Folder or hub name, and revision, of the model that the pool's object names."""
    if endpoint.place is None:
        raise ConfigError(field, f"set it: of {endpoint.pool} only a URL is known, not which model it serves")
    namespace, _, name = endpoint.pool.partition("/")
    pool = await endpoint.place.read_pool(namespace, name)
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
