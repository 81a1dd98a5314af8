"""What the figures have to be. Pure."""

from collections.abc import Mapping
from typing import Any, Final

MOST_WASTED: Final = 0.05
MOST_DIFFERENT: Final = 1e-6


def missed(found: Mapping[str, Any]) -> list[str]:
    """Return the aims that these figures miss, in words."""
    wasted = found["rollouts"]["leave_out"]["share"]
    different = max(found["largest_difference_from_oracle"].values())
    return [
        *([f"{wasted:.3%} of the rollouts wasted, more than 5 %"] if wasted > MOST_WASTED else []),
        *([f"an advantage is {different} off the oracle's"] if different > MOST_DIFFERENT else []),
        *(
            f"the tiny policy learns to provoke time-outs under {way}"
            for way in ("unscored", "unscored_with_penalty")
            if found["bandit"][way]["provokes_after_most"] > found["bandit"][way]["provokes_before"]
        ),
        *(
            f"a pool with {name}: {one['wrong']} samples scored, raised: {one['raised'] or 'nothing'}"
            for name, one in found["broken_pools"].items()
            if one["wrong"] or not one["raised"]
        ),
    ]
