"""One worker of a pool on one machine: a process, started again when it dies, probed, and put to sleep when told."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from time import monotonic

import aiohttp

from rewardpool_api import RewardPool
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import CertificateStatus, WorkerProcess
from rewardpool_control.snapshot import Failure, Worker
from rewardpool_local.launching import revision_of
from rewardpool_local.supervised_process import Command, Run, SupervisedProcess
from rewardpool_operator.probe import ProbeResult, probe_score, read_in_flight, turn

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
STARTING_LOOK_SECONDS = 0.05  # no event reports the first answer of a worker
STARTING_SECONDS = 20.0
BUSY_SECONDS = 0.05
REFUSED_SECONDS = 1.0
STOP_SECONDS = 5.0  # vLLM takes longer on a busy machine, to no purpose


class Silence:
    """Duration for which a worker that scored before has not answered the simplest question, by count and by time."""

    LOOKS = 10
    SECONDS = 60.0

    def __init__(self) -> None:
        self._looks = 0
        self._since = 0.0

    def note(self, *, answered: bool, now: float) -> bool:
        """Take in one look at `now` (monotonic seconds); returns whether the worker hangs."""
        if answered:
            self._looks = 0
            return False
        if self._looks == 0:
            self._since = now
        self._looks += 1
        # As a kubelet counts failed liveness probes. By time alone, a machine that slept would find all its workers
        # silent for hours at the first look; by count alone, ten refusals in a row are over in seconds.
        return self._looks >= self.LOOKS and now - self._since >= self.SECONDS


class Replica:
    """One worker: its process, started again when it dies, and what it says of itself."""

    def __init__(
        self,
        name: str,
        pool: RewardPool,
        *,
        created: datetime,
        run: Run,
        command: Callable[[], Command],
        acquire_gpus: Callable[[], Awaitable[str | None]],
        session: aiohttp.ClientSession,
        key: str | None,
    ) -> None:
        """Begin to look at it; `start_if_due` starts it.

        Args:
            name: of its log, and in the status.
            created: when it was first wanted.
            run: what the processes of the supervisor share.
            command: is asked before every start.
            acquire_gpus: has its GPUs for it, if it has not; returns why there are none.
            key: the pool's key; None when it asks for none.
        """
        self.name = name
        self.revision = revision_of(pool)
        self.created = created
        self.draining_since: datetime | None = None
        self.parked = False
        self._pool = pool
        self._run = run
        self._session = session
        self._key = key
        self._acquire_gpus = acquire_gpus
        self._unschedulable: str | None = None
        self.process = SupervisedProcess(name, run=run, command=command)
        self._answered_pid: int | None = None
        self._in_flight: int | None = None
        self._max_model_len: int | None = None
        self._tokenizer: str | None = None
        self._probe_score: float | None = None
        self._unsandboxed: tuple[str, ...] | None = None
        self._certificate: CertificateStatus | None = None
        self._refusal: tuple[int, ProbeResult] | None = None
        self._silence = Silence()
        self._asleep_pid: int | None = None
        self._turning: asyncio.Task[None] | None = None
        self._turn_at = 0.0
        self._looking = asyncio.create_task(self._observe_forever())

    @property
    def answering(self) -> bool:
        """True if a real score came back from the process it has."""
        return self.process.running and self._answered_pid == self.process.pid

    @property
    def asleep(self) -> bool:
        return self.process.running and self._asleep_pid == self.process.pid

    @property
    def has_gpu(self) -> bool:
        """True if its engine has a GPU: it runs and does not sleep, or is just waking."""
        turning = self._turning is not None and not self._turning.done()
        return self.process.running and (turning or not self.asleep)

    @property
    def phase(self) -> str:
        if self.draining_since is not None or self.process.stopping:
            return "Draining"
        if not self.process.running and (self.process.failure is not None or self._unschedulable is not None):
            return "Waiting"
        if self.asleep:
            return "Asleep"
        return ("Parked" if self.parked else "Ready") if self.answering else "Starting"

    def observe(self) -> Worker:
        """Return the worker for a snapshot.

        Raises:
            Exception: what ended the task that looks at the worker, which is a fault of this program.
        """
        if self._looking.done():
            self._looking.result()
        refusal = self._present_refusal
        return Worker(
            name=self.name,
            revision=self.revision,
            url=self.process.url if self.process.running else None,
            created=self.created,
            running=self.process.running,
            answering=self.answering,
            asleep=self.asleep,
            draining_since=self.draining_since,
            deleting=self.process.stopping,
            in_flight=self._in_flight if self.process.running else None,
            unschedulable=self._unschedulable,
            failure=self._failure,
            no_score=refusal.error if refusal is not None else None,
            restarts=self.process.restarts,
            max_model_len=self._max_model_len,
            tokenizer=self._tokenizer,
            probe_score=self._probe_score if self.answering else None,
            unsandboxed=self._unsandboxed if self.answering else None,
            certificate=self._certificate if self.answering else None,
        )

    def describe(self) -> WorkerProcess:
        return WorkerProcess(
            name=self.name,
            revision=self.revision,
            url=self.process.url,
            pid=self.process.pid,
            phase=self.phase,
            restarts=self.process.restarts,
            in_flight=self._in_flight if self.answering else None,
        )

    @property
    def _failure(self) -> Failure | None:
        if self._unschedulable is not None:
            return Failure(reason=ConditionReason.UNSCHEDULABLE, message=self._unschedulable)
        refusal = self._present_refusal
        return self.process.failure or (refusal.failure if refusal is not None else None)

    @property
    def _present_refusal(self) -> ProbeResult | None:
        if self._refusal is None or not self.process.running:
            return None
        pid, refusal = self._refusal
        return refusal if pid == self.process.pid else None

    async def start_if_due(self, *, may_start: bool) -> None:
        """Start its process unless it has one, is leaving, is pausing, or no process may start."""
        if self.draining_since is None and may_start and self.process.is_due:
            self._unschedulable = await self._acquire_gpus()
            if self._unschedulable is None:
                await self.process.start_if_due()
        self.process.bound_log()

    def turn(self, *, awake: bool) -> None:
        """Begin to wake the engine or to put it to sleep, unless that is under way or failed a moment ago."""
        if (self._turning is None or self._turning.done()) and monotonic() >= self._turn_at:
            self._turning = asyncio.create_task(self._turn(awake=awake))

    async def _turn(self, *, awake: bool) -> None:
        pid, began = self.process.pid, monotonic()
        if not await self.process.listens():
            return
        turned = await turn(self._session, self.process.url, awake=awake, key=self._key)
        if self.process.pid != pid:
            return
        if turned.ok:
            self._asleep_pid = None if awake else pid
            log.info("%s: %s after %.2f s", self.name, "wakes" if awake else "sleeps", monotonic() - began)
            self._run.changed()
        elif turned.weights_lost:
            await self.process.start_again(Failure(reason=ConditionReason.WEIGHTS_LOST, message=turned.error))
        elif turned.busy:
            self._turn_at = monotonic() + BUSY_SECONDS
        else:
            log.warning("%s: does not %s: %s", self.name, "wake" if awake else "sleep", turned.error)
            self._turn_at = monotonic() + REFUSED_SECONDS

    async def stop(self) -> None:
        await self.process.stop(grace_seconds=STOP_SECONDS)
        self._looking.cancel()
        self.process.release_ports()

    async def kill(self) -> None:
        await self.process.kill()
        self._looking.cancel()
        self.process.release_ports()

    async def _observe_forever(self) -> None:
        while True:
            pid = self.process.pid
            if pid is not None:
                await self._observe(pid)
            starting = not self.answering and self.process.running_seconds < STARTING_SECONDS
            await asyncio.sleep(STARTING_LOOK_SECONDS if starting else LOOK_SECONDS)

    async def _observe(self, pid: int) -> None:
        listens = await self.process.listens()
        session, url, key = self._session, self.process.url, self._key
        if self._answered_pid == pid:
            self._in_flight = await read_in_flight(session, url, key=key) if listens else None
            if self._silence.note(answered=self._in_flight is not None, now=monotonic()):
                hung = f"it runs and has not answered for {Silence.SECONDS:.0f} s"
                await self.process.start_again(Failure(reason="Hung", message=hung))
            return
        if not listens:
            return
        served_name, model_type = self._pool.served_name, self._pool.spec.model.type
        result = await probe_score(session, url, key=key, served_name=served_name, model_type=model_type)
        if result.ok and self.process.pid == pid:
            self._answered_pid, self._in_flight = pid, 0
            self._max_model_len, self._tokenizer = result.max_model_len, result.tokenizer
            self._probe_score, self._unsandboxed = result.probe_score, result.unsandboxed
            self._certificate = result.certificate
            self._silence = Silence()
            self.process.note_serving()
            self._refusal = None
            log.info("%s: scores", self.name)
            self._run.changed()
        elif result.reached and result.error and self.process.pid == pid:
            is_first, self._refusal = self._refusal is None, (pid, result)
            if is_first:
                log.info("%s: gives no score: %s", self.name, result.error)
                self._run.changed()
