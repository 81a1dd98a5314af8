"""The namespaces that are served, each of which starts and fails alone.

A pass over a pool needs all kinds of objects of its namespace listed once. In a namespace where one kind may not be
listed no pool is touched, and it is said which kind, why, and on the pools themselves as far as they may be written.
The others go on. Nothing of it takes a restart: a right that is given, or a namespace that is made again, is noticed by
the reflectors, which never stop trying.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pydantic import ValidationError

from rewardpool_api import RewardPoolStatus
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import MAX_MESSAGE, Condition
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.reflector import Reflector
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.metrics import METRICS
from rewardpool_runtime.untrusted import printable

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
LISTING: Final = "its objects are being listed"
ALL: Final = "all namespaces"


class Namespaces:
    """State of the watched namespaces, "" for all at once; `ready` receives the pools of one once it is served."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        reflectors: Mapping[str, Sequence[Reflector]],
        *,
        ready: Callable[[Iterable[Key]], None],
        may_act: Callable[[], bool],
    ) -> None:
        self._kube = kube
        self._store = store
        self._reflectors = reflectors
        self._ready = ready
        self._may_act = may_act
        self._reported: dict[str, str] = {}

    def is_known(self, namespace: str) -> bool:
        """Return whether everything in it was listed once, so that its pools may be looked after."""
        return all(reflector.synced.is_set() for reflector in self._get(namespace))

    def is_being_listed(self, namespace: str) -> bool:
        """Return whether what the store has of it may be a part only, which the next moments complete."""
        return not self.is_known(namespace) and self.problem(namespace) is None

    def problem(self, namespace: str) -> str | None:
        """Return what the operator may not read there, in the API server's words; None when it may read all."""
        found = (f"{one.resource.plural}: {one.problem}" for one in self._get(namespace) if one.problem)
        return printable("; ".join(found), most=MAX_MESSAGE) or None

    def not_served(self) -> dict[str, str]:
        """Namespace -> why its pools are not looked after, or only by what was known before."""
        found = self._reflectors
        problems = {one: self.problem(one) or (None if self.is_known(one) else LISTING) for one in found}
        return {name or ALL: problem for name, problem in problems.items() if problem is not None}

    async def run(self) -> None:
        """Let pools be reconciled once their namespace is known, and report what is wrong; until cancelled."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._reflectors:
                group.create_task(self._start(namespace), name=f"start of {namespace or ALL}")
            group.create_task(self._report_forever(), name="namespaces")

    def _get(self, namespace: str) -> Sequence[Reflector]:
        return self._reflectors.get(namespace) or self._reflectors.get("", ())

    async def _start(self, namespace: str) -> None:
        for reflector in self._reflectors[namespace]:
            await reflector.synced.wait()
        self._ready([key for key in self._store.pools() if namespace in ("", key[0])])

    async def _report_forever(self) -> None:
        while True:
            try:
                await self.report()
            except Exception:
                # What somebody wrote into a status must not end the care for the others.
                log.exception("the conditions about namespaces could not be written")
            await asyncio.sleep(LOOK_SECONDS)

    async def report(self) -> None:
        """Report news once: in the log, in the metrics, and on pools that no pass reports on."""
        wrong = self.not_served()
        for namespace in self._reflectors:
            name = namespace or ALL
            METRICS.serves_namespace(name, name not in wrong)
            problem = self.problem(namespace)
            if problem is not None and self._reported.get(namespace) != problem:
                log.warning("namespace %s is not served: %s", name, problem)
                self._reported[namespace] = problem
            elif name not in wrong and self._reported.pop(namespace, None) is not None:
                log.info("namespace %s is served again", name)
            if problem is not None and not self.is_known(namespace) and self._may_act():
                pools = [key for key in self._store.pools() if namespace in ("", key[0])]
                await asyncio.gather(*(self._write(key, problem) for key in pools))

    async def _write(self, key: Key, problem: str) -> None:
        """Put the condition on a pool, unless it is there; on one that somebody changed meanwhile at the next look."""
        found = self._store.pool(key)
        conditions = None if found is None else with_condition(found, problem, now=datetime.now(UTC))
        if found is None or conditions is None:
            return
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "status": {"conditions": conditions}}
        try:
            written = await self._kube.merge(resources.POOLS, *key, patch, subresource="status")
        except (KubeError, KubeUnreachableError) as error:
            log.debug("no condition for %s/%s: %s", *key, error)
        else:
            self._store.put(resources.POOLS, written)


def with_condition(pool: Object, problem: str, *, now: datetime) -> list[Object] | None:
    """The pool's conditions with Degraded for a namespace that is not served; None where it says so already."""
    try:
        status = RewardPoolStatus.model_validate(pool.get("status") or {}, extra="ignore")
    except ValidationError:
        status = RewardPoolStatus()
    before = status.condition("Degraded")
    reason, message = ConditionReason.NAMESPACE_NOT_SERVED.value, problem[:MAX_MESSAGE]
    if before is not None and (before.reason, before.message) == (reason, message):
        return None
    since = before.last_transition_time if before is not None and before.status == "True" else now
    degraded = Condition(
        type="Degraded",
        status="True",
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=status.observed_generation,
    )
    conditions = [*(one for one in status.conditions if one.type != "Degraded"), degraded]
    return [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in conditions]
