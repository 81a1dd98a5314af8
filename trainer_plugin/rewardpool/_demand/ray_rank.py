"""Choice of the process of a Ray job that announces, where they have neither ranks nor names: the first one that asks.

Ray's own store, which all of its processes share, decides. A process that dies does not hand the part on; the demand
lapses then, and the pool goes by its load.
"""

import logging
import sys
from functools import lru_cache

log = logging.getLogger(__name__)


@lru_cache(maxsize=1)  # asked again, a process is still the one that it was
def ray_rank() -> int | None:
    """0 for the first process of this Ray job that asks, 1 for all others; None outside Ray, or where it cannot say."""
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
