"""Drift of the routers' lists: distinguishes repairs, which the metric counts, from changes of the pool.

Pure. A worker that was on a router's list, was not taken off by us and is to join again was lost: by a restarted
router, or by a hand. One that we never put there and that is to leave was put there by another. What was on a
list when it was first seen is taken for ours.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rewardpool_control.plan import Join, Leave
from rewardpool_control.snapshot import Router


@dataclass
class WorkerListDrift:
    """The routers' lists, pass by pass. Times are monotonic seconds."""

    _listed: dict[str, set[str]] = field(default_factory=dict)
    """Router -> addresses that it had and nobody of ours took off."""
    _known: dict[str, set[str]] = field(default_factory=dict)
    """Router -> addresses that it had at first, or that we put there."""
    _joining: dict[Join, float] = field(default_factory=dict)

    def record(self, routers: Iterable[Router], *, now: float) -> tuple[Router, ...]:
        """Record the routers' lists before anything is changed.

        Returns:
            The routers, with how long they lack a worker.
        """
        answered = {router.name: router for router in routers}
        for gone in self._listed.keys() - answered.keys():
            del self._listed[gone], self._known[gone]
        for name, router in answered.items():
            if router.registered is None:
                continue
            urls = {entry.url for entry in router.registered}
            known = self._known.setdefault(name, set(urls))
            self._listed.setdefault(name, set()).update(urls & known)
        return tuple(replace(router, late_seconds=self._late_seconds(router, now)) for router in answered.values())

    def to_join(self, joins: Iterable[Join], *, now: float) -> None:
        self._joining = {join: self._joining.get(join, now) for join in joins}

    def _late_seconds(self, router: Router, now: float) -> float:
        listed = {entry.url for entry in router.registered or ()}
        joining = ((join.worker_url, at) for join, at in self._joining.items() if join.router == router.name)
        missing = [at for url, at in joining if url not in listed]
        return now - min(missing) if missing else 0.0

    def is_repair(self, change: Join | Leave) -> bool:
        if isinstance(change, Join):
            return change.worker_url in self._listed.get(change.router, ())
        return change.worker_url not in self._known.get(change.router, ())

    def done(self, change: Join | Leave) -> None:
        if isinstance(change, Join):
            self._known.setdefault(change.router, set()).add(change.worker_url)
            # Until it is seen on the list, it is not lost.
            self._listed.setdefault(change.router, set()).discard(change.worker_url)
        else:
            for urls in (self._known, self._listed):
                urls.get(change.router, set()).discard(change.worker_url)
