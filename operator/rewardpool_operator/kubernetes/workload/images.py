"""RewardPool's own image, the one thing about a pool that depends on how the operator itself was installed."""

import os
from collections.abc import Mapping
from importlib import metadata
from typing import Final

# The Helm chart sets it to the image that the operator runs from.
ENV_IMAGE: Final = "REWARDPOOL_IMAGE"


def own_image(environ: Mapping[str, str] = os.environ) -> str:
    """Default image of routers and of Function workers: $REWARDPOOL_IMAGE, else the released one of this version."""
    return environ.get(ENV_IMAGE) or f"rewardpool:{metadata.version('rewardpool')}"
