"""Observation of one pool at one moment: the only input of `decide`.

Plain data, gathered by the operator from the API server and the routers, or by `rewardpool_local` from processes. A
figure that could not be had is None, never 0: a missing figure must not look like an idle pool.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from rewardpool_api import RewardPool
from rewardpool_api.status import CertificateStatus, KeyRotation
from rewardpool_control.autoscaler.signals import Announcement, Claim, Throughput
from rewardpool_control.golden_set import GoldenProblem, GoldenScores, GoldenSet


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Reason why a worker or router does not come up, or a step of a pass is not done."""

    reason: str
    """One CamelCase word: ModelNotFound, PortInUse, OutOfMemory, EngineExited, ImagePull …"""
    message: str


DownloadPhase = Literal["Resolving", "Waiting", "Downloading", "Verifying", "Done"]


@dataclass(frozen=True, kw_only=True)
class Download:
    """Progress of one worker's download of its model."""

    phase: DownloadPhase
    begun: datetime | None = None
    """When the present attempt began; None when it is over."""
    commit: str | None = None
    downloaded_bytes: int = 0
    total_bytes: int | None = None
    note: str | None = None


LOADING_AGAIN: Final = timedelta(minutes=1)  # an attempt after one that failed is believed to get on after so long


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One replica: a pod, or a process group on one machine."""

    name: str
    revision: str
    url: str | None = None
    """Base URL at which routers reach it; None until it has an address."""
    created: datetime
    placed: bool = True
    running: bool = False
    answering: bool = False
    """It runs, and a real score came back from it since its process started."""
    asleep: bool = False
    """Its engine sleeps: `answering` tells of the time before, and of the next wake."""
    node_unreachable: bool = False
    """Its node does not report: the two above are what was heard last. See `decide/node_loss.py`."""
    draining_since: datetime | None = None
    """When it was told to leave; None while it is wanted."""
    deleting: bool = False
    disruption_target: str | None = None
    in_flight: int | None = None
    """Requests it is working on, by its own count; None when it does not say."""
    unschedulable: str | None = None
    """Reason why no node takes it, in the scheduler's words; they begin with SchedulingGated where it is to wait."""
    failure: Failure | None = None
    no_score: str | None = None
    """Reason why it gives no score, in its own words; None while it answers, or where it said nothing yet."""
    restarts: int = 0
    max_model_len: int | None = None
    """Longest sample in tokens, as the engine says."""
    tokenizer: str | None = None
    probe_score: float | None = None
    """Its score of the probe text, finite; None while it is not known, and of models that give no number."""
    unsandboxed: tuple[str, ...] | None = None
    """Things that its function reaches though it should not, in words; None while unknown."""
    certificate: CertificateStatus | None = None
    """None while it is not known, and of judges and functions."""
    start_seconds: float | None = None
    """From its making to its first score; None where that was not seen, and for one that was started again."""
    answered: int = 0
    throughput: Throughput | None = None
    """Work over the last seconds; None where it had nothing to do, or does not say."""
    download: Download | None = None
    """Download of its model; None where nothing is downloaded, or the download does not run."""

    @property
    def is_downloading(self) -> bool:
        return self.download is not None and self.download.begun is not None

    def is_loading(self, now: datetime) -> bool:
        """Return whether its download gets on, so that its time to answer has not begun."""
        if self.download is None or self.download.begun is None:
            return False
        return self.failure is None or now - self.download.begun >= LOADING_AGAIN

    @property
    def active(self) -> bool:
        """Wanted: neither leaving nor being deleted."""
        return self.draining_since is None and not self.deleting

    @property
    def available(self) -> bool:
        """It may be given work: wanted, answering, and nobody is about to take it away."""
        return self.active and self.answering and self.disruption_target is None


@dataclass(frozen=True, kw_only=True)
class RegisteredWorker:
    """An entry of a router's worker list."""

    id: str
    url: str
    in_flight: int | None = None
    answered: int | None = None
    """Requests that it answered since the router began to count for it; None when the router does not say."""
    healthy: bool | None = None
    """True if the router reaches it, by its own checks every two seconds; None when it does not say."""


