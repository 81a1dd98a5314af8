"""The state folder of a pool: what a supervisor leaves for trainers, for commands and for its successor.

    pool.json        the object with its status; written by the supervisor alone, read by discovery
    wanted.json      the object as it was last declared; written by commands, read by the supervisor
    revisions.json   the objects that the kept revisions are made of; written by the supervisor, read to go back to one
    supervisor.json  who supervises, under which mark its processes run
    lock             held by the supervisor while it lives, so a status can be told from a memory of one
    key, admin-key, gateway-key  mode 0600
    metrics-url      where the router's metrics are
    files/, logs/    what engines mount, what processes print
    models/          links to downloaded files, by worker
    code/            copies of its function's code, by revision, see code_copies.py
    demands/         what training jobs announce; written by them, see demand_files.py
    awake/           who holds the pool awake; files locked by trainers, see holders.py
    gpu              whether trainers or engines have shared GPUs; locked by them, see gpu_claim.py

Files are replaced as a whole, so a reader sees the old or the new one. Fields of another version are ignored, as an
operator does with those of another CRD: a pool that runs is stopped and changed by whichever version is installed now.
"""

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from rewardpool_api import Condition, RewardPool, RewardPoolStatus, dump_manifest, names
from rewardpool_api.status import ConditionType
from rewardpool_local.code_copies import CodeCopies
from rewardpool_runtime.file_lock import lock_within
from rewardpool_runtime.own_paths import check_own
from rewardpool_runtime.state_files import (
    AWAKE_DIR,
    DEMANDS_DIR,
    GPU_FILE,
    LOCK_FILE,
    is_supervised,
    pool_dir,
    state_dir,
)

T = TypeVar("T")
_REVISIONS = TypeAdapter(dict[str, RewardPool])

LOCK_SECONDS = 1.0  # readers hold the lock for microseconds, a supervisor for good


# The condition Serving from the command to the supervisor's first pass.
STARTING = "Starting"


class AlreadyRunningError(RuntimeError):
    """Another supervisor holds the pool."""


class StateUnreadableError(RuntimeError):
    """A file of a pool's state is none that this version writes."""


@dataclass(frozen=True, kw_only=True)
class SupervisorRecord:
    """The present or last supervisor of a pool."""

    pid: int
    run_id: str
    cuda_visible_devices: str | None = None
    """Value in its environment, from which its workers' GPUs are taken; None where it has none."""


class PoolFolder:
    """The files of one pool."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.files = path / "files"
        self.temporary = path / "tmp"
        self.models = path / "models"
        self.demands = path / DEMANDS_DIR
        self.awake = path / AWAKE_DIR
        self.gpu = path / GPU_FILE
        self.code = CodeCopies(path)
        self.key_file = path / names.KEY_FILE
        self.admin_key_file = path / "admin-key"
        self.gateway_key_file = path / "gateway-key"
        self._state = path / names.STATE_FILE
        self._wanted = path / "wanted.json"
        self._revisions = path / "revisions.json"
        self._supervisor = path / "supervisor.json"
        self._metrics_url = path / "metrics-url"

    @property
    def records(self) -> Path:
        """Digests of what was downloaded to this machine; of all of the user's pools. Not the name of a namespace."""
        return self.path.parents[1] / ".downloads"

    @property
    def pool_key(self) -> str:
        """`namespace/name`."""
        return f"{self.path.parent.name}/{self.path.name}"

    def create(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)  # what killed engines left there
        for folder in (self.path, self.logs, self.files, self.temporary, self.demands, self.awake):
            folder.mkdir(parents=True, exist_ok=True)
        # Logs and prompts in them are nobody else's business; nor may anybody else announce what costs GPUs.
        for folder in (self.path, self.demands, self.awake):
            folder.chmod(0o700)

    def new_keys(self) -> None:
        """Make the keys anew: the former ones are no longer valid."""
        for file in (self.key_file, self.admin_key_file, self.gateway_key_file):
            write_private(file, secrets.token_urlsafe(32))

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """Be the pool's supervisor.

        Raises:
            AlreadyRunningError: another process is.
        """
        with (self.path / LOCK_FILE).open("ab") as lock:
            if not lock_within(lock, LOCK_SECONDS):
                raise AlreadyRunningError(f"{self.pool_key} is already running")
            yield

    def is_supervised(self) -> bool:
        return is_supervised(self.path)

    def write_pool(self, pool: RewardPool) -> None:
        _write_object(self._state, pool)

    def read_pool(self) -> RewardPool | None:
        """The object as it was last published; None when it never was.

        Raises:
            StateUnreadableError: another version published it, or none.
        """
        return _read_object(self._state)

    def read_pool_as_it_is(self) -> RewardPool | None:
        """The object as last published; where its supervisor is gone, without what only a living one may say."""
        pool = self.read_pool()
        if pool is None or self.is_supervised():
            return pool
        serving = pool.status.condition("Serving")
        if serving is not None and pool.status.url is None and serving.reason != STARTING:
            # It said so itself when it ended.
            return pool
        return stopped(
            pool, reason="SupervisorGone", message="its supervisor was killed; `rewardpool up` starts the pool again"
        )

    def write_wanted(self, pool: RewardPool) -> None:
        _write_object(self._wanted, _without_status(pool))

    def read_wanted(self) -> RewardPool | None:
        return _read_object(self._wanted)

    def wanted_stamp(self) -> tuple[int, int] | None:
        """Return what changes with every request; None while there is no file, which requests nothing."""
        try:
            status = self._wanted.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def write_revisions(self, revisions: Mapping[str, RewardPool]) -> None:
        """Keep what these revisions are made of, by their names, and nothing of others."""
        objects = {name: dump_manifest(_without_status(pool)) for name, pool in revisions.items()}
        write_private(self._revisions, json.dumps(objects, indent=2) + "\n")

    def read_revisions(self) -> dict[str, RewardPool]:
        """Return the pools from which the kept revisions are made, by the revisions' names.

        Raises:
            StateUnreadableError: another version wrote them, or none.
        """
        return _read(self._revisions, partial(_REVISIONS.validate_json, extra="ignore")) or {}

    def write_supervisor(self, record: SupervisorRecord) -> None:
        write_private(self._supervisor, json.dumps(asdict(record)))

    def read_supervisor(self) -> SupervisorRecord | None:
        try:
            return SupervisorRecord(**json.loads(self._supervisor.read_text()))
        except FileNotFoundError:
            return None

    def remove(self) -> None:
        """Remove the folder with everything in it, and its namespace's when no other pool is there."""
        shutil.rmtree(self.path)
        with suppress(OSError):  # another pool is there
            self.path.parent.rmdir()

    def forget_supervisor(self) -> None:
        """Take down that everything it started is gone."""
        self._supervisor.unlink(missing_ok=True)

    def write_metrics_url(self, url: str) -> None:
        write_private(self._metrics_url, url)

    def read_metrics_url(self) -> str | None:
        """Return the URL of the present or last metrics; None when no router ever ran."""
        try:
            return self._metrics_url.read_text()
        except FileNotFoundError:
            return None


