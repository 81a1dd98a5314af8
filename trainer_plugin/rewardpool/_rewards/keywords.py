"""The keywords of a reward, for editors and type checkers; docs/reference-config.md explains each.

Values are checked when the reward is made, by the models in `config.py` and `part_config.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from rewardpool._config import FailurePolicy

# `{"policy": {"penalty": -1}}` is a mapping.
Failure = FailurePolicy | Mapping[str, Any]


class RewardSettings(TypedDict, total=False):
    """Fields that may be given as keywords beside a reward, and win over its own."""

    # How a pool is found and asked.
    pool: str
    url: str
    key_file: str | Path
    ca_file: str | Path
    served_name: str
    one_revision: bool
    adapter: str
    timeout: float
    max_attempts: int
    breaker_threshold: int
    concurrency: int
    batch: int | Literal["auto"]
    hedge: bool
    on_failure: Failure
    wait_seconds: float
    announce: bool
    job: str
    # A part.
    name: str
    weight: float
    clip: tuple[float, float] | Sequence[float]
    normalize: Literal["group", "running"] | Mapping[str, float]
    gate: Mapping[str, float]
    # Of a pool.
    type: Literal["Discriminative", "Generative", "Function"]
    chat_template: str | Path
    system: Literal["keep", "merge", "drop"]
    system_prompt: str
    steps: Mapping[str, str]
    supervision: Literal["outcome", "process"]
    strip_reasoning: bool | Mapping[str, Any]
    judge: Mapping[str, Any]
    # Of a function, and of a length penalty.
    function: str | Callable[..., Any]
    kwargs: Mapping[str, Any]
    run_in: Literal["processes", "threads"]
    cpu_seconds: float
    idle_seconds: float
    memory_mib: int
    calls_per_process: int
    env: Sequence[str]
    length_penalty: Mapping[str, float]
    # Of a mixture.
    combine: Literal["sum", "product", "gate"]
    post_process: str | Callable[..., Any]
    ledger: str | Path | Mapping[str, Any]
