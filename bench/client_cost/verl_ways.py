"""The same inside verl, on Ray: its reward workers, unmodified, two for each way of scoring.

    stock         verl's own reward model call, through its NaiveRouter
    plugin        this project's reward manager, with a pool of a reward function
    plugin_model  the same with a pool of a reward model: chat template and tokenizing included
    inline        the agent loop `rewardpool`, scoring in its own process: no reward worker is asked (streaming only)
    inline_model  the same with a pool of a reward model
    constant      verl's manager `naive` with a function that returns a constant: the ceiling

`streaming` asks for a sample at a time, as the agent loop does, from a process of its own; `batch` has verl's manager
score as many samples as the concurrency says, one such batch after the other.
"""

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
from client_cost.verl_loops import WRITTEN, AskingLoop, InlineLoop

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
        ("inline", "constant"),
        ("inline_model", "constant"),
        ("inline_model", "stock"),
    )
}

Way = Callable[[int, Setting], list[float]]
"""Scores so many samples; returns the seconds of each. Raises when one has no score, or not its own."""


INLINE: Final = {"inline": "plugin", "inline_model": "plugin_model"}
"""Scored in the agent loop: by what."""
EXPECTED: Final[dict[str, Callable[[float], bool]]] = {
    "stock": lambda score: score == rollouts.CONVERSATION_CHARACTERS,
    # The length of a function's arguments as JSON; they hold the response.
    "plugin": lambda score: score > 5 * rollouts.RESPONSE_WORDS,
    # The length in tokens.
    "plugin_model": lambda score: score == rollouts.CONVERSATION_WORDS,
    "constant": lambda score: score == 1.0,
}
"""By way: whether a sample's score is its own."""


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


@contextmanager
def open_ways(stage: Stage, folder: Path) -> Iterator[dict[str, Way]]:
    """Start Ray and every way's workers; Ray ends with the block."""
    tokenizer = folder / "tokenizer"
    rollouts.save_tokenizer(tokenizer)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="warning")
    try:
        asking = ray.remote(AskingLoop).remote()
        ways: dict[str, Way] = {}
        for name, overrides in _overrides(stage, tokenizer).items():
            config, is_right = verl_config(tokenizer, *overrides), EXPECTED[INLINE.get(name, name)]
            if name in INLINE:
                inline = ray.remote(InlineLoop).remote(config, str(tokenizer))
                ways[f"{name} streaming"] = _streaming(inline, is_right)
                continue
            manager = Manager(name, config, router=stage.naive_router)
            ways[f"{name} streaming"] = _streaming(asking, is_right, manager.reward_loop_workers)
            ways[f"{name} batch"] = _batch(manager, is_right)
        yield ways
    finally:
        ray.shutdown()


def _overrides(stage: Stage, tokenizer: Path) -> dict[str, list[str]]:
    """What a user would write for each way."""
    ours = {"url": stage.router, "key_file": stage.key_file, "served_name": SERVED_NAME, "announce": "false"}
    pool = ["reward.reward_manager.name=rewardpool", *(f"+reward.rewardpool.{name}={ours[name]}" for name in ours)]
    found = {
        "stock": [
            "reward.reward_model.enable=True",
            f"reward.reward_model.model_path={tokenizer}",
            "reward.reward_model.rollout.name=sglang",
        ],
        "plugin": [*pool, "+reward.rewardpool.type=Function"],
        "plugin_model": [*pool, "+reward.rewardpool.type=Discriminative", f"+reward.rewardpool.tokenizer={tokenizer}"],
        "constant": [f"reward.custom_reward_function.path={Path(__file__).with_name('constant.py')}"],
    }
    inline = [
        "actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool",
        f"+reward.rewardpool.agent_loop={WRITTEN}",
    ]
    return found | {name: [*found[by], *inline] for name, by in INLINE.items()}


def _manager_class(config: Any) -> Any:
    from verl.experimental.reward_loop.reward_loop import resolve_reward_manager_cls

    return resolve_reward_manager_cls(config)


def _streaming(loop: Any, is_right: Callable[[float], bool], *workers: Any) -> Way:
    def run(count: int, setting: Setting) -> list[float]:
        latencies, scores = ray.get(loop.stream.remote(*workers, count, setting))
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
