"""How soon a pool is looked at again when no event comes. Pure.

Watches tell of everything in Kubernetes at once; looking again is for the routers, which tell nothing by themselves.
While something goes on, that is every second or two. A quiet pool is looked at less and less often, up to a limit that
grows with the number of pools, so that a thousand quiet ones are sixty looks a second and not seven hundred.
"""

from typing import Final

BUSY_SECONDS: Final = 1.5
"""While there is load, change or trouble: how long a router that lost its list is without workers."""
LOOKS_PER_SECOND: Final = 60
"""At quiet pools, of all together."""
LONGEST_SECONDS: Final = 15.0
"""At a quiet pool of fixed size."""
LONGEST_AUTOSCALED_SECONDS: Final = 5.0
"""At a quiet pool that scales: the first request at a pool at zero is seen by asking the router."""
SHORTEST_LIMIT_SECONDS: Final = 3.0
LOAD_SECONDS: Final = 5.0
"""A status that differs in its load alone is written no more often than this."""
LOAD_WRITES_PER_SECOND: Final = 40
"""Of all pools together."""


def seconds_between_loads(pools: int) -> float:
    """Seconds between two writes of a status of which nothing but the load has changed."""
    return max(LOAD_SECONDS, pools / LOAD_WRITES_PER_SECOND)


def seconds_until_next(*, quiet_for: float, scales: bool, pools: int) -> float:
    """Seconds until the next look.

    Args:
        quiet_for: seconds since there was load, change or trouble.
        scales: whether the pool's size follows its load.
        pools: how many there are.
    """
    limit = max(SHORTEST_LIMIT_SECONDS, pools / LOOKS_PER_SECOND)
    longest = min(limit, LONGEST_AUTOSCALED_SECONDS if scales else LONGEST_SECONDS)
    # Half as long again as it has been quiet: grows by itself, without a count of passes. A thousand pools that are
    # made at once are all quiet between the events that they wait for.
    return min(longest, max(BUSY_SECONDS, quiet_for / 2, longest / 2))
