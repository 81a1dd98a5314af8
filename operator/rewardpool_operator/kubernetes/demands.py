"""Announcements of training jobs, as Leases: read, checked, and removed once they expired.

    Demands   of one pool: part of every pass over it
    Strays    of pools that are not there: nothing else would warn the trainer, nor remove them

A Lease is `demand-POOL.JOB` (`rewardpool_api.demand`). Who may write one may write any other of its name into the same
namespace, so nothing is done to a Lease that is not called that way, whatever its labels say.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from rewardpool_api import names
from rewardpool_api.demand import MAX_JOB_NAME, Demand, DemandError, lease_name, parse_demand
from rewardpool_api.reasons import EventReason
from rewardpool_api.times import time_of
from rewardpool_control.announcements import MOST, Renewals, UnreadAnnouncement, announcements, is_over
from rewardpool_control.autoscaler.signals import Announcement
from rewardpool_control.plan import Event
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.events.recorder import lease_event_object
from rewardpool_operator.left_out import readable
from rewardpool_runtime.untrusted import printable

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
PATIENCE: Final = timedelta(seconds=10)
ASK_SECONDS: Final = 1.0
AT_A_TIME: Final = 10  # somebody may make thousands of Leases
REFUSED_PAUSE: Final = timedelta(minutes=1)


def is_removable(lease: Object) -> bool:
    """Return whether the Lease has the name of one of its pool's jobs; see above."""
    metadata = lease["metadata"]
    pool = metadata["labels"][names.LABEL_POOL]
    return bool(metadata["name"].startswith(lease_name(pool, "")))


def demand_of(lease: Object) -> Demand:
    """Return the demand that the Lease announces.

    Raises:
        DemandError: nothing that makes sense, or not what its name and holder say.
    """
    metadata = lease["metadata"]
    text = metadata["annotations"].get(names.ANNOTATION_DEMAND)
    if text is None:
        raise DemandError(f"it has no annotation {names.ANNOTATION_DEMAND}")
    demand = parse_demand(text)
    holder = lease["spec"]["holderIdentity"]
    if demand.job != holder:
        said = printable(holder, most=MAX_JOB_NAME) or "empty"
        raise DemandError(f"job: it is {demand.job}, and spec.holderIdentity is {said}")
    pool = metadata["labels"][names.LABEL_POOL]
    name = lease_name(pool, demand.job)
    if metadata["name"] != name:
        # By name and job alike there is one Lease for a job.
        raise DemandError(f"job: the Lease of job {demand.job} is called {name}")
    return demand


def announcements_of(leases: Sequence[Object], *, renewals: Renewals, now: datetime) -> tuple[Announcement, ...]:
    """Return the announcements of Leases."""
    written = dict(readable("leases", leases, _renewed, name=lambda lease: lease["metadata"]["name"]))
    renewed = renewals.observe(written, now=now)
    unread = [
        UnreadAnnouncement(
            name=lease["metadata"]["name"],
            made=lease["metadata"]["creationTimestamp"],
            renewal=renewed[lease["metadata"]["name"]],
            stated=lease["spec"].get("leaseDurationSeconds"),
            read=partial(demand_of, lease),
        )
        for lease in leases
        if lease["metadata"]["name"] in renewed
    ]
    return announcements(unread, now=now)


def _renewed(lease: Object) -> tuple[str, datetime]:
    renewed = time_of(lease["renewed"])
    if renewed is None:
        raise ValueError(f"it was renewed at {lease['renewed']!r:.60}")
    return lease["metadata"]["name"], renewed


