"""The routers that `spec.router.flavor` names. Another one is a module like theirs, and an entry here."""

from collections.abc import Mapping
from typing import Final

from rewardpool_api.pool import RouterFlavor
from rewardpool_operator.routers.program import RouterProgram
from rewardpool_operator.routers.sglang_router import SGLANG_ROUTER
from rewardpool_operator.routers.smg import SMG

PROGRAMS: Final[Mapping[RouterFlavor, RouterProgram]] = {"sglang-router": SGLANG_ROUTER, "smg": SMG}
