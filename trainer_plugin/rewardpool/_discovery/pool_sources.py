"""The sources a RewardPool object is read from: a cluster's API server, or the state folder of this machine.

Both hand back the same object and, separately, its key. `rewardpool_kube.client`, which is slow to import, is imported
only when a cluster is asked.
"""

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import ValidationError

from rewardpool.errors import PoolAccessError, PoolNotReadyError, PoolNotYetReadyError
from rewardpool_api import names
from rewardpool_kube.configuration import is_configured, is_in_pod, kubeconfigs, load_configuration
from rewardpool_kube.errors import CredentialsError, KubeError, KubeUnreachableError
from rewardpool_kube.resources import POOLS, SECRETS
from rewardpool_runtime.own_paths import PathNotOwnError, check_own
from rewardpool_runtime.state_files import is_supervised, pool_dir, pools_here
from rewardpool_runtime.trust import verifying_context

if TYPE_CHECKING:
    from rewardpool_api import RewardPool
    from rewardpool_kube.client import Kube

T = TypeVar("T")

# The names of the Helm chart's roles for training jobs begin with it.
TRAINER_ROLE = "rewardpool-trainer"


class ForbiddenError(PoolAccessError):
    """The cluster refuses (403); the message names verb and object."""


class SourceUnavailableError(PoolAccessError):
    """The source does not answer, or is too busy to; that passes by itself."""


class PoolNotHere(Exception):  # noqa: N818 - an answer, not a failure: the next source is read
    """The source has no such pool; the text says where it looked and what it found instead."""


class PoolSource(Protocol):
    """Somewhere a RewardPool object may be; `str()` of it names it in messages."""

    async def read_pool(self, namespace: str, name: str) -> "RewardPool":
        """The object. Raises PoolNotHere, PoolNotReadyError, or PoolAccessError: it may be there and cannot be read."""

    async def pool_names(self, namespace: str) -> list[str]:
        """Return `namespace/name` of the pools there are: of all namespaces on a machine, of this one in a cluster.

        Raises PoolAccessError.
        """

    async def read_keys(self, pool: "RewardPool") -> tuple[str, ...]:
        """The pool's key, and behind it others that are valid while it is rotated; empty when it needs none.

        Raises PoolAccessError or PoolNotReadyError.
        """


class LocalSource:
    """The state folder that `rewardpool up` writes on this machine."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __str__(self) -> str:
        return "this machine"

    def folder(self, namespace: str, name: str) -> Path:
        """The pool's folder; it need not exist."""
        return pool_dir(self._environ, namespace, name)

    async def read_pool(self, namespace: str, name: str) -> "RewardPool":
        folder = self.folder(namespace, name)
        path = folder / names.STATE_FILE
        try:
            check_own(folder)
            raw = path.read_bytes()
            supervised = is_supervised(folder)
        except FileNotFoundError:
            raise PoolNotHere(f"this machine: there is no {path}") from None
        except PathNotOwnError as error:
            raise PoolAccessError(f"{self}: {error}") from None
        except OSError as error:
            raise PoolAccessError(f"the pool's state file {path} cannot be read: {error.strerror}") from error
        if not supervised:
            # Whatever its last status says, nobody keeps the pool; its processes may be gone.
            raise PoolNotHere(f"this machine: the pool of {path} is not running")
        try:
            return _parse(json.loads(raw))
        except ValueError as error:
            raise PoolNotReadyError(f"{path} is not a RewardPool: {error}") from error

    async def pool_names(self, namespace: str) -> list[str]:
        return pools_here(self._environ)

    async def read_keys(self, pool: "RewardPool") -> tuple[str, ...]:
        file = pool.status.auth.key_file
        return () if file is None else read_key_files(Path(file))