@dataclass(frozen=True, kw_only=True)
class Router:
    """One router replica."""

    name: str
    answering: bool = False
    registered: tuple[RegisteredWorker, ...] | None = None
    """Its worker list; None when it could not be read."""
    waiting: int | None = None
    """Requests it accepted, has not answered, and holds at no worker; None when unknown."""
    waiting_seconds: float = 0.0
    """For how long at most the oldest of them has waited: since the last look at which none did. 0 where unknown."""
    age_seconds: float = 0.0
    silent_seconds: float = 0.0
    """Since the first question after its last answer was asked; 0 while it answers. One that is busy answers late."""
    exposed: bool = True
    """Trainers are sent to it. True where nothing stands between, as on one machine."""
    concealed: bool = False
    """Trainers were sent to it and are not any more: it may still have what came before."""
    late_seconds: float = 0.0
    deleting: bool = False
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The gateway of a pool that has one."""

    url: str
    wanted: int = 1
    ready: int = 0
    key_file: str | None = None
    """File of its key, on one machine; None in a cluster, where a Secret has it."""
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerSet:
    """All workers of one revision, as one wanted number (a Deployment on Kubernetes)."""

    revision: str
    replicas: int
    created: datetime | None = None
    """When the set was made; None in a plan for a set that does not exist yet."""
    golden: GoldenScores | None = None
    refused: str | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything observed of one pool at `now`."""

    now: datetime
    """Timezone-aware, UTC."""
    pool: RewardPool
    """The object with the status that was last written: the decision's memory."""
    revision: str
    url: str
    worker_sets: tuple[WorkerSet, ...] = ()
    workers: tuple[Worker, ...] = ()
    routers: tuple[Router, ...] = ()
    wanted_routers: int = 1
    gateway: Gateway | None = None
    holders: tuple[str, ...] | None = None
    """Holders that keep the pool awake, by name; None where engines cannot be put to sleep, as in a cluster."""
    announcements: tuple[Announcement, ...] = ()
    claims: tuple[Claim, ...] = ()
    golden: GoldenSet | GoldenProblem | None = None
    """Golden set of `spec.rollout.parity`; None when it names none, or where there are no ConfigMaps."""
    offer: str | None = None
    """Differences of workers of the present revision that were made anew, in words; None where there are none."""
    protected_workers: int | None = None
    protected_routers: int | None = None
    protected_gateways: int | None = None
    ca_bundle: str | None = None
    """Certificates that verify the routers, PEM in base64; None for http."""
    tls_problem: str | None = None
    """Reason why the certificate of `spec.router.tls` cannot be used; no router is started or changed until it can."""
    rotation: KeyRotation | None = None
    """Progress of a change of the keys; None for a pool whose keys never changed."""
    key_refused: str | None = None
    routers_refused: str | None = None
    failures: tuple[Failure, ...] = ()
    """Steps of earlier passes that fail, and what keeps the operator from seeing the pool; most important first."""

    @property
    def is_trainers_turn(self) -> bool:
        """A pool that was complete once and that nobody holds awake: its GPUs are used by others, so nothing starts."""
        rollout = self.pool.status.rollout
        complete = rollout is not None and rollout.stable_revision is not None
        return self.pool.spec.engine.sleep.enabled and self.holders == () and complete

    def workers_of(self, revision: str) -> tuple[Worker, ...]:
        return tuple(worker for worker in self.workers if worker.revision == revision)

    def available_of(self, revision: str) -> int:
        return sum(worker.available for worker in self.workers_of(revision))

    def is_listed(self, worker: Worker) -> bool:
        return any(entry.url == worker.url for router in self.routers for entry in router.registered or ())

    def serving_of(self, revision: str) -> int:
        """Return how many of those stay and are in the list of every router that answers and that trainers use."""
        answering = [router for router in self.routers if router.answering and not router.deleting]
        reached = [router for router in answering if router.exposed] or answering
        lists = [{entry.url for entry in router.registered} for router in reached if router.registered is not None]
        able = [worker for worker in self.workers_of(revision) if worker.available]
        return sum(all(worker.url in urls for urls in lists) for worker in able)

    def set_of(self, revision: str) -> WorkerSet | None:
        return next((worker_set for worker_set in self.worker_sets if worker_set.revision == revision), None)