def asked_for(pool: RewardPool) -> tuple[Any, ...]:
    """Return what makes two requests for a pool the same: its spec, its function's code, and when it was restarted."""
    annotations = pool.metadata.annotations
    return pool.spec, annotations.get(names.ANNOTATION_CODE), annotations.get(names.ANNOTATION_RESTARTED_AT)


def annotated(pool: RewardPool, annotations: Mapping[str, str | None]) -> RewardPool:
    """Return the object with these annotations; None removes one."""
    both = {**pool.metadata.annotations, **annotations}
    kept = {name: value for name, value in both.items() if value is not None}
    return pool.model_copy(update={"metadata": pool.metadata.model_copy(update={"annotations": kept})})


def folder_of(pool: str, environ: Mapping[str, str]) -> PoolFolder:
    """The folder of the pool `namespace/name`; it need not exist.

    Raises:
        PathNotOwnError: Another user may write it.
    """
    namespace, _, name = pool.rpartition("/")
    path = pool_dir(environ, namespace or "default", name)
    check_own(path)
    return PoolFolder(path)


def all_folders(environ: Mapping[str, str]) -> list[PoolFolder]:
    """The folders of all pools that were ever published on this machine. Raises PathNotOwnError."""
    check_own(state_dir(environ))
    return [PoolFolder(path.parent) for path in sorted(state_dir(environ).glob(f"*/*/{names.STATE_FILE}"))]


def stopped(pool: RewardPool, *, reason: str, message: str) -> RewardPool:
    """Return the object without processes: no URL, no replica serving, and the reason."""
    now = datetime.now(UTC)
    status = pool.status
    kept = [condition for condition in status.conditions if condition.type == "Degraded"]
    kinds: tuple[ConditionType, ...] = ("Ready", "Serving")
    ended = [
        Condition(
            type=kind,
            status="False",
            reason=reason,
            message=message,
            last_transition_time=now,
            observed_generation=pool.metadata.generation,
        )
        for kind in kinds
    ]
    after = RewardPoolStatus(
        observed_generation=status.observed_generation,
        current_revision=status.current_revision,
        model=status.model,
        auth=status.auth,
        conditions=[*ended, *kept],
    )
    return pool.model_copy(update={"status": after})


def _without_status(pool: RewardPool) -> RewardPool:
    return pool.model_copy(update={"status": RewardPoolStatus()})


def _write_object(path: Path, pool: RewardPool) -> None:
    write_private(path, json.dumps(dump_manifest(pool), indent=2) + "\n")


def _read_object(path: Path) -> RewardPool | None:
    return _read(path, partial(RewardPool.model_validate_json, extra="ignore"))


def _read(path: Path, parse: Callable[[bytes], T]) -> T | None:
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        key = f"{path.parent.parent.name}/{path.parent.name}"
        raise StateUnreadableError(
            f"{path} is not what this version of rewardpool writes: `rewardpool delete {key}` removes the pool's state"
        ) from None


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 that no reader ever sees half of."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