class KubernetesSource:
    """The cluster of $KUBECONFIG, else of the pod this runs in, else of `~/.kube/config`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    @property
    def is_in_pod(self) -> bool:
        """True if this runs in a pod of the cluster."""
        return is_in_pod(self._environ)

    def __str__(self) -> str:
        if self.is_in_pod:
            return "Kubernetes, as this pod's service account"
        return f"Kubernetes, by {kubeconfigs(self._environ)}"

    async def read_pool(self, namespace: str, name: str) -> "RewardPool":
        if not is_configured(self._environ):
            there_is_no = f"there is no {kubeconfigs(self._environ)}"
            raise PoolNotHere(f"Kubernetes: no cluster is configured (not in a pod, and {there_is_no})")
        what = f"{names.PLURAL}.{names.GROUP}/{name} in namespace {namespace}"
        raw = await self._read(lambda kube: kube.get(POOLS, namespace, name), what)
        if raw is None:
            raise PoolNotHere(f"{self}: no {what}")
        try:
            pool = _parse(raw)
        except ValidationError as error:
            raise PoolNotReadyError(
                f"{self} has {what} in a version this trainer does not understand: {error}"
            ) from error
        _check_own(pool)
        return pool

    async def pool_names(self, namespace: str) -> list[str]:
        """Return the pools of a namespace of the cluster; none where no cluster is configured."""
        if not is_configured(self._environ):
            return []
        what = f"{names.PLURAL}.{names.GROUP} in namespace {namespace}"
        found = await self.request(lambda kube: kube.list(POOLS, namespace), what, verb="list")
        return sorted(f"{namespace}/{pool['metadata']['name']}" for pool in found or [])

    async def read_keys(self, pool: "RewardPool") -> tuple[str, ...]:
        namespace, secret = pool.metadata.namespace, pool.status.auth.secret_name
        if secret is None:
            return ()
        what = f"secrets/{secret} in namespace {namespace}"
        found = await self._read(lambda kube: kube.get(SECRETS, namespace, secret), what)
        if found is None:
            raise PoolNotYetReadyError(
                f"RewardPool {pool.key} names {what}, which does not exist; the operator makes it"
            )
        key, *others = (_entry(found.get("data"), name) for name in names.KEY_NAMES)
        if not key:
            raise PoolNotYetReadyError(
                f"{what} has no usable entry {names.SECRET_KEY!r}; delete it and the operator makes it anew"
            )
        return key, *filter(None, others)

    async def _read(self, call: Callable[["Kube"], Awaitable[T]], what: str) -> T | None:
        """Return what `request` does. Raises PoolAccessError, which says what to do about a missing right."""
        try:
            return await self.request(call, what)
        except ForbiddenError as error:
            raise PoolAccessError(
                f"{error}. Add the job's service account to the Helm chart's `trainers`, "
                f"which binds a {TRAINER_ROLE} role in that namespace; or mount the pool's Secret into the job and set "
                f"${names.ENV_KEY_FILE} to the key's file, and bind the cluster role {TRAINER_ROLE}"
            ) from error

    async def client(self) -> "Kube":
        """Return a client with the credentials as they are now, for the caller to enter.

        Raises PoolAccessError.
        """
        from rewardpool_kube.client import Kube  # slow to import, and not needed by a trainer on one machine

        try:
            configuration = await load_configuration(self._environ)
        except CredentialsError as error:
            raise PoolAccessError(f"{self}: the cluster's credentials cannot be used: {error}") from error
        return Kube(configuration, field_manager=names.TRAINER_FIELD_MANAGER)

    async def request(
        self, call: Callable[["Kube"], Awaitable[T]], what: str, *, verb: str = "get", kube: "Kube | None" = None
    ) -> T | None:
        """Return what the call is answered; None for 404.

        Args:
            kube: What `client` returned, entered, to be used again; by default one for this request alone.

        Raises:
            ForbiddenError: The cluster does not allow it.
            PoolAccessError: There is no answer for another reason.
        """
        if kube is None:
            async with await self.client() as own:
                return await self.request(call, what, verb=verb, kube=own)
        try:
            return await call(kube)
        except KubeError as error:
            if error.status == 404:
                return None
            raise self._refusal(error, verb, what) from error
        except KubeUnreachableError as error:
            raise SourceUnavailableError(f"{self}: the API server {kube.server} does not answer: {error}") from error

    def _refusal(self, error: KubeError, verb: str, what: str) -> PoolAccessError:
        if error.status == 401:
            return PoolAccessError(f"{self}: the API server does not accept the credentials (401); renew them")
        if error.status == 403:
            return ForbiddenError(f"{self}: no right to {verb} {what} (403)")
        kind = SourceUnavailableError if error.status == 429 or error.status >= 500 else PoolAccessError
        return kind(f"{self}: to {verb} {what} failed with HTTP {error.status}: {error}")


def _check_own(pool: "RewardPool") -> None:
    """Raise PoolAccessError unless the status names the pool's own routers and its own key, as an operator's does."""
    # Others who may write it must not choose where a key goes, or which Secret of the namespace is used as one.
    name, namespace = pool.metadata.name, pool.metadata.namespace
    own = f"{names.router_host(name, namespace)}:{names.ROUTER_PORT}"
    url, secret = pool.status.url, pool.status.auth.secret_name
    who = "see who may patch rewardpools/status besides the operator"
    if url is not None and url.rstrip("/") not in (f"http://{own}", f"https://{own}"):
        raise PoolAccessError(
            f"status.url of RewardPool {pool.key} is {url}, and its routers are at {own}: nothing is sent there, {who}."
            " For another way to its routers set url and key_file"
        )
    if secret not in (None, names.key_secret(name)):
        raise PoolAccessError(
            f"status.auth.secretName of RewardPool {pool.key} is {secret}, and its key is in {names.key_secret(name)}:"
            f" the other Secret is not read, {who}"
        )


def read_key_files(path: Path) -> tuple[str, ...]:
    """The key in a file, and behind it those in files beside it, as where a whole key Secret is mounted.

    Raises PoolAccessError.
    """
    try:
        key = path.read_text().strip()
        beside = [path.with_name(name) for name in names.KEY_NAMES if name != path.name]
        others = [other.read_text().strip() for other in beside if other.exists()]
    except OSError as error:
        raise PoolAccessError(f"the key file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PoolAccessError(f"the key file {path} is not text: it has another file's content") from error
    if not key:
        raise PoolAccessError(f"the key file {path} is empty")
    return key, *filter(None, others)


def _entry(data: Mapping[str, str] | None, name: str) -> str:
    """One entry of a Secret; empty where it is missing or no text."""
    try:
        return base64.b64decode((data or {})[name], validate=True).decode().strip()
    except (KeyError, TypeError, binascii.Error, UnicodeDecodeError):
        return ""


def read_ca_file(path: Path) -> str:
    """The certificates in a file. Raises PoolAccessError."""
    try:
        pem = path.read_text()
        verifying_context(pem)
    except (OSError, ValueError) as error:
        raise PoolAccessError(f"the certificates in {path} cannot be used: {error}") from error
    return pem


def _parse(raw: Any) -> "RewardPool":
    # A newer operator may write fields this trainer does not know; they are none of its business.
    from rewardpool_api import RewardPool  # takes a fifth of a second, and is not needed by a trainer that has a URL

    return RewardPool.model_validate(raw, extra="ignore")
