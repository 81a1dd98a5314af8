"""The one way in for every adapter: from a few lines of a config to a reward that is ready to rate."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._client.rules.breaker import Breaker
from rewardpool._config import RewardConfig
from rewardpool._deadline import waited
from rewardpool._discovery.endpoint import ServedModel
from rewardpool._rewards.chat.writers import ConversationWriter, Writers
from rewardpool._rewards.composite import CompositeReward, OpenPart, PostProcess
from rewardpool._rewards.config import RewardLike, RewardSpec, as_mapping, parse_reward
from rewardpool._rewards.discriminative import (
    ChatScorer,
    PoolFunctionScorer,
    TokenizerCheck,
    check_files,
    load_writer,
)
from rewardpool._rewards.functions import FunctionScorer, LengthPenaltyScorer, started_runner
from rewardpool._rewards.job_claims import ClaimStore
from rewardpool._rewards.judges.judge import PointwiseScorer, ReferenceScorer
from rewardpool._rewards.judges.listwise import ListComparer
from rewardpool._rewards.judges.pairwise import GroupComparer
from rewardpool._rewards.ledger.writer import Ledger
from rewardpool._rewards.opened import OpenReward
from rewardpool._rewards.part_config import FunctionPart, JudgeConfig, LengthPenaltyPart, Part, PoolPart
from rewardpool._rewards.requests import Asked
from rewardpool._rewards.reward_function import (
    GroupRewardFunction,
    GroupWithoutReasoning,
    RewardFunction,
    WithoutReasoning,
)
from rewardpool._rewards.score_noise import ScoreDtype, coarsest
from rewardpool.errors import ConfigError, ModelChangedError
from rewardpool_runtime.functions.load import FunctionLoadError, load_function

log = logging.getLogger(__name__)

# Fields of a pool's part that mean something for pools of one type only.
FIELDS_OF_TYPE = {
    "Discriminative": {"tokenizer", "chat_template", "system", "system_prompt", "steps", "supervision"},
    "Generative": {"judge"},
}


@asynccontextmanager
async def open_reward(
    spec: RewardLike,
    *,
    tokenizer: Any = None,
    claims: ClaimStore | None = None,
    path: str = "reward",
    **overrides: Any,
) -> AsyncIterator[OpenReward]:
    """Find the pools, load tokenizers and functions, and yield the reward; closed with the `async with` block.

    Rewards on one event loop share what is open of pools that they ask with the same settings; see `Pool.shared`.

    Args:
        spec: `namespace/name` of a pool, or its URL; `python://module:function`, or a function; a mapping with the
            fields of `RewardConfig` and `PoolPart`; one with `function`; or one with `rewards`, the parts of a mixture.
        tokenizer: A loaded tokenizer of the reward model, instead of the one that the config or the pool names.
        claims: Which revision each group has, for `OpenReward.rate_next` where several processes rate a group's
            members; None where one process does.
        path: Where `spec` stands in the trainer's config, for messages.
        overrides: Fields that win over those of `spec`.

    Raises:
        ConfigError: Fields are wrong, or a tokenizer or function cannot be loaded; the message has the fields' paths.
        PoolError: A pool cannot be used.
    """
    if overrides:
        spec = {**as_mapping(spec, path=path), **overrides}
    parsed = parse_reward(spec, path=path)
    post_process = _post_process(parsed, path=path)
    async with AsyncExitStack() as stack:
        opening = _Opening(stack, tokenizer)
        parts = [
            OpenPart(
                part,
                place,
                await opening.reward_function(part, path=place),
                score_dtype=opening.score_dtype(part),
                breaker=_breaker_of(part),
                pool=opening.pool_of(part),
            )
            for part, place in zip(parsed.parts, parsed.paths, strict=True)
        ]
        ledger = None if parsed.ledger is None else stack.enter_context(Ledger(parsed.ledger))
        yield CompositeReward(
            parts,
            combine=parsed.combine,
            pools=opening.pools,
            asked=opening.asked,
            post_process=post_process,
            claims=claims,
            ledger=ledger,
            path=path,
        )


class _Opening:
    """Opens parts one by one; what they hold is closed by the stack."""

    def __init__(self, stack: AsyncExitStack, tokenizer: Any) -> None:
        self._stack = stack
        self._tokenizer = tokenizer
        self._began = time.monotonic()
        self.pools: dict[str, Pool] = {}
        # Once for each part that asks a pool, and for each of the judges' meta reward models.
        self.asked: list[Asked] = []
        self._clients: dict[str, PoolPart] = {}

    async def reward_function(self, part: Part, *, path: str) -> RewardFunction | GroupRewardFunction:
        """Open one part. Raises ConfigError or PoolError."""
        if isinstance(part, FunctionPart):
            runner = await started_runner(part, path=path)
            self._stack.push_async_callback(runner.close)
            return FunctionScorer(runner)
        if isinstance(part, LengthPenaltyPart):
            return LengthPenaltyScorer(part.length_penalty)
        if not isinstance(part, PoolPart):
            raise TypeError(f"{type(part).__name__} is not a kind of part")
        pool = await self._pool(part, path=path)
        self.asked.append(Asked(pool.endpoint.pool, part.judge))
        function = await self._pool_reward_function(part, pool, path=path)
        if part.reasoning is None:
            return function
        if isinstance(function, GroupRewardFunction):
            return GroupWithoutReasoning(function, part.reasoning)
        return WithoutReasoning(function, part.reasoning)

    def pool_of(self, part: Part) -> Pool | None:
        """Return the pool that an open part asks; None for functions and rules."""
        client = part.client if isinstance(part, PoolPart) else None
        return next((self.pools[name] for name, other in self._clients.items() if other.client == client), None)

    def score_dtype(self, part: Part) -> ScoreDtype:
        """Return what an open part's reward model computes in; scores of judges and functions come from no logit."""
        client = part.client if isinstance(part, PoolPart) else None
        endpoints = (self.pools[name].endpoint for name, other in self._clients.items() if other.client == client)
        return coarsest(endpoint.dtype for endpoint in endpoints if endpoint.model_type == "Discriminative")

    async def _pool(self, part: PoolPart, *, path: str) -> Pool:
        """The part's pool, which may be another part's already."""
        for name, other in self._clients.items():
            if other.client == part.client:
                return self.pools[name]
        with waited(time.monotonic() - self._began):  # parts are opened one by one, within one deadline
            pool = await self._stack.enter_async_context(Pool.shared(part.client))
        name = pool.endpoint.pool
        if name in self.pools:
            raise ConfigError(path, f"asks {name} with other settings than part {self._clients[name].name} does")
        self.pools[name], self._clients[name] = pool, part
        return pool

    async def _pool_reward_function(
        self, part: PoolPart, pool: Pool, *, path: str
    ) -> RewardFunction | GroupRewardFunction:
        served = pool.endpoint.model_type
        if part.type is not None and served not in (None, part.type):
            raise ConfigError(f"{path}.type", f"is {part.type}, and {pool.endpoint.pool} is {served}")
        kind = served or part.type
        for owner, fields in FIELDS_OF_TYPE.items():
            if kind != owner and (misplaced := sorted(fields & part.model_fields_set)):
                raise ConfigError(
                    f"{path}.{misplaced[0]}", f"is for a {owner} pool, and {pool.endpoint.pool} is {kind}"
                )
        match kind:
            case "Discriminative":
                return await self._chat_scorer(part, pool, given=self._tokenizer, path=path)
            case "Function":
                return PoolFunctionScorer(pool)
            case "Generative":
                return _judge(part.judge, pool, meta=await self._meta(part.judge, path=f"{path}.judge.meta"))
            case "Teacher":
                raise ConfigError(
                    f"{path}.pool",
                    f"{pool.endpoint.pool} is a Teacher, which gives log-probabilities and no reward: ask it by"
                    " rewardpool.Teacher (docs/teachers.md)",
                )
            case _:
                raise ConfigError(
                    f"{path}.type",
                    "set it to Discriminative, Generative or Function: of a bare URL it is not known what it serves",
                )

    async def _chat_scorer(self, part: PoolPart, pool: Pool, *, given: Any, path: str) -> ChatScorer:
        async def load(model: ServedModel) -> ConversationWriter:
            if given is not None:
                raise ModelChangedError(
                    f"the tokenizer of {path} was given as an object; open the reward again with that of {model.source}"
                )
            writer = await load_writer(part, pool, model, given=None, path=path)
            self._stack.callback(writer.chat.close)
            return writer

        models = pool.endpoint.revisions
        first = await load_writer(part, pool, models[0] if models else None, given=given, path=path)
        self._stack.callback(first.chat.close)
        if given is None and part.tokenizer is None:
            check_files(first.tokenizer, models[0], field=f"{path}.tokenizer")
        elif first.tokenizer is None or first.tokenizer not in {one.tokenizer for one in models}:
            # It may be the same and be saved by another library: what the model counts shows it.
            declared = models[0].tokenizer if models else None
            check = TokenizerCheck(pool, first.chat, field=f"{path}.tokenizer").passed
            first = replace(first, tokenizer=declared, check=check)
        return ChatScorer(pool, Writers(pool, first, load))

    async def _meta(self, judge: JudgeConfig, *, path: str) -> ChatScorer | None:
        """Return the scorer of the judge's answers, where there is one. Raises ConfigError or PoolError."""
        if judge.meta is None:
            return None
        part = judge.meta.as_part()
        pool = await self._pool(part, path=path)
        self.asked.append(Asked(pool.endpoint.pool, judge))
        if pool.endpoint.model_type not in (None, "Discriminative"):
            raise ConfigError(
                f"{path}.pool",
                f"{pool.endpoint.pool} is {pool.endpoint.model_type}: a Discriminative pool scores a judge's answers",
            )
        # The tokenizer that was given is that of a reward of the config's, not of this one.
        return await self._chat_scorer(part, pool, given=None, path=path)


def _judge(judge: JudgeConfig, pool: Pool, *, meta: RewardFunction | None) -> RewardFunction | GroupRewardFunction:
    if judge.mode == "pointwise":
        return PointwiseScorer(pool, judge, meta=meta)
    if judge.mode == "listwise":
        return ListComparer(pool, judge, meta=meta)
    if judge.against == "reference":
        return ReferenceScorer(pool, judge, meta=meta)
    return GroupComparer(pool, judge, meta=meta)


def _breaker_of(part: Part) -> Breaker:
    client = part.client if isinstance(part, PoolPart) else RewardConfig()
    return Breaker(client.breaker_threshold)


def _post_process(spec: RewardSpec, *, path: str) -> PostProcess | None:
    if not isinstance(spec.post_process, str):
        return spec.post_process
    try:
        return load_function(spec.post_process)
    except FunctionLoadError as error:
        raise ConfigError(f"{path}.post_process", str(error)) from error
