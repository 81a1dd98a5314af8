"""Choice of the process that announces a job, and of the job's name."""

import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping
from functools import lru_cache

from rewardpool._config import RewardConfig, check_job
from rewardpool.errors import ConfigError
from rewardpool_api import names
from rewardpool_api.demand import MAX_JOB_NAME, job_name

log = logging.getLogger(__name__)

ENV_RANK = "RANK"
# Set by torchrun, and by those that follow it.
ENV_RANKS = "WORLD_SIZE"

_lock = threading.Lock()
# Process, place with pool, and job of what is announced; a fork copies the set, and none of the announcing.
_taken: set[tuple[int, str, str]] = set()

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def is_switched_on(config: RewardConfig, environ: Mapping[str, str]) -> bool:
    """Return whether config and environment let the job announce. Raises ConfigError where the latter says neither."""
    said = environ.get(names.ENV_ANNOUNCE, "").strip().lower()
    if said and said not in _YES | _NO:
        raise ConfigError(f"${names.ENV_ANNOUNCE}", f"must be true or false, not {said!r}")
    return config.announce and said not in _NO


def name_of(config: RewardConfig, environ: Mapping[str, str]) -> str:
    """The job's name: the config's, the environment's, or one of the pod's or machine's name and the process id.

    Raises:
        ConfigError: The environment's name is none that a job may have.
    """
    given = config.job or environ.get(names.ENV_JOB)
    if not given:
        process = f"-{os.getpid()}"
        return job_name(socket.gethostname())[: MAX_JOB_NAME - len(process)].rstrip("-") + process
    try:
        return check_job(given)
    except ValueError as error:
        raise ConfigError(f"${names.ENV_JOB}", f"{error}, not {given!r}") from error


def acquire_name(job: str, *, where: str) -> str:
    """A name by which nothing of this process is announced at the place; the job's, if that is free."""
    # Two rewards of one job that ask one pool would overwrite each other's announcements.
    with _lock:
        name, number = job, 1
        while (os.getpid(), where, name) in _taken:
            number += 1
            suffix = f"-{number}"
            name = job[: MAX_JOB_NAME - len(suffix)].rstrip("-") + suffix
        _taken.add((os.getpid(), where, name))
    return name


def release_name(job: str, *, where: str) -> None:
    """The name is free again; may be called again."""
    with _lock:
        _taken.discard((os.getpid(), where, job))


def rank_of(environ: Mapping[str, str]) -> int:
    """Return the process's number within its job; 0 where it is the only one."""
    return _number(environ, ENV_RANK, default=0)


def ranks_of(environ: Mapping[str, str]) -> int:
    return _number(environ, ENV_RANKS, default=1)


@lru_cache(maxsize=1)  # asked again, a process is still the one that it was
def ray_rank() -> int | None:
    """0 for the first process of this Ray job that asks, 1 for all others; None outside Ray, or where it cannot say.

    Ray's own store, which all of its processes share, decides. A process that dies does not hand the part on; the
    demand lapses then, and the pool goes by its load.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    try:
        from ray.experimental.internal_kv import _internal_kv_put

        key = f"rewardpool/announces/{ray.get_runtime_context().get_job_id()}"
        was_taken: bool = _internal_kv_put(key, b"", overwrite=False)
    except Exception:  # no reason to end a training job: each process announces for itself then
        log.warning("Ray's store did not say which process of this job announces its demand", exc_info=True)
        return None
    return 1 if was_taken else 0


def _number(environ: Mapping[str, str], name: str, *, default: int) -> int:
    try:
        return int(environ.get(name) or default)
    except ValueError as error:
        raise ConfigError(f"${name}", "must be a whole number") from error
