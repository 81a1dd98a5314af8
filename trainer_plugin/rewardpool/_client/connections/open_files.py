"""Check that this process may open a connection for each request in flight: each is a file to the kernel.

A trainer's limit is often 1,024 (`ulimit -n`), which its own files, its ranks' sockets and its data share. Where it is
too low it is raised as far as the administrator allows, as Go's and Java's programs do at their start. Without that, a
flood of samples would end in "Too many open files" somewhere in the trainer, and rarely where the cause is.
"""

import logging
import resource

from rewardpool.errors import ConfigError

log = logging.getLogger(__name__)

# Files for all else that the process has open.
SPARE = 512


def needed(concurrency: int, *, hedge: bool) -> int:
    """Open files of a process with so many requests in flight; half as many hedges may be beside them."""
    return concurrency + (concurrency // 2 if hedge else 0) + SPARE


def ensure_limit(concurrency: int, *, hedge: bool) -> None:
    """Raise RLIMIT_NOFILE as far as the process needs. Raises ConfigError where it cannot be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = needed(concurrency, hedge=hedge)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return
    if hard != resource.RLIM_INFINITY and hard < need:
        without = "set `hedge: false`, " if hedge and hard >= needed(concurrency, hedge=False) else ""
        raise ConfigError(
            "concurrency",
            f"{concurrency} requests in flight may need {need} open files, and this process may have {hard}; lower it, "
            f"{without}or raise the limit: `ulimit -Hn {need}` as root, or LimitNOFILE= of the service",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    log.info("open files of this process: %d instead of %d, for %d requests in flight", need, soft, concurrency)


def raise_limit(files: int) -> None:
    """Raise RLIMIT_NOFILE by so many files, as far as the administrator allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = soft + files
        resource.setrlimit(resource.RLIMIT_NOFILE, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
