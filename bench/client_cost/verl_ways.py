"""The same inside verl, on Ray: its reward workers, unmodified, two for each way of scoring.

    stock         verl's own reward model call, through its NaiveRouter
    plugin        this project's reward manager, with a pool of a reward function
    plugin_model  the same with a pool of a reward model: chat template, tokenizing and length included
    constant      verl's manager `naive` with a function that returns a constant: the ceiling

`streaming` asks for a sample at a time, as the agent loop does, from a process of its own; `batch` has verl's manager
score as many samples as the concurrency says, one such batch after the other.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import ray
from support.fleet import SERVED_NAME
from support.verl_job import verl_config
from verl.experimental.reward_loop import RewardLoopManager, RewardLoopWorker

from client_cost import rollouts
from client_cost.figures import Ratios, Setting
from client_cost.stage import Stage

WORKERS: Final = 2
"""Of each way; `reward.num_workers`."""
RATIOS: Final[Ratios] = {
    f"{one}/{other} {kind}": (f"{one} {kind}", f"{other} {kind}")
    for kind in ("streaming", "batch")
    for one, other in (
        ("plugin", "constant"),
        ("plugin_model", "constant"),
        ("stock", "constant"),
        ("plugin_model", "stock"),
    )
}

Way = Callable[[int, Setting], list[float]]
"""Scores so many samples; returns the seconds of each. Raises when one has no score, or not its own."""


class Manager(RewardLoopManager):  # type: ignore[misc]  # verl is not where types are checked
    """verl's manager without its servers, which are on the stage, and with workers that others do not share."""

    def __init__(self, name: str, config: Any, *, router: str | None = None) -> None:
        self._name = name
        self.config = config
        self.reward_model_manager = None
        self.reward_router_address = router
        self.reward_loop_workers_class = ray.remote(RewardLoopWorker)
        self.reward_manager_cls = _manager_class(config)
        self._init_reward_loop_workers()

    def _init_reward_loop_workers(self) -> None:
        """As verl's, whose names are the same for every manager of a cluster."""
        self.reward_loop_workers = [
            self.reward_loop_workers_class.options(name=f"{self._name}_{number}").remote(
                self.config, self.reward_router_address
            )
            for number in range(WORKERS)
        ]


class StandInAgentLoop:
    """An actor that asks reward workers as verl's agent loop does: a sample each, of any of them."""

    async def stream(self, workers: Sequence[Any], count: int, setting: Setting) -> tuple[list[float], list[float]]:
        """Score so many samples; returns the seconds and the score of each."""
        waiting = iter(range(count))
        latencies: list[float] = []
        scores: list[float] = []

        async def one_rollout() -> None:
            for number in waiting:
                began = time.perf_counter()
                data = rollouts.rollouts([number], service_ms=setting.service_ms)
                result = await random.choice(workers).compute_score.remote(data)
                scores.append(result["reward_score"])
                latencies.append(time.perf_counter() - began)

        await asyncio.gather(*(one_rollout() for _ in range(setting.concurrency)))
        return latencies, scores


@contextmanager
def open_ways(stage: Stage, folder: Path) -> Iterator[dict[str, Way]]:
    """Start Ray and every way's workers; Ray ends with the block."""
    tokenizer = folder / "tokenizer"
    rollouts.save_tokenizer(tokenizer)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="warning")
    try:
        loop = ray.remote(StandInAgentLoop).remote()
        managers = {
            name: Manager(name, verl_config(tokenizer, *overrides), router=stage.naive_router)
            for name, overrides in _overrides(stage, tokenizer).items()
        }
        yield {
            f"{name} {kind}": way
            for name, manager in managers.items()
            for kind, way in {
                "streaming": _streaming(loop, manager.reward_loop_workers, EXPECTED[name]),
                "batch": _batch(manager, EXPECTED[name]),
            }.items()
        }
    finally:
        ray.shutdown()


EXPECTED: Final[dict[str, Callable[[float], bool]]] = {
    "stock": lambda score: score == rollouts.CONVERSATION_CHARACTERS,
    # The length of a function's arguments as JSON; they hold the response.
    "plugin": lambda score: score > 5 * rollouts.RESPONSE_WORDS,
    # The length in tokens.
    "plugin_model": lambda score: score == rollouts.PROMPT_WORDS + rollouts.RESPONSE_WORDS,
    "constant": lambda score: score == 1.0,
}
"""By way: whether a sample's score is its own."""


def _overrides(stage: Stage, tokenizer: Path) -> dict[str, list[str]]:
    """What a user would write for each way."""
    ours = {"url": stage.router, "key_file": stage.key_file, "served_name": SERVED_NAME, "announce": "false"}
    pool = ["reward.reward_manager.name=rewardpool", *(f"+reward.rewardpool.{name}={ours[name]}" for name in ours)]
    return {
        "stock": [
            "reward.reward_model.enable=True",
            f"reward.reward_model.model_path={tokenizer}",
            "reward.reward_model.rollout.name=sglang",
        ],
        "plugin": [*pool, "+reward.rewardpool.type=Function"],
        "plugin_model": [*pool, "+reward.rewardpool.type=Discriminative", f"+reward.rewardpool.tokenizer={tokenizer}"],
        "constant": [f"reward.custom_reward_function.path={Path(__file__).with_name('constant.py')}"],
    }


def _manager_class(config: Any) -> Any:
    from verl.experimental.reward_loop.reward_loop import resolve_reward_manager_cls

    return resolve_reward_manager_cls(config)


def _streaming(loop: Any, workers: Sequence[Any], is_right: Callable[[float], bool]) -> Way:
    def run(count: int, setting: Setting) -> list[float]:
        latencies, scores = ray.get(loop.stream.remote(workers, count, setting))
        _check(scores, is_right)
        return list(latencies)

    return run


def _batch(manager: Manager, is_right: Callable[[float], bool]) -> Way:
    def run(count: int, setting: Setting) -> list[float]:
        latencies: list[float] = []
        for first in range(0, count, setting.concurrency):
            numbers = range(first, min(first + setting.concurrency, count))
            data = rollouts.rollouts(numbers, service_ms=setting.service_ms)
            began = time.perf_counter()
            scored = manager.compute_rm_score(data)
            latencies += [time.perf_counter() - began] * len(numbers)
            _check(scored.batch["rm_scores"].sum(dim=-1).tolist(), is_right)
        return latencies

    return run


def _check(scores: Sequence[float], is_right: Callable[[float], bool]) -> None:
    if wrong := [score for score in scores if not is_right(score)]:
        raise RuntimeError(f"{len(wrong)} of {len(scores)} scores are wrong, such as {wrong[0]}")
