"""Writers of a demand: a Lease next to the pool's object in a cluster, a file in the folder of a local pool.

Which of them follows from where discovery found the pool. A pool of which only a URL is known has no such place.
"""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rewardpool._discovery.endpoint import Endpoint
from rewardpool._discovery.pool_sources import TRAINER_ROLE, ForbiddenError, KubernetesSource, LocalSource
from rewardpool.errors import PoolAccessError
from rewardpool_api.demand import LEASE_SECONDS, Demand, dump_demand, lease_manifest, lease_name
from rewardpool_api.times import rfc3339
from rewardpool_kube.resources import LEASES
from rewardpool_runtime.state_files import DEMANDS_DIR

if TYPE_CHECKING:
    from rewardpool_kube.client import Kube

# Limit of one request to the API server: after that the next renewal is due.
REQUEST_SECONDS = LEASE_SECONDS / 3


class NotWrittenError(Exception):
    """The demand was not said; `is_refused` where that is for want of a right."""

    def __init__(self, problem: str, *, is_refused: bool = False) -> None:
        super().__init__(problem)
        self.is_refused = is_refused


class DemandWriter(Protocol):
    """Says a job's demand where the operator hears it; `str()` of it names the place in messages."""

    async def write(self, demand: Demand) -> None:
        """Write the demand, in place of the one before. Raises NotWrittenError."""

    async def close(self) -> None:
        """Close connections; what was said stays."""


class FileWriter:
    """`demands/JOB.json` in the folder of a pool on this machine; its mtime is the renewal's time."""

    def __init__(self, folder: Path) -> None:
        """Write below the pool's folder, which must exist whenever something is written."""
        self._folder = folder / DEMANDS_DIR

    def __str__(self) -> str:
        return str(self._folder)

    async def write(self, demand: Demand) -> None:
        text = json.dumps({"leaseSeconds": LEASE_SECONDS, "demand": json.loads(dump_demand(demand))})
        try:
            # Not its parents: a pool that was taken away does not come back as an empty folder.
            self._folder.mkdir(mode=0o700, exist_ok=True)
            _replace(self._folder / f"{demand.job}.json", text)
        except OSError as error:
            raise NotWrittenError(f"{self._folder} cannot be written to: {error}") from error

    async def close(self) -> None:
        """Do nothing: a file needs no closing."""


def _replace(path: Path, text: str) -> None:
    # One name for every unfinished file of a job: a job that is killed leaves one behind, and not one per renewal.
    unfinished = path.with_name(f".{path.name}.part")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
    unfinished.replace(path)


class LeaseWriter:
    """A Lease of the job in the pool's namespace, by server-side apply; it goes when the pool's object does.

    One connection serves all renewals. After a failure the next one is made with credentials that are read anew.
    """

    def __init__(self, source: KubernetesSource, endpoint: Callable[[], Endpoint]) -> None:
        """Write to the source's cluster; `endpoint` returns the present pool, which may have been made anew."""
        self._source = source
        self._endpoint = endpoint
        self._open = AsyncExitStack()
        self._kube: Kube | None = None

    def __str__(self) -> str:
        return str(self._source)

    async def write(self, demand: Demand) -> None:
        endpoint = self._endpoint()
        namespace, _, pool = endpoint.pool.partition("/")
        manifest = lease_manifest(
            demand,
            pool=pool,
            namespace=namespace,
            pool_uid=endpoint.pool_uid,
            seconds=LEASE_SECONDS,
            now=rfc3339(datetime.now(UTC)),
        )
        try:
            applied = await self._apply(lease_name(pool, demand.job), namespace, manifest)
        except ForbiddenError as error:
            await self.close()
            raise NotWrittenError(
                f"{error}. Add the job's service account to the Helm chart's `trainers`, which binds a {TRAINER_ROLE} "
                f"role in that namespace; where an entry lists `jobs`, {demand.job} must be one of them. Or set "
                "announce: false",
                is_refused=True,
            ) from error
        except PoolAccessError as error:
            await self.close()
            raise NotWrittenError(str(error)) from error
        except TimeoutError as error:
            await self.close()
            problem = f"{self._source}: the API server does not answer within {REQUEST_SECONDS:g} s"
            raise NotWrittenError(problem) from error
        if applied is None:
            raise NotWrittenError(f"{self._source}: there is no namespace {namespace}")

    async def _apply(self, name: str, namespace: str, manifest: dict[str, Any]) -> Any | None:
        if self._kube is None:
            self._kube = await self._open.enter_async_context(await self._source.client())
        what = f"leases.coordination.k8s.io/{name} in namespace {namespace}"
        async with asyncio.timeout(REQUEST_SECONDS):
            return await self._source.request(
                lambda kube: kube.apply(LEASES, manifest), what, verb="create and patch", kube=self._kube
            )

    async def close(self) -> None:
        self._kube = None
        await self._open.aclose()


def writer_for(endpoint: Callable[[], Endpoint]) -> DemandWriter | None:
    """Return the writer for a pool, by the source in which discovery found it; None where there is no such place."""
    found = endpoint()
    match found.source:
        case KubernetesSource() as cluster:
            return LeaseWriter(cluster, endpoint)
        case LocalSource() as machine:
            return FileWriter(machine.folder(*found.pool.split("/")))
    return None
