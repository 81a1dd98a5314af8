"""The agent loop `rewardpool`: another one writes, and what it has written is scored here, in the same process.

actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool

verl's agent loop worker asks a reward worker, an actor in another process, for every trajectory that comes without a
reward: it makes a DataProto of it, pickles it, and waits for Ray. A trajectory that comes with its reward it leaves as
it is. So this agent loop has the real one (`reward.rewardpool.agent_loop`) write, and adds the reward and its
`reward_extra_info`, the same as the reward manager would give.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import hydra
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry, register

from rewardpool.client.shared import shared
from rewardpool.errors import ConfigError
from rewardpool.verl.announced import shared_reward
from rewardpool.verl.scorer import Scorer
from rewardpool.verl.settings import AGENT_LOOP, MAPPING_PATH, Settings, plain_config, read_settings


class InlineScorer:
    """What all agent loops of one worker score by."""

    def __init__(self, config: Any, settings: Settings, scorer: Scorer) -> None:
        """Keep them.

        Args:
            config: The trainer's; kept because it is known by its identity.
            settings: What it says.
            scorer: An open one.
        """
        self.config = config
        self.settings = settings
        self._scorer = scorer

    async def score(self, outputs: Sequence[Any], of_row: dict[str, Any]) -> None:
        """Add the reward to the last output of a trajectory, as verl's agent loop worker does.

        Args:
            outputs: verl's `AgentLoopOutput`s of one trajectory, one at least.
            of_row: The columns of the data set's row.

        Raises:
            RewardPoolError: What `Scorer.score` raises.
        """
        last = outputs[-1]
        if last.reward_score is not None:  # the agent loop has one of its own
            return
        began = time.monotonic()
        others = {
            **of_row,
            "__num_turns__": last.num_turns,
            "tool_extra_fields": last.extra_fields,
            "multi_modal_data": last.multi_modal_data,
        }
        last.reward_score, last.extra_fields["reward_extra_info"] = await self._scorer.score(others, last.response_ids)
        last.metrics.compute_score = time.monotonic() - began


@register(AGENT_LOOP)
class ScoringAgentLoop:
    """Made by verl for every trajectory, so it is light: what it scores by is shared."""

    def __init__(self, trainer_config: Any, tokenizer: Any, **others: Any) -> None:
        """Take what verl gives to every agent loop; the one that writes is given the same."""
        self._config = trainer_config.config
        self._tokenizer = tokenizer
        self._given = {"trainer_config": trainer_config, "tokenizer": tokenizer, **others}

    async def run(self, sampling_params: dict[str, Any], **of_row: Any) -> Any:
        """Write a trajectory and score it.

        Args:
            sampling_params: For generation.
            of_row: The columns of the data set's row.

        Returns:
            What the agent loop that writes returns: an `AgentLoopOutput`, or a list of them. The last one has
            `reward_score`, a finite float, and `reward_extra_info`.

        Raises:
            ConfigError: The config is wrong, or names an agent loop that does not exist.
            SampleError: The trajectory has no score, and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        scorer = await self._scorer()
        output = await self._writer(scorer.settings.agent_loop).run(sampling_params, **of_row)
        outputs = output if isinstance(output, list) else [output]
        if outputs:
            await scorer.score(outputs, of_row)
        return output

    async def _scorer(self) -> InlineScorer:
        name = f"inline scorer {id(self._config)}"  # an agent loop worker has one config, the same object all its life
        return await shared().get(name, lambda: _open_scorer(self._config, self._tokenizer))

    def _writer(self, name: str) -> Any:
        if name not in _agent_loop_registry:
            raise ConfigError(
                f"{MAPPING_PATH}.agent_loop", f"{name!r} is none of verl's: {', '.join(sorted(_agent_loop_registry))}"
            )
        return hydra.utils.instantiate(config=_agent_loop_registry[name], **self._given)


@asynccontextmanager
async def _open_scorer(config: Any, tokenizer: Any) -> AsyncIterator[InlineScorer]:
    settings = read_settings(plain_config(config))
    reward = await shared_reward(settings.spec, path=MAPPING_PATH, samples=settings.samples, workers=settings.workers)
    scorer = Scorer(reward, tokenizer, max_response_tokens=settings.max_response_tokens)
    yield InlineScorer(config, settings, scorer)