class Demands:
    """Announcements of jobs to one pool."""

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube = kube
        self._store = store
        self._renewals = Renewals()
        self._announcements: tuple[Announcement, ...] = ()
        self._live: set[str] = set()
        self._left_out = 0
        self._refused_at: datetime | None = None
        self.refused: str | None = None
        """Reason for which it was unknown, at the last question, whether a demand lapsed; it counts meanwhile."""

    async def observe(self, leases: Sequence[Object], *, now: datetime, away: bool = False) -> tuple[Announcement, ...]:
        """Return the present announcements.

        While the API server is away no job can renew anything.
        """
        found = announcements_of(leases, renewals=self._renewals, now=now)
        lapsing = {one.name for one in found if one.name in self._live and not one.is_live(now)}
        if away:
            self._renewals.excuse(self._live, now=now)
        elif not lapsing:
            self.refused = None
        else:
            leases = await self._asked_for(leases, lapsing, now=now)
        if lapsing:
            found = announcements_of(leases, renewals=self._renewals, now=now)
        self._announcements = found
        self._live = {one.name for one in found if one.is_live(now)}
        self._log_left_out(len(leases))
        return found

    async def _asked_for(self, leases: Sequence[Object], lapsing: Collection[str], *, now: datetime) -> list[Object]:
        """The Leases, and those that lapse as the API server has them now."""
        refs = [(lease["metadata"]["namespace"], lease["metadata"]["name"]) for lease in leases]
        self.refused = None
        # A watch may be dead before that is noticed: a fleet that is let go too early costs a start, a question one
        # call.
        await asyncio.gather(*(self._ask_for(*ref, now=now) for ref in refs if ref[1] in lapsing))
        found = [self._store.find(resources.LEASES, *ref) for ref in refs]
        return [lease for lease in found if lease is not None]

    async def _ask_for(self, namespace: str, name: str, *, now: datetime) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                there = await self._kube.get(resources.LEASES, namespace, name)
        except (KubeError, KubeUnreachableError, TimeoutError) as error:
            self.refused = f"whether the demand {name} lapsed is not known: {error or 'no answer in time'}"
            self._renewals.excuse([name], now=now)
        else:
            if there is None:
                self._store.forget(resources.LEASES, namespace, name)
            else:
                self._store.put(resources.LEASES, there)

    def _log_left_out(self, found: int) -> None:
        left_out = found - len(self._announcements)
        if left_out != self._left_out:
            log.warning("of %d demands, %d are left out: %d of a pool count", found, left_out, MOST)
        self._left_out = left_out

    async def remove_old(self, leases: Sequence[Object], *, now: datetime, most: int = AT_A_TIME) -> int:
        """Remove what nobody will renew, of what was seen at the last look; how many were tried."""
        if self._refused_at is not None and now - self._refused_at < REFUSED_PAUSE:
            return 0
        over = {one.name for one in self._announcements if is_over(one, now=now)}
        removable = [lease for lease in leases if lease["metadata"]["name"] in over and is_removable(lease)][:most]
        for lease in removable:
            try:
                await self._remove(lease["metadata"])
            except (KubeError, KubeUnreachableError) as error:
                log.warning("a demand that is over was not removed: %s", error)
                self._refused_at = now
                break
        return len(removable)

    async def _remove(self, metadata: Object) -> None:
        namespace, name, version = metadata["namespace"], metadata["name"], metadata["resourceVersion"]
        try:
            await self._kube.delete(resources.LEASES, namespace, name, version=version)
        except KubeError as error:
            if not error.is_conflict:
                raise
            return  # It was renewed meanwhile.
        self._store.forget(resources.LEASES, namespace, name)


class Strays:
    """Demands for pools that are not there."""

    def __init__(
        self, kube: Kube, store: Store, *, may_act: Callable[[], bool], is_known: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._kube = kube
        self._store = store
        self._may_act = may_act
        self._is_known = is_known
        self._demands: dict[Key, Demands] = {}
        self._since: dict[str, datetime] = {}
        """Uid of a Lease -> since when its pool is missed."""
        self._recorded: set[str] = set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._may_act():
                continue
            try:
                await self.reconcile(now=datetime.now(UTC))
            except (KubeError, KubeUnreachableError) as error:
                log.warning("demands for pools that are not there: %s", error)
            except Exception:
                # Whatever somebody wrote into a Lease must not end the care for pools.
                log.exception("demands for pools that are not there are not looked at now")

    async def reconcile(self, *, now: datetime) -> None:
        """Warn their trainers, and remove what is old."""
        found = self._store.strays(resources.LEASES)
        strays = {key: leases for key, leases in found.items() if self._is_known(key[0])}
        self._demands = {key: self._demands.get(key) or Demands(self._kube, self._store) for key in strays}
        uids = {lease["metadata"]["uid"] for leases in strays.values() for lease in leases}
        self._since = {uid: self._since.get(uid, now) for uid in uids}
        self._recorded &= uids
        room = AT_A_TIME
        for key, leases in strays.items():
            await self._demands[key].observe(leases, now=now)
            room -= await self._demands[key].remove_old(leases, now=now, most=room)
            for lease in leases:
                uid = lease["metadata"]["uid"]
                if room > 0 and uid not in self._recorded and now - self._since[uid] >= PATIENCE:
                    room -= 1
                    await self._record(lease, key)
                    self._recorded.add(uid)

    async def _record(self, lease: Object, key: Key) -> None:
        what = (
            f"there is no RewardPool {'/'.join(key)}, so nobody heeds this demand; make the pool, or name another one"
        )
        log.warning("Lease %s/%s: %s", key[0], lease["metadata"]["name"], what)
        event = Event(type="Warning", reason=EventReason.NO_SUCH_POOL.value, message=what)
        try:
            await self._kube.create(resources.EVENTS, lease_event_object(lease, event))
        except KubeError as error:
            # This operator's predecessor recorded it.
            if not error.is_conflict:
                raise
