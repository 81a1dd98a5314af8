"""The agent loop `rewardpool`: another one writes, and what it has written is scored here, in the same process.

actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool

verl's agent loop worker asks a reward worker, an actor in another process, for every trajectory that comes without a
reward: it makes a DataProto of it, pickles it, and waits for Ray. A trajectory that comes with its reward it leaves as
it is. So this agent loop has the real one (`reward.rewardpool.agent_loop`) write, and adds the reward and its
`reward_extra_info`, the same as the reward manager would give. It can also give each step of a response a reward of its
own: of a trajectory verl's v1 trainers take what `AgentLoopOutput.as_dict` says, the rewards of all tokens included.
"""

import functools
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import hydra
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, _agent_loop_registry, register

from rewardpool._client.threads.shared import shared
from rewardpool.errors import ConfigError, SampleError
from rewardpool.verl.advantages import LEAST_REWARD
from rewardpool.verl.announced import shared_reward
from rewardpool.verl.response_scorer import ResponseScorer
from rewardpool.verl.settings import AGENT_LOOP, MAPPING_PATH, VerlSettings, plain_config, read_settings
from rewardpool.verl.whole_groups import Member, WholeGroups

log = logging.getLogger(__name__)

_groups = WholeGroups()


class StepRewardedOutput(AgentLoopOutput):  # type: ignore[misc]  # verl is not where types are checked
    """A trajectory whose steps have rewards, for verl's v1 trainers."""

    # Never a number. Where verl takes one for a trajectory, its check of types fails with these words.
    reward_score: Any = None
    # The token of the response in which each step ends, from 0, and the step's reward.
    step_rewards: tuple[tuple[int, float], ...] = ()

    @classmethod
    def from_output(cls, output: Any, steps: tuple[tuple[int, float], ...]) -> "StepRewardedOutput":
        given = {name: getattr(output, name) for name in output.model_fields_set}
        given["extra_fields"] = output.extra_fields
        made: StepRewardedOutput = cls.model_construct(
            **{**given, "reward_score": "supervision process takes trainer.use_v1=True", "step_rewards": steps}
        )
        return made

    def as_dict(self) -> dict[str, Any]:
        """Return verl's mapping, with `rm_scores` of each token, float32 (response tokens,): other than 0 where a step
        ends.
        """
        plain = {name: getattr(self, name) for name in self.model_fields_set - {"reward_score", "step_rewards"}}
        fields: dict[str, Any] = AgentLoopOutput.model_construct(**plain).as_dict()
        rewards = torch.zeros_like(fields["response_mask"], dtype=torch.float32)
        for token, value in self.step_rewards:
            rewards[token] += value
        for token in {token for token, _ in self.step_rewards}:
            rewards[token] = rewards[token] or LEAST_REWARD
        return {**fields, "rm_scores": rewards}


class InlineScorer:
    """The scorer of all agent loops of one worker."""

    def __init__(self, config: Any, settings: VerlSettings, scorer: ResponseScorer) -> None:
        """`config` is the trainer's; kept because it is known by its identity."""
        self.config = config
        self.settings = settings
        self._scorer = scorer

    async def score(self, outputs: Sequence[Any], of_row: dict[str, Any], *, member: Member) -> Any:
        """Add the reward to the last output of a trajectory, as verl's agent loop worker does, and return that output.

        A trajectory without a score is logged.

        Args:
            outputs: verl's `AgentLoopOutput`s of one trajectory, one at least.
            of_row: The columns of the data set's row.
            member: What the trajectory is of its group.

        Returns:
            The last output, or a `StepRewardedOutput` in its place; None for a trajectory without a score.

        Raises:
            RewardPoolError: What `ResponseScorer.score` raises.
            ConfigError: Steps have rewards, and there are several outputs, of which verl gives all one number.
        """
        last = outputs[-1]
        if last.reward_score is not None:  # the agent loop has one of its own
            return last
        if self.settings.rewards_steps and len(outputs) > 1:
            raise ConfigError(
                f"{MAPPING_PATH}.supervision",
                f"must be outcome with {self.settings.agent_loop}, whose trajectories have several outputs: verl gives"
                " all of them the one reward of the last",
            )
        began = time.monotonic()
        others = {
            **of_row,
            "__num_turns__": last.num_turns,
            "tool_extra_fields": last.extra_fields,
            "multi_modal_data": last.multi_modal_data,
        }
        scored = await self._scorer.score(others, last.response_ids, prompt_ids=last.prompt_ids, member=member)
        if isinstance(scored, SampleError):
            log.warning("a trajectory has no score, and is left out of its group: %s", scored)
            return None
        last.reward_score, last.extra_fields["reward_extra_info"] = scored.score, scored.extra_info
        last.metrics.compute_score = time.monotonic() - began - member.waited_seconds
        return last if scored.steps is None else StepRewardedOutput.from_output(last, scored.steps)


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
            of_row: The columns of the data set's row.

        Returns:
            What the agent loop that writes returns: an `AgentLoopOutput`, or a list of them. The last one has
            `reward_score`, a finite float (or, with supervision process, `step_rewards`), and `reward_extra_info`.
            An empty list for a trajectory without a score, which verl's v1 trainers leave out of the batch.

        Raises:
            ConfigError: The config is wrong, or names an agent loop that does not exist.
            SampleError: The trajectory has no score, and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        uid = of_row.get("uid")
        group = (id(self._config), object() if uid is None else str(uid))
        with _groups.member(group) as member:  # before anything is waited for
            return await self._run(sampling_params, of_row, member)

    async def _run(self, sampling_params: dict[str, Any], of_row: dict[str, Any], member: Member) -> Any:
        scorer = await self._scorer()
        output = await self._writer(scorer.settings.agent_loop).run(sampling_params, **of_row)
        outputs = output if isinstance(output, list) else [output]
        if not outputs:
            return output
        last = await scorer.score(outputs, of_row, member=member)
        if last is None:
            return []
        return [*outputs[:-1], last] if isinstance(output, list) else last

    async def _scorer(self) -> InlineScorer:
        name = f"inline scorer {id(self._config)}"  # an agent loop worker has one config, the same object all its life
        return await shared().get(name, lambda: _open_scorer(self._config, self._tokenizer))

    def _writer(self, name: str) -> Any:
        if name not in _agent_loop_registry:
            raise ConfigError(
                f"{MAPPING_PATH}.agent_loop", f"{name!r} is none of verl's: {', '.join(sorted(_agent_loop_registry))}"
            )
        entry = _agent_loop_registry[name]
        if list(entry) == ["_target_"]:  # as `register` writes it
            return _class_of(entry["_target_"])(**self._given)
        return hydra.utils.instantiate(config=entry, **self._given)


@functools.cache
def _class_of(path: str) -> Any:
    """An agent loop, which is made for every trajectory: hydra would take a millisecond for each, to merge configs."""
    return hydra.utils.get_class(path)


@asynccontextmanager
async def _open_scorer(config: Any, tokenizer: Any) -> AsyncIterator[InlineScorer]:
    settings = read_settings(plain_config(config))
    reward = await shared_reward(settings.spec, path=MAPPING_PATH, **settings.announced)
    scorer = ResponseScorer(reward, tokenizer, max_response_tokens=settings.max_response_tokens, info=settings.info)
    yield InlineScorer(config, settings, scorer)
