"""The loop of a pool on one machine: observe, decide, carry out, until a signal; then drain, and leave nothing.

It reads what to run from `wanted.json` in the pool's folder, before the start and at any time later, and to stop by
SIGINT, SIGTERM or SIGHUP. The order of stopping: a gateway, and then the router, takes no new request and finishes
those in flight, with all workers still behind it; then the workers, which have nothing left. A second signal ends
everything at once.
"""

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

import aiohttp

from rewardpool_api import Condition, RewardPool, RewardPoolStatus, names
from rewardpool_api.reasons import NEVER_STARTS, ConditionReason
from rewardpool_api.status import MAX_MESSAGE, AuthStatus
from rewardpool_control.decide import decide
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import Snapshot
from rewardpool_control.start_times import StartTimes
from rewardpool_control.throughput import Throughputs
from rewardpool_local import holders
from rewardpool_local.demand_files import DemandFiles
from rewardpool_local.fleet import Fleet
from rewardpool_local.folder import PoolFolder, StateUnreadableError, SupervisorRecord, asked_for, stopped
from rewardpool_local.gateway import LocalGateway
from rewardpool_local.gpu_claim import GpuClaim
from rewardpool_local.gpus import VISIBLE
from rewardpool_local.launching import revision_of
from rewardpool_local.process import kill_all, marked
from rewardpool_local.router import LocalRouter
from rewardpool_local.supervised_process import Run
from rewardpool_worker.mounted import write_mounted_files

log = logging.getLogger(__name__)

PASS_SECONDS = 0.5  # a process that ends starts a pass at once
# While trainers may wait for sleeping engines to wake, or to give their GPU back, or for a pool at zero.
QUICK_PASS_SECONDS = 0.05
AT_ZERO_PASS_SECONDS = 0.2  # only the router knows that a request waits
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class SupervisorSettings:
    """Settings of a supervisor."""

    python: str
    port: int | None = None
    """Port of the router; None for a free one."""
    give_up_seconds: float | None = None
    """Stop when no worker was ever ready for this long; None for the manifest's progressDeadlineSeconds."""
    asked_at: float | None = None
    """Monotonic time at which the pool was declared, from which on that counts; None for now."""


@dataclass(frozen=True)
class Parts:
    """The processes of a pool."""

    router: LocalRouter
    fleet: Fleet
    gateway: LocalGateway


@dataclass(frozen=True)
class _End:
    reason: str
    message: str


_STOPPED = _End("Stopped", "it was stopped; `rewardpool up` starts it again")
_FAILED = _End(
    "SupervisorFailed", "its supervisor failed, which is a fault of RewardPool; `rewardpool up` starts it again"
)


def pass_seconds(pool: RewardPool) -> float:
    """Return the seconds to the next pass over a pool when nothing happens. Pure."""
    first, scaling = pool.status.first_score, pool.status.scaling
    if pool.spec.engine.sleep.enabled or (first is not None and first.waits_for is not None):
        return QUICK_PASS_SECONDS
    if scaling is None or scaling.desired or pool.spec.autoscaling is None:
        return PASS_SECONDS
    return QUICK_PASS_SECONDS if pool.spec.autoscaling.parked else AT_ZERO_PASS_SECONDS


def _news(before: str, what: str, error: Exception) -> str:
    """Return a failure in words; it is logged where it is another than before, a defect with its traceback."""
    words = f"{what}: {error or type(error).__name__}"
    if words != before:
        is_defect = not isinstance(error, OSError | StateUnreadableError)
        log.warning("%s", words, exc_info=error if is_defect else None)
    return words


def kill_leftovers(folder: PoolFolder) -> list[int]:
    """End what a supervisor left that was killed before it could; the caller holds the folder's lock.

    Returns:
        The ids of the processes.
    """
    record = folder.read_supervisor()
    if record is None:
        return []
    left = marked(f"/{record.run_id}/")
    kill_all(left)
    folder.forget_supervisor()
    return [process.pid for process in left]


class StoppedEarlyError(Exception):
    """A signal stopped a pool that was never ready; nothing of it is left.

    Attributes:
        exit_code: of the command, as a shell has it: 128 and the signal.
    """

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(f"stopped by {signal.Signals(number).name} before any worker was ready")


