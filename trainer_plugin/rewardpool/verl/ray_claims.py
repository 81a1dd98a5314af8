"""Revisions of groups, for all reward workers of a job: a table in a Ray actor that they share.

verl gives each trajectory to any of its reward workers, so that two of them can be asked for one group. The first
worker makes the actor and the others find it by its name, which is one in the job's namespace, as the names of verl's
own workers are. It needs no CPU, and Ray ends it with the worker that made it or with the job.

It is never replaced. A second one would not know which revisions scored what was handed on before, and a group might
get two. verl replaces no reward worker that dies either.
"""

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any, Final

from rewardpool._rewards.job_claims import ClaimsUnavailableError
from rewardpool._rewards.one_revision import Answered, Claims
from rewardpool.errors import PoolError

# Limit of the actor's first answer.
START_SECONDS: Final = 60.0
_REMEDY: Final = "reward.num_workers=1 needs no such actor, and reward.rewardpool.one_revision=false asks none"


class RayClaims:
    """The table of the job, as `ClaimStore` has it."""

    def __init__(self) -> None:
        self._actor: Any = None

    async def start(self) -> None:
        """Make the job's actor, or find the one that is there. Raises PoolError where it does not answer in time."""
        try:
            async with asyncio.timeout(START_SECONDS):
                # A call to Ray's control service, which the event loop does not wait for.
                self._actor = await asyncio.to_thread(_made_or_found)
                await self._actor.for_group.remote(None)
        except Exception as error:
            problem = f"no answer within {START_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
            raise PoolError(
                f"the Ray actor that keeps which revision scores each group cannot be used: {problem}; {_REMEDY}"
            ) from error

    async def for_group(self, group: Hashable) -> Mapping[str, str]:
        return await self._call("for_group", group)

    async def enter(self, group: Hashable, answered: Answered) -> Mapping[str, str]:
        return await self._call("enter", group, answered)

    async def _call(self, name: str, *given: Any) -> Mapping[str, str]:
        from ray.exceptions import ActorDiedError, RayError

        try:
            said: Mapping[str, str] = await getattr(self._actor, name).remote(*given)
        except ActorDiedError as error:
            raise PoolError(
                "the Ray actor that kept which revision scores each group has died, probably with the reward worker"
                f" that made it: restart the job from its checkpoint; {_REMEDY}"
            ) from error
        except RayError as error:
            raise ClaimsUnavailableError(f"it is not known which revision its group has: {error}; {_REMEDY}") from error
        return said


def _made_or_found() -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    of_worker = ray.get_runtime_context()
    # Beside its maker, with which it is lost anyway: another node's end shall not end it too.
    place = NodeAffinitySchedulingStrategy(of_worker.get_node_id(), soft=True)
    name = f"rewardpool_claims_{of_worker.get_job_id()}"
    made = ray.remote(num_cpus=0, max_restarts=0)(Claims)
    return made.options(name=name, get_if_exists=True, scheduling_strategy=place).remote()
