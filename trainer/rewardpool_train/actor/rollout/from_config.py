"""Open the rollout engine of a config: transformers, a vLLM that is already running, or one that the job starts."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rewardpool.errors import ConfigError, RewardPoolError, RolloutError
from rewardpool_train.actor.data import Prompt
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.actor.rollout.engine import RolloutEngine
from rewardpool_train.actor.rollout.transformers_engine import TransformersEngine
from rewardpool_train.actor.rollout.vllm_client import SocketAddress, UrlAddress, VllmAddress
from rewardpool_train.actor.rollout.vllm_engine import VllmEngine
from rewardpool_train.actor.rollout.vllm_server import running_vllm
from rewardpool_train.config import TrainConfig

ENV_SERVER_PYTHON = "REWARDPOOL_SERVER_PYTHON"  # interpreter that has vLLM, if the config sets none


@contextmanager
def open_engine(
    config: TrainConfig,
    *,
    ranks: Ranks,
    pad_id: int,
    end_ids: Sequence[int],
    encode: Callable[[Prompt], Sequence[int]],
    load_policy: Callable[[], Any],
    thread: Executor,
) -> Iterator[RolloutEngine]:
    """Open the engine that `rollout.engine` names; all ranks enter this together.

    A vLLM that the job starts takes about a minute to start, and ends with this block, or with the job.

    Args:
        encode: Returns the token ids that the policy continues.
        load_policy: Returns an unsharded policy for this rank, on its device; only for transformers.
        thread: Runs one call at a time; transformers generates there.

    Raises:
        ConfigError: An interpreter, key file or URL of the config is missing.
        RolloutError: The server did not start.
    """
    if config.rollout.engine == "transformers":
        yield TransformersEngine(
            load_policy(),
            pad_id=pad_id,
            end_ids=end_ids,
            encode=encode,
            max_new_tokens=config.rollout.max_new_tokens,
            temperature=config.rollout.temperature,
            seed=config.seed * ranks.size + ranks.rank,
            thread=thread,
        )
        return
    with _vllm(config, ranks) as address:
        yield VllmEngine(
            address,
            settings=config.rollout.vllm,
            ranks=ranks,
            encode=encode,
            end_ids=end_ids,
            max_new_tokens=config.rollout.max_new_tokens,
            temperature=config.rollout.temperature,
        )


@contextmanager
def _vllm(config: TrainConfig, ranks: Ranks) -> Iterator[VllmAddress]:
    vllm = config.rollout.vllm
    if vllm.url is not None:
        yield UrlAddress(vllm.url, _read_key(vllm.key_file))
        return
    if int(os.environ.get("LOCAL_WORLD_SIZE", ranks.size)) != ranks.size:
        raise ConfigError("rollout.vllm.url", "a job on several machines needs a vLLM that all of them reach; set it")
    with ExitStack() as stack:
        address: VllmAddress | None = None
        problem: RewardPoolError | None = None
        if ranks.first:
            try:
                address = SocketAddress(stack.enter_context(_start_vllm(config)))
            except RewardPoolError as error:
                problem = error  # the others wait for an address
        address, problem = ranks.broadcast((address, problem))
        if address is None:
            raise problem or RolloutError("vLLM has no address")
        yield address


def _start_vllm(config: TrainConfig) -> AbstractContextManager[Path]:
    vllm = config.rollout.vllm
    return running_vllm(
        config.policy.path,
        python=vllm.python or os.environ.get(ENV_SERVER_PYTHON) or sys.executable,
        arguments=["--dtype", config.policy.dtype, "--seed", str(config.seed), *vllm.args],
        log_file=config.output / "vllm.log",
        deadline_seconds=vllm.start_deadline_seconds,
    )


def _read_key(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError("rollout.vllm.key_file", f"cannot read {file}: {error.strerror}") from error
