"""The reward manager `rewardpool`; verl imports this module by the entry point, in the driver and in every Ray actor.

verl calls `run_single` for one sample at a time, many at once, on the event loop of each of its RewardLoopWorkers: as
rollouts complete where rewards stream, and for all samples of a batch where they do not. Both go the same way here.
"""

import asyncio
import logging
import time
from typing import Any

import ray
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import NaiveRewardManager, register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rewardpool._deadline import waited
from rewardpool._rewards import OpenReward
from rewardpool.errors import ConfigError, SampleError
from rewardpool.verl.announced import shared_reward
from rewardpool.verl.function_pool import FunctionPool, checked_result, shared_function_pool
from rewardpool.verl.response_scorer import ResponseScorer
from rewardpool.verl.rollout import prompt_tail_ids, response_ids
from rewardpool.verl.settings import AGENT_LOOP, MAPPING_PATH, plain_config, read_settings

log = logging.getLogger(__name__)


@register("rewardpool")
class RewardPoolManager(RewardManagerBase):  # type: ignore[misc]  # verl is not where types are checked
    """Rates verl's samples by reward pools."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        """Check the config, and begin to open the pools.

        Args:
            config: The trainer's whole config.
            compute_score: The reward function, with its arguments; called where the user has set one.
            reward_router_address: Of a reward model that verl serves itself; not used.
            reward_model_tokenizer: Of that model; not used.

        Raises:
            ConfigError: Names every wrong field by its whole path.
        """
        super().__init__(config, tokenizer, compute_score)
        self._settings = read_settings(plain_config(config))
        self._warned = False
        self._scorer: ResponseScorer | None = None
        self._caller: NaiveRewardManager | None = None
        self._opening = self._begin_to_open()

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Rate one sample.

        Args:
            data: One row; of a trajectory that has several, the last one is rated, as verl's own managers do.

        Returns:
            `reward_score`, a finite float, and `reward_extra_info`, with the same names for every sample.

        Raises:
            SampleError: It has no score.
            PoolError: A pool cannot be used.
            ConfigError: The reward needs whole groups, which verl gives to no reward manager.
        """
        if self._settings.calls_function:
            return await self._call_function(data)
        if self._settings.inline and not self._warned:
            self._warned = True
            log.warning(
                "a sample came to a reward worker, though %s scores: its row names another agent_name", AGENT_LOOP
            )
        began = time.monotonic()
        scorer = self._scorer_of(await self._reward())
        row = data[len(data) - 1]
        with waited(time.monotonic() - began):
            scored = await scorer.score(
                row.non_tensor_batch,
                response_ids(row.batch, row.non_tensor_batch),
                prompt_ids=prompt_tail_ids(row.batch),
            )
        if isinstance(scored, SampleError):  # of a row that names another agent loop, which has to have a number
            raise scored
        if scored.steps is not None:
            raise ConfigError(
                f"{MAPPING_PATH}.supervision",
                "must be outcome where the data set's rows name an agent_name: reward workers give verl one number, and"
                f" the rewards of steps would be lost; leave that column out, or write {AGENT_LOOP} into it",
            )
        return {"reward_score": scored.score, "reward_extra_info": scored.extra_info}

    def _scorer_of(self, reward: OpenReward) -> ResponseScorer:
        if self._scorer is None or self._scorer.reward is not reward:
            self._scorer = ResponseScorer(
                reward, self.tokenizer, max_response_tokens=self._settings.max_response_tokens, info=self._settings.info
            )
        return self._scorer

    async def _call_function(self, data: DataProto) -> dict[str, Any]:
        """Call the user's function by verl's own manager, as if verl served the pool's model itself."""
        pool = await self._function_pool()
        if self._caller is None:
            self._caller = NaiveRewardManager(
                self.config,
                self.tokenizer,
                self.compute_score,
                reward_router_address=pool.address,
                reward_model_tokenizer=pool.tokenizer,
            )
        with pool.bursts.sample():
            return checked_result(await self._caller.run_single(data))

    async def _function_pool(self) -> FunctionPool:
        return await shared_function_pool(self._settings.spec, path=MAPPING_PATH, workers=self._settings.workers)

    async def _reward(self) -> OpenReward:
        settings = self._settings
        # Where agent loops score, they announce; whatever comes here is the exception.
        spec = {**settings.spec, "announce": False} if settings.inline else settings.spec
        # Outside of Ray there are no other workers.
        split = settings.reward_workers > 1 and ray.is_initialized()
        return await shared_reward(spec, path=MAPPING_PATH, split=split, **settings.announced)

    def _begin_to_open(self) -> "asyncio.Task[Any] | None":
        """Made on the actor's event loop, as verl does it, this says what is missing long before the first sample."""
        if self._settings.inline:  # no sample is expected here
            return None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # made by somebody else; the first sample opens it
            return None
        opening = loop.create_task(self._function_pool() if self._settings.calls_function else self._reward())
        opening.add_done_callback(_log_failure)
        return opening


def _log_failure(opening: "asyncio.Task[Any]") -> None:
    if not opening.cancelled() and (error := opening.exception()) is not None:
        log.error("no sample can be rated: %s", error)