class Supervisor:
    """One pool's loop. The caller holds the folder's lock."""

    def __init__(
        self, folder: PoolFolder, pool: RewardPool, settings: SupervisorSettings, environ: Mapping[str, str]
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            folder: created, with `wanted.json` in it.
            environ: this process's environment.
        """
        auth = AuthStatus(key_file=str(folder.key_file)) if pool.spec.router.auth.uses_key else AuthStatus()
        self._pool = pool.model_copy(update={"status": RewardPoolStatus(auth=auth)})
        self._folder = folder
        self._settings = settings
        self._environ = environ
        self._wanted_stamp = folder.wanted_stamp()
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._unready_since = monotonic() if settings.asked_at is None else settings.asked_at
        self._was_ready = False
        self._was_complete = False
        self._stopped_by: int | None = None
        self._start_times = StartTimes()
        self._throughputs = Throughputs()
        self._demands = DemandFiles(folder.demands)
        self._unread = ""
        self._failed_with = ""
        self._gpu_claim = GpuClaim(folder.gpu)
        self._revisions: frozenset[str] = frozenset()

    async def run(self) -> bool:
        """Run the pool until a signal; returns False when it gave up because no worker became ready.

        Raises:
            StoppedEarlyError: a signal ended it before it ever was as declared.
        """
        run = Run(
            id=secrets.token_hex(8), pool=self._pool.key, logs=self._folder.logs, changed=lambda: self._changed.set()
        )
        record = SupervisorRecord(pid=os.getpid(), run_id=run.id, cuda_visible_devices=self._environ.get(VISIBLE))
        self._folder.write_supervisor(record)
        self._folder.new_keys()
        write_mounted_files(self._folder.files)
        python = self._settings.python
        # A connection for each request: one that is kept may be closed by a worker at the moment it is used again.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            key = self._folder.key_file.read_text().strip() if self._pool.status.auth.key_file else None
            router = LocalRouter(run=run, folder=self._folder, session=session, python=python, port=self._settings.port)
            fleet = Fleet(run=run, folder=self._folder, session=session, python=python, key=key, environ=self._environ)
            gateway = LocalGateway(run=run, folder=self._folder, session=session, router_url=router.url)
            parts = Parts(router, fleet, gateway)
            end = _FAILED
            try:
                with self._on_signals():
                    end = await self._loop(parts)
                    # Of a pool that gave up no request was ever answered, and none will be.
                    if end is _STOPPED:
                        await self._drain_or_hurry(parts)
            finally:
                await asyncio.gather(gateway.kill(), router.kill(), fleet.kill())
                try:
                    self._folder.write_pool(stopped(self._pool, reason=end.reason, message=end.message))
                except OSError as error:  # a full disk; that nothing supervises the pool is seen by its lock
                    log.warning("the end cannot be written down: %s", error)
                self._folder.forget_supervisor()
                log.info("%s is down: none of its processes is left", self._pool.key)
        if end is _STOPPED and self._stopped_by is not None and not self._was_complete:
            raise StoppedEarlyError(self._stopped_by)
        return end is _STOPPED

    async def _loop(self, parts: Parts) -> "_End":
        while not self._stop.is_set():
            self._changed.clear()
            await self._try_pass(parts)
            if self._is_hopeless():
                message = self._why_hopeless()
                log.error("giving up: %s", message)
                return _End("GaveUp", f"{message}; logs are in {self._folder.logs}")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_seconds):
                    await self._changed.wait()
        return _STOPPED

    async def _try_pass(self, parts: Parts) -> None:
        """Make a pass; whatever fails in it, what serves goes on serving, and the next pass tries again."""
        try:
            self._read_wanted()
        except (OSError, StateUnreadableError) as error:
            self._unread = _news(self._unread, "the manifest that is wanted cannot be read, the last one holds", error)
        else:
            self._unread = ""
        try:
            await self._pass(parts)
        except Exception as error:
            # A full disk, no more files, or a defect. An asyncio.CancelledError is not an Exception.
            self._failed_with = _news(self._failed_with, "a pass failed, the next one tries again", error)
            # Not kept: the next pass that succeeds writes what it finds.
            with suppress(OSError):
                status = self._with_failure(self._pool.status, self._failed_with)
                self._folder.write_pool(self._pool.model_copy(update={"status": status}))
        else:
            self._failed_with = ""

    def _with_failure(self, status: RewardPoolStatus, message: str) -> RewardPoolStatus:
        before = self._pool.status.condition("Degraded")
        lasts = before is not None and before.status == "True"
        degraded = Condition(
            type="Degraded",
            status="True",
            reason=ConditionReason.RECONCILE_FAILED,
            message=message[:MAX_MESSAGE],
            last_transition_time=before.last_transition_time if before and lasts else datetime.now(UTC),
            observed_generation=self._pool.metadata.generation,
        )
        others = [condition for condition in status.conditions if condition.type != "Degraded"]
        return status.model_copy(update={"conditions": [*others, degraded]})

    async def _pass(self, parts: Parts) -> None:
        router, fleet = parts.router, parts.fleet
        await router.ensure(self._pool)
        gateway = await parts.gateway.ensure(self._pool)
        seen = await router.observe()
        worker_sets, workers = fleet.observe()
        observed_at = monotonic()
        workers = self._start_times.measure(workers, now=observed_at)
        workers = self._throughputs.measure(workers, (seen,), now=observed_at)
        now = datetime.now(UTC)
        plan = decide(
            Snapshot(
                now=now,
                pool=self._pool,
                revision=revision_of(self._pool),
                url=router.url,
                worker_sets=worker_sets,
                workers=workers,
                routers=(seen,),
                gateway=gateway,
                holders=self._holders(fleet),
                announcements=self._demands.observe(now=now),
            )
        )
        for leave in plan.leaves:
            await router.remove(leave.worker_id)
        await fleet.carry_out(plan, self._pool, now)
        for join in plan.joins:
            await router.add(join.worker_url)
        self._keep_revisions(fleet.revisions)
        self._publish(plan, fleet)
        self._demands.remove_old(now=now)
        self._forget_code(fleet.codes)

    def _keep_revisions(self, revisions: Mapping[str, RewardPool]) -> None:
        if revisions.keys() != self._revisions:
            self._folder.write_revisions(revisions)
            self._revisions = frozenset(revisions)

    def _forget_code(self, used: frozenset[str]) -> None:
        code = self._folder.code
        if not code.others(used):
            return
        # Where somebody adds one just now, the next pass does it.
        with suppress(TimeoutError), code.locked(seconds=0):
            # Under the lock: it may have been asked for a moment ago.
            wanted = self._folder.read_wanted()
            asked = (one.metadata.annotations.get(names.ANNOTATION_CODE) for one in (wanted, self._pool) if one)
            code.remove(code.others(used.union(digest for digest in asked if digest)))

    def _holders(self, fleet: Fleet) -> tuple[str, ...]:
        """Return the holders that keep the pool awake; none while trainers compute on the GPUs that it shares with
        them.
        """
        held = holders.names(self._folder.awake)
        if not self._pool.spec.engine.sleep.enabled:
            return held
        return held if self._gpu_claim.renew(needed=bool(held) or fleet.has_gpu) else ()

    def _publish(self, plan: Plan, fleet: Fleet) -> None:
        for event in plan.events:
            log.log(logging.WARNING if event.type == "Warning" else logging.INFO, "%s: %s", event.reason, event.message)
        status = plan.status.model_copy(update={"workers": fleet.describe()})
        if self._unread:
            status = self._with_failure(status, self._unread)
        if status != self._pool.status or self._failed_with:
            self._pool = self._pool.model_copy(update={"status": status})
            self._folder.write_pool(self._pool)

    def _read_wanted(self) -> None:
        stamp = self._folder.wanted_stamp()
        if stamp in (None, self._wanted_stamp):
            return
        wanted = self._folder.read_wanted()
        # After the reading: one that failed, for want of open files say, is tried again.
        self._wanted_stamp = stamp
        if wanted is None or asked_for(wanted) == asked_for(self._pool):
            return
        generation = self._pool.metadata.generation + 1
        what = "its code" if wanted.spec == self._pool.spec else "the manifest"
        log.info("%s changed: generation %d", what, generation)
        metadata = wanted.metadata.model_copy(update={"generation": generation})
        self._pool = wanted.model_copy(update={"metadata": metadata, "status": self._pool.status})

    @property
    def _pause_seconds(self) -> float:
        return pass_seconds(self._pool)

    @property
    def _patience_seconds(self) -> float:
        given = self._settings.give_up_seconds
        return self._pool.spec.start_seconds if given is None else given

    def _is_hopeless(self) -> bool:
        status = self._pool.status
        self._was_ready = (
            self._was_ready or status.ready_replicas > 0 or any(one.phase == "Asleep" for one in status.workers)
        )
        # Without a scaling no pass succeeded yet, which is no reason to wait for ever.
        if self._was_ready or (status.scaling is not None and status.scaling.desired == 0):
            self._unready_since = monotonic()
            self._was_complete = True
            return False
        return self._never_starts() or monotonic() - self._unready_since > self._patience_seconds

    def _never_starts(self) -> bool:
        progressing = self._pool.status.condition("Progressing")
        return progressing is not None and progressing.reason in NEVER_STARTS

    def _why_hopeless(self) -> str:
        status = self._pool.status
        what, cause = f"no worker became ready within {self._patience_seconds:g} s", status.condition("Serving")
        if self._never_starts():
            # Serving may still name the router, which starts more slowly than such a worker fails.
            what, cause = "no worker can start", status.condition("Progressing")
        if failure := self._failed_with or self._unread:
            return f"{what}; {failure}"
        return f"{what} ({cause.reason}: {cause.message.splitlines()[0]})" if cause and cause.message else what

    @contextmanager
    def _on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # Under nohup the hang-up of the terminal is ignored, and stays so.
        handled = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        for number in handled:
            loop.add_signal_handler(number, self._on_stop_signal, number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _on_stop_signal(self, number: int) -> None:
        if self._stop.is_set():
            log.warning("stopping at once: requests in flight are lost")
            self._hurry.set()
            return
        seconds = self._pool.spec.worker.drain_seconds
        log.info("stopping: requests in flight have up to %d s; a second signal ends all at once", seconds)
        self._stopped_by = number
        self._stop.set()
        self._changed.set()

    async def _drain_or_hurry(self, parts: Parts) -> None:
        drain = asyncio.create_task(_drain(parts))
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({drain, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if drain.done():
            drain.result()
        drain.cancel()


async def _drain(parts: Parts) -> None:
    await parts.gateway.stop()
    await parts.router.stop()
    await parts.fleet.stop()
