"""Actors on Ray that stand for verl's agent loop workers: they have rollouts scored, so many at a time.

`AskingLoop` asks reward workers, as verl's own does. `InlineLoop` scores by the agent loop `rewardpool`, in its own
process. What writes is left out of both: generation is not what is measured.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput, DictConfigWrap, register
from verl.utils.tokenizer import hf_tokenizer

from client_cost import rollouts
from client_cost.figures import Setting
from rewardpool.verl.agent_loop import ScoringAgentLoop

WRITTEN: Final = "written_already"
"""For `reward.rewardpool.agent_loop`."""

Timed = tuple[list[float], list[float]]
"""The seconds and the score of each rollout."""


class AskingLoop:
    """An actor that asks reward workers for a sample each, any of them."""

    async def stream(self, workers: Sequence[Any], count: int, setting: Setting) -> Timed:
        """Have so many rollouts scored."""

        async def ask(number: int) -> float:
            data = rollouts.rollouts([number], service_ms=setting.service_ms)
            result = await random.choice(workers).compute_score.remote(data)
            return float(result["reward_score"])

        return await _in_flight(count, setting.concurrency, ask)


class InlineLoop:
    """An actor that scores by itself.

    Args:
        config: The trainer's.
        tokenizer: The folder of the policy's.
    """

    def __init__(self, config: Any, tokenizer: str) -> None:
        self._loop = ScoringAgentLoop(trainer_config=DictConfigWrap(config), tokenizer=hf_tokenizer(tokenizer))

    async def stream(self, count: int, setting: Setting) -> Timed:
        """Score so many rollouts."""

        async def score(number: int) -> float:
            row = rollouts.columns(service_ms=setting.service_ms)
            return float((await self._loop.run({}, number=number, **row)).reward_score)

        return await _in_flight(count, setting.concurrency, score)


@register(WRITTEN)
class WrittenAlready:
    """StandIn for what writes: its rollouts are there at once."""

    def __init__(self, **_of_verl: Any) -> None:
        pass

    async def run(self, sampling_params: dict[str, Any], *, number: int, **_of_row: Any) -> AgentLoopOutput:
        """The rollout of that number."""
        response = rollouts.response(number)
        return AgentLoopOutput(
            prompt_ids=rollouts.PROMPT,
            response_ids=response,
            response_mask=[1] * len(response),
            num_turns=2,
            metrics=AgentLoopMetrics(),
        )


async def _in_flight(count: int, concurrency: int, score: Callable[[int], Awaitable[float]]) -> Timed:
    waiting = iter(range(count))
    latencies: list[float] = []
    scores: list[float] = []

    async def one_rollout_after_the_other() -> None:
        for number in waiting:
            began = time.perf_counter()
            scores.append(await score(number))
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(one_rollout_after_the_other() for _ in range(concurrency)))
    return latencies, scores
